/**
 * A worker runs the handlers that its process has. It also runs the dispatcher, if no other process does.
 *
 *     start ─► claims:  a hint, or room ─► claim ───────────────┬─► work
 *           ─► dispatcher, under its lease ─► without a claim ──┘
 *           ─► duties:  heartbeat, and what is due on behalf of all workers
 *     stop  ─► nothing more begins ─► running attempts end, or are cut off ─► the rest is released, the row is deleted
 *
 * What can fail: the database is away. Both loops look again after a backoff; outcomes wait to be stored. A worker that was
 * away for longer than its lease has lost its executions to others, and enters again.
 */
import { AsyncResource } from 'node:async_hooks'
import type { Consumers } from '../../consumers/consumers.ts'
import { newOwner } from '../../consumers/row.ts'
import { follow } from '../../consumers/run/follow.ts'
import { type Host, openHost } from '../../consumers/runners/host.ts'
import { isRillflowError } from '../../core/errors.ts'
import type { Service, ServiceDefinition, Services } from '../../core/service.ts'
import { checkWhole } from '../../core/whole.ts'
import type { DispatcherParts } from '../dispatch/dispatch.ts'
import type { Handler } from '../handler.ts'
import { dispatcherName } from '../routes.ts'
import type { Scheduler } from '../schedules/scheduler.ts'
import { type Claims, openClaims } from './claim.ts'
import { openCompleter } from './complete.ts'
import type { ConcurrencyShare } from './concurrency.ts'
import { type Duties, duties, openDuties } from './duties.ts'
import { enterWorker, removeWorker } from './rescue.ts'
import { openWork, type Work } from './work.ts'

export interface WorkerOptions {
  /** The most handlers that run at once. Default 16. */
  concurrency?: number | undefined
  /**
   * The handlers to run. Default: all that are registered in this store when it starts. Schedules whose code this process
   * has are run by every worker, whatever its handlers are.
   */
  handlers?: readonly string[] | undefined
  /** How long without a heartbeat until other workers take over. Default 15 000. */
  leaseMs?: number | undefined
  /** How often it looks without a hint. Default 2000. */
  pollMs?: number | undefined
  /** How long `stop` waits for running handlers. Default 30 000. */
  drainMs?: number | undefined
  /** A name for people. */
  node?: string | undefined
}

export interface WorkerParts extends DispatcherParts {
  readonly consumers: Consumers
  readonly scheduler: Scheduler
  readonly services: Services
  /** Stores the routes of these handlers, or of all, and returns the handlers by route. */
  register(names: readonly string[] | undefined): Promise<ReadonlyMap<number, Handler>>
  /** Called when a worker has started; the function returned, when it stops. */
  tend(): () => void
}

export interface RunningWorker extends Service {
  /** Its id among the workers of all processes. */
  readonly id: string
}

const backoff = { baseMs: 50, factor: 2, maxMs: 5_000, jitter: 0.5 }

/** Resolves when the worker takes work. `share`: its part of a limit that it shares with workers of other stores. */
export async function startWorker(
  parts: WorkerParts,
  options: WorkerOptions = {},
  share?: ConcurrencyShare,
): Promise<RunningWorker> {
  const worker = workerService(parts, checkWorker(options), share)
  // In the context of the caller, so that a trace in which a worker is started has what the worker does.
  const caller = new AsyncResource('rillflow.worker')
  const start: ServiceDefinition['start'] = stopping => caller.runInAsyncScope(() => worker.start(stopping))
  const service = await parts.services.start({ ...worker, start })
  return Object.assign(service, { id: worker.owner })
}

/** A worker that can be started, and again after a stop. */
export interface Worker extends AsyncDisposable {
  /** Its id among the workers of all processes; undefined while it is not running. */
  readonly id: string | undefined
  readonly isRunning: boolean
  /** Resolves when it takes work. */
  start(): Promise<void>
  /** Takes nothing more, lets running handlers end for a while, then cuts them off; releases the rest. */
  stop(options?: { drainMs?: number | undefined }): Promise<void>
}

export function openWorker(parts: WorkerParts, options: WorkerOptions, share?: ConcurrencyShare): Worker {
  checkWorker(options)
  let current: Promise<RunningWorker> | undefined
  let running: RunningWorker | undefined
  const worker: Worker = {
    get id() {
      return running?.id
    },
    get isRunning() {
      return current !== undefined
    },
    async start() {
      const starting = current ?? startWorker(parts, options, share)
      current = starting
      try {
        running = await starting
      } catch (error) {
        if (current === starting) current = undefined
        throw error
      }
    },
    async stop({ drainMs } = {}) {
      const stopped = current
      await stopped?.then(
        each => each.stop({ timeoutMs: drainMs }),
        () => {},
      )
      if (current === stopped) current = running = undefined
    },
    [Symbol.asyncDispose]: () => worker.stop(),
  }
  return worker
}

