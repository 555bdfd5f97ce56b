/**
 * The work of a worker: executions from their claim to their outcome. `worker.ts` starts and stops it, `duties.ts` has
 * its periodic work.
 *
 *     claim, dispatch ─► ready ─► running: attempt ─► complete ─► the next one of the lane, or free
 *           ▲                        │
 *           └── room, and ahead ─────┴── lost: taken over, cancelled ─► cut off, its outcome is not stored
 *
 * Guarantees:
 * - At most `concurrency` attempts run at once. While handlers are quick, more executions are claimed ahead, as many as are
 *   done in a tenth of a second; slow ones are left to workers that have time for them.
 * - Executions of one lane run one after the other: the next begins when the outcome of the one before it is stored.
 * - The database decides which executions are this worker's: an attempt that it does not name is cut off, and an execution
 *   that this worker does not know is released.
 *
 * What can fail: storing an outcome. It is stored as a failure. If that cannot be stored either, the execution is not
 * released, or it would run again and again: another worker takes it over when its time is over.
 */

import type { ConcurrencyShare } from '../../consumers/runners/concurrency.ts'
import { abortable, Cutoff, type Deferred, deferred, once, settledWithin } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import type { StoppingAttempt } from '../cancel/compensate.ts'
import { ExecutionLost } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { type AttemptParts, runAttempt } from './attempt.ts'
import { type Claimed, groupByLane } from './claim.ts'
import type { Completed, Completer } from './complete.ts'
import { type Outcome, refusedOutcome } from './outcome.ts'

export interface Work {
  /** How many more executions it takes now: those to run, and those ahead of that. */
  room(): number
  /** Whether it is time to claim more: many at once, or as soon as one can run. */
  wantsMore(): boolean
  /** Executions that were claimed, or that began when they were dispatched. */
  add(claimed: readonly Claimed[]): void
  /** From now until the function returned is called, executions under this fence may be stored that are not added yet. */
  expect(fence: number): () => void
  /** Begins the executions that can begin, when others have made room. */
  fill(): void
  /**
   * Compares the stored executions of this worker with those it has. `stored` has the fence of each execution, read
   * after `lookedAt`. Attempts of other executions are cut off; returned are those that this worker does not know.
   */
  compare(stored: ReadonlyMap<string, number>, lookedAt: number): Map<string, number>
  /** Of these attempts, those whose code has ended. When that comes true of one of the others, `onCodeEnded` is called. */
  ended(attempts: readonly StoppingAttempt[]): StoppingAttempt[]
  /** Resolves when no attempt is running and the outcomes of all are stored. */
  whenStored(): Promise<void>
  /** Releases executions that have not begun, and waits for the others until `cutOff` aborts, then cuts them off. */
  stop(cutOff: AbortSignal): Promise<void>
}

export interface WorkOptions {
  /** By route. */
  readonly handlers: ReadonlyMap<number, Handler>
  readonly completer: Completer
  readonly concurrency: number
  /** The part of a limit that it shares with other workers. */
  readonly share?: ConcurrencyShare | undefined
  readonly leaseMs: number
  /** Aborts when the worker begins to stop: from then on no attempt begins. */
  readonly stopping: AbortSignal
  /** Called when there is room for more. */
  onRoom(): void
  /** Called when an execution is due after so long. */
  onDue(inMs: number): void
  /** Called when the code of an attempt that was to stop has ended. */
  onCodeEnded(): void
}

/** The most executions that are claimed ahead, while handlers are quick. */
const maxAhead = 500
/** Handlers that take less on average are quick. */
const quickMs = 20

/** Executions of one lane, or one alone, that run here. */
interface Group {
  readonly executions: readonly Claimed[]
  readonly cutoff: Cutoff
}

