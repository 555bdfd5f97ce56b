/**
 * A worker: the part of a runner that runs the handlers whose code its process has. It also runs the dispatcher, if no
 * other process does.
 *
 *     start ─► claims:  a hint, or room ─► claim ───────────────┬─► work
 *           ─► dispatcher, under its lease ─► without a claim ──┘
 *           ─► duties:  due work on behalf of all workers
 *     stop  ─► nothing more begins ─► running attempts end, or are cut off ─► the rest is released
 *
 * It works under the id of the runner, whose row says which handlers it has and, by its heartbeat, that it is alive.
 *
 * What can fail: the database is away. Both loops look again after a backoff; outcomes wait to be stored. A worker whose
 * runner was away for longer than its lease has lost its executions to others.
 */
import type { Consumers } from '../../consumers/consumers.ts'
import { follow } from '../../consumers/run/follow.ts'
import { servesNothing } from '../../consumers/runners/row.ts'
import type { Leased, RunContext, RunningPart } from '../../consumers/runners/runnable.ts'
import { isRillflowError } from '../../core/errors.ts'
import type { DispatcherParts } from '../dispatch/dispatch.ts'
import type { Handler } from '../handler.ts'
import { dispatcherName } from '../routes.ts'
import type { Scheduler } from '../schedules/scheduler.ts'
import { type Claims, openClaims } from './claim.ts'
import { openCompleter } from './complete.ts'
import { type Duties, duties, openDuties } from './duties.ts'
import { releaseOwn } from './rescue.ts'
import { openWork, type Work } from './work.ts'

export interface WorkerParts extends DispatcherParts {
  readonly consumers: Consumers
  readonly scheduler: Scheduler
  /** Stores the routes of the handlers that are wanted, and returns the handlers by route. */
  register(isWanted: (handler: string) => boolean): Promise<ReadonlyMap<number, Handler>>
  /** Calls back when the routes of further handlers, or further schedules, are stored. */
  onStored(listener: () => void): () => void
}

const backoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }
const defaultConcurrency = 16

/** The parts of a running worker. */
interface Running {
  readonly work: Work
  readonly claims: Claims
  readonly duties: Duties
}

/** Resolves when the worker takes work. */
export async function startWorker(parts: WorkerParts, context: RunContext): Promise<RunningPart> {
  const { log, hints, scheduler } = parts
  const { id: owner, leaseMs, concurrency = defaultConcurrency, pollMs, share } = context
  /** Aborts when the worker begins to stop: no attempt begins after that. */
  const stopping = new AbortController()
  /** Aborts when outcomes are no longer stored. */
  const lost = new AbortController()

  const handlers = new Map<number, Handler>()
  await addHandlers()
  const running = run()
  const releases = [...listen(running), parts.workers.add(running.claims), parts.onStored(addLate)]
  running.duties.lookSoon()
  running.claims.claimSoon()
  return {
    leased: () => dispatcherOf(parts, leaseMs),
    async stop(cutOff) {
      stopping.abort()
      for (const release of releases) release()
      await Promise.all([running.claims.stop(), running.duties.stop()])
      await Promise.all([running.work.stop(cutOff), scheduler.drain(owner, cutOff)])
      lost.abort()
      await context.serve(servesNothing)
      // If the database is away, other workers take over when the heartbeat is too old.
      await releaseOwn(log, owner).catch(() => {})
      hints.ready()
    },
  }

  /** Takes the handlers that are registered and wanted by now. */
  async function addHandlers(): Promise<void> {
    const wanted = await parts.register(handler => context.isWanted('handlers', handler))
    const added = [...wanted].filter(([route]) => !handlers.has(route))
    for (const handler of new Set(added.map(([, handler]) => handler))) await handler.init?.()
    if (stopping.signal.aborted) return
    for (const [route, handler] of added) handlers.set(route, handler)
    await context.serve({ routes: [...handlers.keys()], concurrency })
  }

  function addLate(): void {
    addHandlers().then(
      () => {
        context.refresh()
        running.duties.lookSoon()
        running.claims.claimSoon()
      },
      (error: unknown) => {
        if (!stopping.signal.aborted)
          log.telemetry.log.error(
            { schema: log.schema, owner, error },
            'a handler that was registered late was not started',
          )
      },
    )
  }

  /** Work, claims and duties, which call each other. */
  function run(): Running {
    const about = { owner, handlers, leaseMs, backoff, onFailure }
    const work = openWork(parts, {
      ...{ handlers, concurrency, share, leaseMs, stopping: stopping.signal },
      completer: openCompleter(parts, { owner, graceMs: leaseMs, lost: lost.signal }),
      onRoom: () => claims.onRoom(),
      onDue: inMs => duties.lookIn(inMs),
      onCodeEnded: () => duties.lookSoon(),
    })
    const claims = openClaims(log, { ...about, graceMs: leaseMs, work })
    const duties = openDuties(parts, {
      ...{ ...about, pollMs, work },
      runsSchedule: schedule => context.isWanted('schedules', schedule),
      claimSoon: claims.claimSoon,
    })
    return { work, claims, duties }

    function onFailure(error: unknown): void {
      if (!isRillflowError(error, 'store_closed'))
        log.telemetry.log.warn({ schema: log.schema, owner, error }, 'A worker could not look for work.')
      else for (const loop of [claims, duties]) void loop.stop()
    }
  }

  function listen({ work, claims, duties: looks }: Running): (() => void)[] {
    const lookAndClaim = (): void => {
      looks.lookSoon()
      claims.claimSoon()
    }
    return [
      hints.onReady(() => (isDutyHinted() ? lookAndClaim() : claims.claimSoon())),
      hints.onChanged(lookAndClaim),
      hints.onEnded(() => {
        looks.onEnded()
        // An execution that has ended makes room for another one of its handler.
        if (hasLimits()) claims.claimSoon()
      }),
      ...(share === undefined
        ? []
        : [
            share.onFree(() => {
              work.fill()
              claims.claimSoon()
            }),
          ]),
    ]
  }

  /** New executions of some handlers need more than a claim: they are for later, or their lane is not assigned yet. */
  function isDutyHinted(): boolean {
    return duties.some(duty => [...handlers.values()].some(handler => duty.isHintedBy?.(handler, pollMs)))
  }

  function hasLimits(): boolean {
    return [...handlers.values()].some(handler => handler.concurrency !== undefined)
  }
}

/** The dispatcher, if this store has handlers. It is taken over after the same lease as executions. */
function dispatcherOf({ consumers }: WorkerParts, leaseMs: number): Leased[] {
  const found = consumers.get(dispatcherName)
  if (found === undefined) return []
  const { name, kind, from } = found
  return [{ name, kind, from, leaseMs, run: held => follow(consumers, { ...found, leaseMs }, held) }]
}