/** Refuses options that could only fail later. */
function checkWorker(options: WorkerOptions): CheckedOptions {
  const { concurrency = 16, leaseMs = 15_000, pollMs = 2_000, drainMs = 30_000 } = options
  checkWhole('concurrency', concurrency, 1, 10_000)
  checkWhole('leaseMs', leaseMs, 50)
  checkWhole('pollMs', pollMs, 1)
  checkWhole('drainMs', drainMs, 0)
  return { ...options, concurrency, leaseMs, pollMs, drainMs }
}

interface CheckedOptions extends WorkerOptions {
  readonly concurrency: number
  readonly leaseMs: number
  readonly pollMs: number
  readonly drainMs: number
}

interface WorkerService extends ServiceDefinition {
  readonly owner: string
}

/** What a worker has while it runs. */
interface Running {
  readonly handlers: ReadonlyMap<number, Handler>
  readonly work: Work
  readonly claims: Claims
  readonly duties: Duties
}

function workerService(
  parts: WorkerParts,
  options: CheckedOptions,
  share: ConcurrencyShare | undefined,
): WorkerService {
  const { log, hints, scheduler } = parts
  const { concurrency, leaseMs, node } = options
  const owner = newOwner(log)
  /** Aborts when outcomes are no longer stored. */
  const lost = new AbortController()
  const releases: (() => void)[] = []
  let running: Running | undefined
  let dispatching: Host | undefined

  return {
    owner,
    timeoutMs: options.drainMs,
    async start(stopping) {
      const handlers = await parts.register(options.handlers)
      for (const handler of new Set(handlers.values())) await handler.init?.()
      await enter(handlers)
      if (stopping.aborted) return
      running = run(handlers, stopping)
      releases.push(...listen(running), parts.workers.add(running.claims))
      running.duties.lookSoon()
      running.claims.claimSoon()
      dispatching = openHost(parts.consumers, { hosted: () => dispatcherOf(parts, leaseMs), node: undefined, leaseMs })
      await dispatching.start()
      releases.push(parts.tend())
    },
    async stop(cutOff) {
      for (const release of releases) release()
      await dispatching?.stop()
      if (running !== undefined) {
        await Promise.all([running.claims.stop(), running.duties.stop()])
        await Promise.all([running.work.stop(cutOff), scheduler.drain(owner, cutOff)])
      }
      lost.abort()
      // If the database is away, other workers take over when the heartbeat is too old.
      await removeWorker(log, owner).catch(() => {})
      hints.ready()
    },
  }

  function enter(handlers: ReadonlyMap<number, Handler>): Promise<void> {
    return enterWorker(log, { owner, node, leaseMs, concurrency, routes: [...handlers.keys()] })
  }

  /** Work, claims and duties, which call each other. */
  function run(handlers: ReadonlyMap<number, Handler>, stopping: AbortSignal): Running {
    const about = { owner, handlers, leaseMs, backoff, onFailure }
    const work = openWork(parts, {
      ...{ handlers, concurrency, share, leaseMs, stopping },
      completer: openCompleter(parts, { owner, graceMs: leaseMs, lost: lost.signal }),
      onRoom: () => claims.onRoom(),
      onDue: inMs => duties.lookIn(inMs),
      onCodeEnded: () => duties.lookSoon(),
    })
    const claims = openClaims(log, { ...about, graceMs: leaseMs, work })
    const duties = openDuties(parts, {
      ...{ ...about, pollMs: options.pollMs, work },
      claimSoon: claims.claimSoon,
      enter: () => enter(handlers),
    })
    return { handlers, work, claims, duties }

    function onFailure(error: unknown): void {
      if (!isRillflowError(error, 'store_closed'))
        log.telemetry.log.warn({ schema: log.schema, owner, error }, 'a worker could not look for work')
      else for (const loop of [claims, duties]) void loop.stop()
    }
  }

  function listen({ handlers, work, claims, duties: looks }: Running): (() => void)[] {
    const all = [...handlers.values()]
    // New executions of some handlers need more than a claim: they are for later, or their lane is not assigned yet.
    const isDutyHinted = duties.some(duty => all.some(handler => duty.isHintedBy?.(handler, options.pollMs)))
    const lookAndClaim = (): void => {
      looks.lookSoon()
      claims.claimSoon()
    }
    return [
      hints.onReady(isDutyHinted ? lookAndClaim : claims.claimSoon),
      hints.onChanged(lookAndClaim),
      hints.onEnded(looks.onEnded),
      // An execution that has ended makes room for another one of its handler.
      ...(all.some(handler => handler.concurrency !== undefined) ? [hints.onEnded(claims.claimSoon)] : []),
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
}

/** The dispatcher, if this store has handlers. It is taken over after the same lease as executions. */
function dispatcherOf(
  { consumers }: WorkerParts,
  leaseMs: number,
): ReturnType<Parameters<typeof openHost>[1]['hosted']> {
  const found = consumers.get(dispatcherName)
  if (found === undefined) return []
  const { name, kind, startFrom } = found
  return [{ name, kind, startFrom, leaseMs, run: hold => follow(consumers, { ...found, leaseMs }, hold) }]
}