export function openWork(parts: AttemptParts, options: WorkOptions): Work {
  const { log } = parts
  const { handlers, completer, concurrency, share, leaseMs, stopping } = options
  /** Groups that have not begun, in the order in which they begin. */
  let ready: Claimed[][] = []
  /** By the id of the first execution of each group. */
  const running = new Map<string, Group>()
  /** Groups until the outcome of their last execution is stored. */
  const unstored = new Set<Promise<void>>()
  /** Executions whose outcome is being stored, or could not be, and since when. */
  const storing = new Map<string, number>()
  /** Fences of calls that have not been answered. */
  const expected = new Set<number>()
  const code = countRunningCode(options.onCodeEnded)
  const interruptions = countInterruptions()
  let averageMs = quickMs
  let idle: Deferred<void> | undefined

  const work: Work = {
    room: () => (stopping.aborted ? 0 : places() + ahead() - running.size - ready.length),
    wantsMore: () => ready.length <= ahead() / 2 && work.room() > 0,
    add(claimed) {
      if (stopping.aborted) return void release(claimed)
      ready.push(...groupByLane(claimed))
      fill()
    },
    expect(fence) {
      expected.add(fence)
      return () => expected.delete(fence)
    },
    fill,
    compare,
    ended: code.ended,
    async whenStored() {
      while (unstored.size > 0) await Promise.all(unstored)
    },
    async stop(cutOff) {
      const unstarted = ready.map(([head]) => head!)
      ready = []
      await release(unstarted)
      await abortable(whenIdle(), cutOff).catch(() => {})
      for (const { cutoff } of running.values()) cutoff.cut(new Error('The worker was stopped.'))
      await settledWithin(whenIdle(), 1_000)
      await settledWithin(completer.drain(), 5_000)
      running.clear()
    },
  }
  return work

  /** How many attempts may run at once, by the worker's own limit and the one it shares. */
  function places(): number {
    return share === undefined ? concurrency : Math.min(concurrency, running.size + share.free())
  }

  /** How many executions are claimed ahead: as many as are done in a tenth of a second. */
  function ahead(): number {
    return averageMs < quickMs ? Math.min(maxAhead, Math.floor((100 * concurrency) / Math.max(averageMs, 0.1))) : 0
  }

  function fill(): void {
    while (running.size < places() && ready.length > 0 && !stopping.aborted) {
      const executions = ready.shift()!
      const group: Group = { executions, cutoff: new Cutoff() }
      const id = executions[0]!.id
      running.set(id, group)
      share?.acquire()
      const free = once(async () => {
        share?.release()
        if (running.get(id) !== group) return
        running.delete(id)
        if (running.size === 0) idle?.resolve()
        fill()
        if (ready.length <= ahead() / 2) options.onRoom()
      })
      const stored = runGroup(group, free)
        .finally(free)
        .finally(() => unstored.delete(stored))
      unstored.add(stored)
    }
  }

  /** One after the other: the next execution begins when the outcome of the one before it is stored. */
  async function runGroup({ executions, cutoff }: Group, free: () => void): Promise<void> {
    for (const [at, execution] of executions.entries()) {
      if (isLost(cutoff)) return
      storing.delete(execution.id)
      const handler = handlers.get(execution.route)!
      const outcome = await run(execution, handler, cutoff)
      if (isLost(cutoff)) return
      const next = continues(outcome) ? executions[at + 1]?.id : undefined
      storing.set(execution.id, performance.now())
      // Its code has ended: another execution may begin while its outcome is stored.
      if (executions.length === 1 && completer.size < maxAhead) free()
      const completed = await store(outcome, handler, next).catch((error: unknown) => {
        log.telemetry.log.error({ schema: log.schema, executionId: execution.id, error }, 'An outcome was not stored.')
        return 'unstored' as const
      })
      if (completed !== 'unstored') storing.delete(execution.id)
      if (completed !== 'continued') return
    }
  }

  async function run(execution: Claimed, handler: Handler, cutoff: Cutoff): Promise<Outcome> {
    const startedAt = performance.now()
    const about = { cutoff, leaseMs, interruptions: interruptions.of(execution.id) }
    const outcome = await code.run(execution.id, leave => runAttempt(parts, execution, handler, { ...about, leave }))
    interruptions.note(execution.id, outcome)
    averageMs += (performance.now() - startedAt - averageMs) / 20
    return outcome
  }

  /** Whether the next execution of the lane may begin on this worker. */
  function continues({ kind, parksLane = false }: Outcome): boolean {
    return kind === 'done' && !parksLane && !stopping.aborted
  }

  /** An outcome that is refused is stored as a failure; a failure, if need be, without the events that report it. */
  async function store(outcome: Outcome, handler: Handler, next?: string): Promise<Completed> {
    try {
      const completed = await completer.complete(outcome, next)
      // A suspended execution may wait for an event that only a look at the duties finds.
      if (outcome.delayMs !== undefined || outcome.kind === 'suspend') options.onDue(outcome.delayMs ?? 0)
      return completed
    } catch (error) {
      await store(await refusedOutcome(parts, outcome, handler, error), handler)
      return 'refused'
    }
  }

  // [claim-9]
  function compare(stored: ReadonlyMap<string, number>, lookedAt: number): Map<string, number> {
    // An execution that was added after the look may not be in it.
    const isOurs = ({ id, fence, claimedAt }: Claimed): boolean => stored.get(id) === fence || claimedAt >= lookedAt
    for (const [id, group] of running) if (!group.executions.some(isOurs)) lose(id, group)
    // An attempt has its timeout and a lease from its claim on: begun much later, it would be taken for lost.
    const isStale = ([head]: readonly Claimed[]): boolean => lookedAt - head!.claimedAt > leaseMs / 2
    if (ready.some(isStale)) averageMs = Math.max(averageMs, quickMs)
    ready = ready.filter(executions => executions.some(isOurs) && !isStale(executions))
    for (const [id, since] of storing) if (since < lookedAt && !stored.has(id)) storing.delete(id)
    const known = new Set(
      [...ready, ...[...running.values()].map(group => group.executions)].flat().map(({ id }) => id),
    )
    return new Map([...stored].filter(([id, fence]) => !known.has(id) && !storing.has(id) && !expected.has(fence)))
  }

  function lose(id: string, { cutoff, executions: [first] }: Group): void {
    const handler = handlers.get(first!.route)?.name ?? ''
    cutoff.cut(new ExecutionLost({ handler, executionId: first!.id }))
    running.delete(id)
    if (running.size === 0) idle?.resolve()
  }

  async function release(unstarted: readonly Claimed[]): Promise<void> {
    const outcome = { kind: 'release', activity: 'released', detail: 'stopped' } as const
    const base = { runningMs: 0, emits: [], hasSteps: false }
    const all = unstarted.map(execution => completer.complete({ ...outcome, ...base, execution }).catch(() => {}))
    await settledWithin(Promise.all(all), 5_000)
  }

  async function whenIdle(): Promise<void> {
    while (running.size > 0) {
      idle = deferred<void>()
      await idle.promise
    }
  }
}

