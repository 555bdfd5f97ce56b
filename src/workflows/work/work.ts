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
 *   done in a tenth of a second; slow ones are left to workers that have time for them. None is while their events take too
 *   many bytes.
 * - Executions of one lane run one after the other: the next begins when the outcome of the one before it is stored.
 * - The database decides which executions are this worker's: an attempt that it does not name is cut off, and an execution
 *   that this worker does not know is released.
 *
 * What can fail: storing an outcome. It is stored as a failure. If that cannot be stored either, the execution is not
 * released, or it would run again and again: another worker takes it over when its time is over.
 */

import type { ConcurrencyShare } from '../../consumers/runners/concurrency.ts'
import { abortable, Cutoff, type Deferred, deferred, once, settledWithin } from '../../core/abort.ts'
import { type Awaitable, isPromise } from '../../core/core.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs, inNextTurn } from '../../core/host.ts'
import type { StoppingAttempt } from '../cancel/compensate.ts'
import { ExecutionLost } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { type AttemptParts, runAttempt } from './attempt.ts'
import { type Claimed, groupByLane } from './claim.ts'
import type { Completed, Completer } from './complete.ts'
import { EarlyPage } from './early.ts'
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
  /** Runs executions that have no rows yet; undefined if it has no room for them, or they would take too long. */
  runEarly(executions: readonly Claimed[]): EarlyPage | undefined
  /** The page is stored, and these executions have begun with it; undefined if it is not stored. */
  closeEarly(page: EarlyPage, begun: readonly string[] | undefined): void
  /** Forgets the ends of early executions that could not be stored: others have run them by now. */
  forgetEnds(): void
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
/** None is claimed ahead while the events of those that have not begun, or of outcomes on their way, take so much. */
const maxHeldBytes = 16 * 1024 * 1024
/** Handlers that take less on average are quick. */
const quickMs = 20
/** Handlers that take less on average run before anything of them is stored: the others of their page wait for them. */
const earlyMs = 5
/** Handlers that return at once are run one after the other for so long, before timers and sockets get a turn. */
const maxTurnMs = 10
/** The most ends of early executions that are kept to be stored later. */
const maxKept = 1_000

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
  /** Of each route, how long its handler takes on average. */
  const paces = new Map<number, number>()
  /** Ends of early executions that could not be stored: the work has been done. */
  const kept = new Map<string, Outcome>()
  let averageMs = quickMs
  /** How much the events in `ready` take. */
  let readyBytes = 0
  /** How much the outcomes that are being stored take, with their events. */
  let storingBytes = 0
  let idle: Deferred<void> | undefined

  const work: Work = {
    room: () => (stopping.aborted ? 0 : places() + ahead() - running.size - ready.length),
    wantsMore: () => ready.length <= ahead() / 2 && work.room() > 0,
    add(claimed) {
      if (stopping.aborted) return void release(claimed)
      makeReady(groupByLane(claimed))
      fill()
    },
    expect(fence) {
      expected.add(fence)
      return () => expected.delete(fence)
    },
    fill,
    runEarly,
    closeEarly,
    forgetEnds: () => kept.clear(),
    compare,
    ended: code.ended,
    async whenStored() {
      while (unstored.size > 0) await Promise.all(unstored)
    },
    async stop(cutOff) {
      // Those without rows are stored by the dispatcher, and released with all that is left.
      const unstarted = ready.map(([head]) => head!).filter(({ early }) => early?.isClosed ?? true)
      keepReady(() => false)
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
    if (readyBytes >= maxHeldBytes) return 0
    return averageMs < quickMs ? Math.min(maxAhead, Math.floor((100 * concurrency) / Math.max(averageMs, 0.1))) : 0
  }

  function makeReady(groups: readonly Claimed[][]): void {
    ready.push(...groups)
    for (const group of groups) readyBytes += bytesOf(group)
  }

  function keepReady(isKept: (group: readonly Claimed[]) => boolean): void {
    ready = ready.filter(isKept)
    readyBytes = ready.reduce((sum, group) => sum + bytesOf(group), 0)
  }

  function fill(): void {
    const from = elapsedMs()
    let hasEnded = false
    while (running.size < places() && ready.length > 0 && !stopping.aborted) {
      const next = ready.shift()!
      readyBytes -= bytesOf(next)
      hasEnded = begin(next) || hasEnded
      if (elapsedMs() - from < maxTurnMs) continue
      inNextTurn(fill)
      break
    }
    if (hasEnded && ready.length <= ahead() / 2) options.onRoom()
  }

  /** Returns whether its code has ended in the same turn, so that it takes no place. */
  function begin(executions: readonly Claimed[]): boolean {
    const group: Group = { executions, cutoff: new Cutoff() }
    const [first] = executions as [Claimed]
    const { id } = first
    const handler = handlers.get(first.route)!
    storing.delete(id)
    const outcome = run(first, handler, group.cutoff)
    if (!isPromise(outcome) && executions.length === 1 && first.early?.end(outcome) === true) return true
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
    const stored = runGroup(group, outcome, free)
      .finally(free)
      .finally(() => unstored.delete(stored))
    unstored.add(stored)
    return false
  }

  /** One after the other: the next execution begins when the outcome of the one before it is stored. */
  async function runGroup({ executions, cutoff }: Group, first: Awaitable<Outcome>, free: () => void): Promise<void> {
    for (const [at, execution] of executions.entries()) {
      if (isLost(cutoff)) return
      storing.delete(execution.id)
      const handler = handlers.get(execution.route)!
      const outcome = await (at === 0 ? first : run(execution, handler, cutoff))
      if (isLost(cutoff)) return
      const { early } = execution
      if (early !== undefined) {
        if (early.end(outcome)) return
        // Its code has ended: its row is stored soon, and its place is free.
        free()
        if (!(await early.isBegun(execution.id))) return
      }
      const next = continues(outcome) ? executions[at + 1]?.id : undefined
      storing.set(execution.id, elapsedMs())
      const bytes = execution.bytes + (outcome.emitted?.append?.bytes ?? 0)
      storingBytes += bytes
      // Its code has ended: another execution may begin while its outcome is stored.
      if (executions.length === 1 && completer.size < maxAhead && storingBytes < maxHeldBytes) free()
      const completed = await store(outcome, handler, next).catch((error: unknown) => {
        log.telemetry.log.error({ schema: log.schema, executionId: execution.id, error }, 'An outcome was not stored.')
        return 'unstored' as const
      })
      storingBytes -= bytes
      if (completed !== 'unstored') storing.delete(execution.id)
      if (completed !== 'continued') return
    }
  }

  function run(execution: Claimed, handler: Handler, cutoff: Cutoff): Awaitable<Outcome> {
    const known = takeKept(execution)
    if (known !== undefined) return { ...known, execution }
    const { id } = execution
    const startedAt = elapsedMs()
    const about = { cutoff, leaseMs, interruptions: interruptions.of(id), leave: code.leave(id) }
    const outcome = runAttempt(parts, execution, handler, about)
    if (!isPromise(outcome)) return ended(execution, outcome, startedAt)
    return code.during(id, outcome).then(own => ended(execution, own, startedAt))
  }

  function ended(execution: Claimed, outcome: Outcome, startedAt: number): Outcome {
    interruptions.note(execution.id, outcome)
    const tookMs = elapsedMs() - startedAt
    averageMs += (tookMs - averageMs) / 20
    const pace = paces.get(execution.route) ?? tookMs
    paces.set(execution.route, pace + (tookMs - pace) / 20)
    return outcome
  }

  function runEarly(executions: readonly Claimed[]): EarlyPage | undefined {
    if (stopping.aborted || ready.length > 0 || running.size >= places()) return undefined
    if (executions.some(({ route }) => (paces.get(route) ?? 0) > earlyMs)) return undefined
    const page = new EarlyPage(executions)
    for (const execution of executions) execution.early = page
    makeReady(executions.map(execution => [execution]))
    fill()
    return page
  }

  function closeEarly(page: EarlyPage, begun: readonly string[] | undefined): void {
    const ends = page.seal()
    page.close(begun)
    const hasBegun = new Set(begun)
    const isOver = ({ id, early }: Claimed): boolean => early === page && !hasBegun.has(id)
    keepReady(([head]) => !isOver(head!))
    for (const execution of page.executions) {
      const group = running.get(execution.id)
      if (group?.executions[0] === execution && isOver(execution)) lose(execution.id, group)
    }
    if (begun !== undefined) return
    for (const outcome of ends.values()) kept.set(outcome.execution.id, outcome)
    while (kept.size > maxKept) kept.delete(kept.keys().next().value!)
  }

  /** The end of the first attempt of this execution, if it came before it had a row. [early-4] */
  function takeKept({ id, route, attempt, isRetry }: Claimed): Outcome | undefined {
    if (kept.size === 0) return undefined
    const found = kept.get(id)
    kept.delete(id)
    return found?.execution.route === route && attempt === 1 && !isRetry ? found : undefined
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
    const isOurs = ({ id, fence, claimedAt, early }: Claimed): boolean =>
      stored.get(id) === fence ||
      claimedAt >= lookedAt ||
      (early !== undefined && (early.storedAt ?? lookedAt) >= lookedAt)
    for (const [id, group] of running) if (!group.executions.some(isOurs)) lose(id, group)
    // An attempt has its timeout and a lease from its claim on: begun much later, it would be taken for lost.
    const isStale = ([head]: readonly Claimed[]): boolean => lookedAt - head!.claimedAt > leaseMs / 2
    if (ready.some(isStale)) averageMs = Math.max(averageMs, quickMs)
    keepReady(executions => executions.some(isOurs) && !isStale(executions))
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

function bytesOf(group: readonly Claimed[]): number {
  let bytes = 0
  for (const execution of group) bytes += execution.bytes
  return bytes
}

function isLost({ reason }: Cutoff): boolean {
  return isRillflowError(reason, 'execution_lost')
}

interface RunningCode {
  /** Counts an attempt until it is over. */
  during<T>(execution: string, attempt: Promise<T>): Promise<T>
  /** For code that still runs when its attempt is no longer waited for. */
  leave(execution: string): (code: Promise<unknown>) => void
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
    async during(id, attempt) {
      begin(id)
      try {
        return await attempt
      } finally {
        end(id)
      }
    },
    leave: id => running => {
      begin(id)
      const ended = (): void => end(id)
      running.then(ended, ended)
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