function isLost({ reason }: Cutoff): boolean {
  return isRillflowError(reason, 'execution_lost')
}

interface RunningCode {
  /** Runs an attempt; it calls `leave` with code that still runs when the attempt is no longer waited for. */
  run<T>(execution: string, attempt: (leave: (code: Promise<unknown>) => void) => Promise<T>): Promise<T>
  ended(attempts: readonly StoppingAttempt[]): StoppingAttempt[]
}

/**
 * The code of attempts that runs in this process. An attempt that is over may leave code that has not ended, because it did
 * not listen to its signal, or not yet. A compensation waits for that code, too.
 */
function countRunningCode(onEnded: () => void): RunningCode {
  const counts = new Map<string, number>()
  const awaited = new Set<string>()

  const begin = (id: string): void => void counts.set(id, (counts.get(id) ?? 0) + 1)
  const end = (id: string): void => {
    const left = counts.get(id)! - 1
    if (left > 0) counts.set(id, left)
    else {
      counts.delete(id)
      if (awaited.delete(id)) onEnded()
    }
  }

  return {
    async run(id, attempt) {
      begin(id)
      try {
        return await attempt(code => {
          begin(id)
          const ended = (): void => end(id)
          code.then(ended, ended)
        })
      } finally {
        end(id)
      }
    },
    ended: attempts =>
      attempts.filter(({ id }) => {
        const hasEnded = !counts.has(id)
        if (!hasEnded) awaited.add(id)
        return hasEnded
      }),
  }
}

/** The most executions whose interruptions are counted: other workers may have continued with the oldest. */
const maxCounted = 1_000

/** How often in a row executions were interrupted here because a database was away: the next try of each waits longer. */
function countInterruptions(): {
  of(executionId: string): number
  note(executionId: string, outcome: Pick<Outcome, 'detail'>): void
} {
  const counts = new Map<string, number>()
  return {
    of: id => counts.get(id) ?? 0,
    note(id, { detail }) {
      const count = counts.get(id) ?? 0
      counts.delete(id)
      if (detail !== 'interrupted') return
      counts.set(id, count + 1)
      if (counts.size > maxCounted) counts.delete(counts.keys().next().value!)
    },
  }
}
