/**
 * One attempt: the handler is called with its event, and its result or its error becomes an outcome. Nothing is stored
 * here, except the steps of the handler while it runs.
 *
 *     claimed ─► refused: worn out, gone, undecodable ──────────────────────────────────► failed
 *            └─► invoke ──┬── returned ─► its events, checked ──────────────────────────► completed
 *                         ├── threw, or its time is over ─► retry or dead letter ───────► failed
 *                         ├── waits for a timer, a signal, a child ─────────────────────► suspended
 *                         └── the worker stops, or another one has taken over ──────────► released
 *
 * Code that has not returned in time, or was taken over, is no longer waited for: its result does not count. The worker
 * is given that code (`leave`), because a compensation waits for its end.
 */

import { describeError } from '../../consumers/run/failure.ts'
import { Cutoff, type Deferred, deferred } from '../../core/abort.ts'
import { type Awaitable, isPromise } from '../../core/core.ts'
import { elapsedMs } from '../../core/host.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { cancelIn } from '../cancel/cancel.ts'
import { undoOutcome } from '../cancel/compensate.ts'
import { loadUndo } from '../cancel/undo.ts'
import { type AppendIn, type EmitLimits, type Emitted, prepareEmitted, type ReadResult, readResult } from '../emit.ts'
import {
  DeadlinePassed,
  EventGone,
  EventUndecodable,
  ExecutionRejected,
  ExecutionTimeout,
  InvalidResult,
  WorkerCrashed,
} from '../errors.ts'
import type { Handler } from '../handler.ts'
import { joinedEvents, placeOf, withJoin } from '../joins/join.ts'
import { type ContextParts, handlerContext } from '../steps/context.ts'
import { type HandlerRun, openHandlerRun } from '../steps/handler-run.ts'
import type { Recorded } from '../steps/replay.ts'
import { loadCalls, mayHaveCalls } from '../steps/stored-calls.ts'
import { suspendedOutcome } from '../steps/waits.ts'
import { isTransition } from '../transition.ts'
import { type Claimed, withEvent } from './claim.ts'
import { expiryOf, failureOutcome, type Outcome, type OutcomeBase, type OutcomeEnd, withinExpiry } from './outcome.ts'

/** The parts that run handlers. */
export interface AttemptParts {
  readonly log: Log
  readonly limits: EmitLimits
  readonly append: AppendIn
  /** Whether calls that are not recorded are left unanswered, as a wait is: see `steps/rehearsal.ts`. Default false. */
  readonly isRehearsal?: boolean | undefined
}

export interface AttemptOptions {
  /** Cut when the worker has to stop at once, or the execution was taken over. */
  readonly cutoff: Cutoff
  /** How long without a heartbeat until other workers take over. */
  readonly leaseMs: number
  /** How often in a row the execution was interrupted on this worker because a database was away. */
  readonly interruptions: number
  /** Called with code that still runs when the attempt is no longer waited for. */
  readonly leave: (running: Promise<unknown>) => void
}

/** How many workers may die while they run one event, before the event is taken for the cause. */
export const maxCrashes = 3

/** Runs one attempt, with its metrics and its span. A handler that does not wait is done in the same turn. */
export function runAttempt(
  parts: AttemptParts,
  claimed: Claimed,
  handler: Handler,
  options: AttemptOptions,
): Awaitable<Outcome> {
  const { telemetry } = parts.log
  // One that was held was not ready before the one ahead of it ended.
  if (!claimed.isHeld) telemetry.observe('execution_queue_seconds', queuedMs(claimed, handler) / 1000, handler.name)
  const running = new RunningAttempt(parts, claimed, handler, options)
  const outcome = telemetry.isTraced ? traced(parts.log, claimed, handler, async () => running.run()) : running.run()
  return isPromise(outcome)
    ? outcome.then(own => counted(parts.log, handler, own))
    : counted(parts.log, handler, outcome)
}

function counted({ telemetry }: Log, { name }: Handler, outcome: Outcome): Outcome {
  telemetry.observe('execution_run_seconds', outcome.runningMs / 1000, name)
  telemetry.count('attempts_total', 1, name)
  if (outcome.activity === 'failed') telemetry.count('attempt_failures_total', 1, name)
  return outcome
}

/** A rank is the time in milliseconds, and ten seconds further for each step of priority. */
function queuedMs({ beyondRankMs, claimedAt }: Claimed, { priority }: Handler): number {
  const waitedMs = beyondRankMs === undefined ? 0 : beyondRankMs + priority * 10_000
  return Math.max(0, waitedMs + elapsedMs() - claimedAt)
}

function traced(
  { telemetry, schema }: Log,
  { id: executionId, attempt, correlationId, event }: Claimed,
  { name: handler, version }: Handler,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  const fields: Record<string, unknown> = { handler, version, executionId, attempt, correlationId }
  const causes = event === undefined ? [] : [event]
  return telemetry.span({ name: 'workflows.run', schema, causes, fields }, async span => {
    const outcome = await run()
    fields.outcome = outcome.activity
    if (outcome.activity === 'failed') span.fail(outcome.error)
    return outcome
  })
}

/** One attempt while it runs. */
class RunningAttempt {
  readonly parts: AttemptParts
  readonly handler: Handler
  readonly options: AttemptOptions
  /** With the batch that it joins, once that is loaded. */
  execution: Claimed
  /** When the execution expires, by `elapsedMs()`. */
  readonly expiresAt: number | undefined
  /** Whether the execution may have stored steps. */
  hasSteps: boolean
  /** Whether the code of the handler runs: its errors are its own then. */
  isInHandler = false
  readonly #started = elapsedMs()

  constructor(parts: AttemptParts, claimed: Claimed, handler: Handler, options: AttemptOptions) {
    this.parts = parts
    this.execution = claimed
    this.handler = handler
    this.options = options
    this.expiresAt = expiryOf(claimed, handler)
    this.hasSteps = mayHaveCalls(claimed)
  }

  run(): Awaitable<Outcome> {
    try {
      const end = this.execution.event === undefined ? this.#withEvent() : runToEnd(this)
      if (!isPromise(end)) return this.#outcome(end)
      return end.then(
        own => this.#outcome(own),
        (error: unknown) => this.#failed(error),
      )
    } catch (error) {
      return this.#failed(error)
    }
  }

  async #withEvent(): Promise<OutcomeEnd> {
    this.execution = await withEvent(this.parts.log, this.execution)
    return runToEnd(this)
  }

  /** In place: a suspended outcome learns its delay only when its waits are stored. */
  #outcome(end: OutcomeEnd): Outcome {
    return Object.assign(end, this.#base())
  }

  #base(): OutcomeBase {
    return {
      execution: this.execution,
      runningMs: elapsedMs() - this.#started,
      emits: this.handler.definition.emits ?? none,
      hasSteps: this.hasSteps,
      expiresAt: this.expiresAt,
    }
  }

  async #failed(error: unknown): Promise<Outcome> {
    const { options, handler, parts } = this
    const base = this.#base()
    // Cut off because its worker stops, which is not a failure of the handler.
    if (options.cutoff.isCut) return { ...base, kind: 'release', activity: 'released', detail: 'stopped' }
    const failure = { handler, error, isThrown: this.isInHandler, interruptions: options.interruptions }
    const end = await failureOutcome(parts, base, failure)
    return { ...this.#base(), ...end }
  }
}

const none: readonly string[] = []

/** Runs the handler up to its end, the end of its record or the limit, and stores nothing. Rejects if it throws. */
export async function rehearseAttempt(
  parts: AttemptParts,
  execution: Claimed,
  handler: Handler,
  limitMs: number,
): Promise<OutcomeEnd | undefined> {
  const cutoff = new Cutoff()
  const isLate = new Error('The handler was given up.')
  const timer = parts.log.clock.setTimeout(() => cutoff.cut(isLate), limitMs)
  const limits = { cutoff, leaseMs: limitMs, interruptions: 0, leave() {} }
  try {
    return await runToEnd(new RunningAttempt({ ...parts, isRehearsal: true }, execution, handler, limits))
  } catch (error) {
    if (error === isLate) return undefined
    throw error
  } finally {
    timer.cancel()
    cutoff.cut(isLate)
  }
}

function runToEnd(running: RunningAttempt): Awaitable<OutcomeEnd> {
  const { handler, execution } = running
  const isPlain = handler.runsAs !== 'join' && execution.undoId === undefined
  if (!isPlain || handler.transition !== undefined) return runPrepared(running)
  refuseWornOut(running)
  const event = readableEvent(execution)
  // No lane could be assigned: now the error says why.
  if (execution.lane === undefined) checkKey(handler, event)
  running.isInHandler = true
  if (handler.when?.(event) === false) return { kind: 'done', activity: 'skipped' }
  return handle(running, event, event)
}

/** The same for executions that need more than their event. */
async function runPrepared(running: RunningAttempt): Promise<OutcomeEnd> {
  const { parts, handler } = running
  const execution = handler.runsAs === 'join' ? await withJoin(parts.log, running.execution) : running.execution
  running.execution = execution
  refuseWornOut(running)
  if (execution.undoId !== undefined) {
    const undone = await callHandler(running, await loadUndo(parts.log, execution.undoId))
    if ('early' in undone) return undone.early
    if (undone.compensation !== undefined)
      throw new InvalidResult({ handler: handler.name, reason: 'compensate(…) is for handlers, not for undos' })
    return undoOutcome(parts, execution, handler, undone)
  }
  const event = readableEvent(execution)
  if (execution.lane === undefined) checkKey(handler, event)
  const input = handler.runsAs === 'join' ? joinedEvents(handler, execution) : event
  running.isInHandler = true
  if (!(await isWanted(parts.log, handler, event))) return { kind: 'done', activity: 'skipped' }
  return handle(running, input, event)
}

function handle(running: RunningAttempt, input: unknown, event: RecordedEvent): Awaitable<OutcomeEnd> {
  const called = callHandler(running, input)
  return isPromise(called) ? called.then(read => endOf(running, event, read)) : endOf(running, event, called)
}

function endOf(running: RunningAttempt, event: RecordedEvent, read: Called): Awaitable<OutcomeEnd> {
  if ('early' in read) return read.early
  const { parts, handler, execution } = running
  if (read === nothing) return { kind: 'done', activity: 'completed' }
  const emitter = { handler: handler.name, event, emits: handler.definition.emits, ...placeOf(execution) }
  const emitted = prepareEmitted(parts.log, emitter, read.emitted, parts.limits)
  const done = (own: Emitted | undefined): OutcomeEnd => {
    const end = { kind: 'done', activity: 'completed', emitted: own } as const
    if (read.compensation === undefined) return { ...end, write: read.work }
    const { reason } = read.compensation
    const cancelled = { reason, compensate: true, except: execution.id }
    return { ...end, compensates: true, write: tx => cancelIn(parts.log, tx, execution.correlationId, cancelled) }
  }
  return isPromise(emitted) ? emitted.then(done) : done(emitted)
}

function refuseWornOut({ execution, handler, expiresAt = Number.POSITIVE_INFINITY }: RunningAttempt): void {
  const { crashes, isRejected } = execution
  if (isRejected) throw new ExecutionRejected({ handler: handler.name })
  if (crashes > maxCrashes) throw new WorkerCrashed({ handler: handler.name, crashes })
  if (expiresAt <= elapsedMs()) throw new DeadlinePassed({ handler: handler.name, deadlineMs: handler.deadlineMs ?? 0 })
}

function readableEvent({ event, fault, position }: Claimed): RecordedEvent {
  if (event === undefined) throw new EventGone({ position })
  if (fault !== undefined) throw new EventUndecodable({ eventId: event.id, type: event.type }, fault)
  return event
}

function checkKey(handler: Handler, event: RecordedEvent): void {
  const key: unknown = handler.keyOf?.(event)
  if (handler.keyOf === undefined || typeof key === 'string') return
  throw new InvalidResult({ handler: handler.name, reason: `its key must be text, not ${String(key)}` })
}

async function isWanted(log: Log, handler: Handler, event: RecordedEvent): Promise<boolean> {
  if (handler.when?.(event) === false) return false
  return handler.transition === undefined || isTransition(log, handler.transition, event)
}

/** Early: the handler waits, or its code does not fit its recorded steps. */
type Called = { readonly early: OutcomeEnd } | ReadResult

/** The result of a handler that returns nothing. */
const nothing: ReadResult = { work: undefined, emitted: [] }

function callHandler(running: RunningAttempt, input: unknown): Awaitable<Called> {
  running.isInHandler = true
  const invoked = invoke(running, input)
  return isPromise(invoked) ? invoked.then(own => readInvoked(running, own)) : readInvoked(running, invoked)
}

function readInvoked(running: RunningAttempt, invoked: Invoked): Called {
  running.isInHandler = false
  if ('early' in invoked) return invoked
  if (invoked.result === undefined) return nothing
  const read = readResult(invoked.result)
  if ('reason' in read) throw new InvalidResult({ handler: running.handler.name, reason: read.reason })
  return read
}

type Invoked = { readonly early: OutcomeEnd } | { readonly result: unknown }

/** Calls the handler. One that returns without a promise, and has made no calls, needs neither a timer nor a memory. */
function invoke(running: RunningAttempt, input: unknown): Awaitable<Invoked> {
  const { execution, handler, options } = running
  if (mayHaveCalls(execution)) return invokeAgain(running, input)
  if (options.cutoff.isCut) throw options.cutoff.reason
  const invocation = new Invocation(running, [])
  const result: unknown = handler.run(input, handlerContext(invocation) as never)
  if (isPromise(result) || invocation.opened !== undefined) return invocation.wait(Promise.resolve(result))
  invocation.close()
  return { result }
}

/** Earlier runs of it have made calls, which are answered from memory. */
async function invokeAgain(running: RunningAttempt, input: unknown): Promise<Invoked> {
  const recorded = await loadCalls(running.parts.log, running.execution)
  if (running.options.cutoff.isCut) throw running.options.cutoff.reason
  const invocation = new Invocation(running, recorded)
  if (recorded.length > 0) invocation.open()
  const context = handlerContext(invocation) as never
  return invocation.wait((async () => running.handler.run(input, context))())
}

/**
 * One call of a handler: its context, its memory and its limits. It is over when the handler returns or fails, its time is
 * over, it is taken over, or it does nothing but wait.
 */
class Invocation implements ContextParts {
  readonly running: RunningAttempt
  /** The memory of the run: a handler that never uses its context needs none. */
  opened: HandlerRun | undefined
  readonly #recorded: readonly Recorded[]
  readonly #end: Deferred<Invoked> = deferred()
  #cutoff: Cutoff | undefined
  #isOver = false

  constructor(running: RunningAttempt, recorded: readonly Recorded[]) {
    this.running = running
    this.#recorded = recorded
  }

  get execution(): Claimed {
    return this.running.execution
  }

  get handler(): Handler {
    return this.running.handler
  }

  get cutoff(): Cutoff {
    this.#cutoff ??= new Cutoff()
    return this.#cutoff
  }

  open(): HandlerRun {
    if (this.opened !== undefined) return this.opened
    const { parts, execution, handler, options } = this.running
    const run = openHandlerRun(
      { ...parts, execution, handler, leaseMs: options.leaseMs, signal: this.cutoff.signal },
      this.#recorded,
    )
    this.opened = run
    if (this.#isOver) run.close()
    earlyEnd(run).then(this.#end.resolve, (error: unknown) => this.cutoff.cut(error))
    return run
  }

  async wait(called: Promise<unknown>): Promise<Invoked> {
    const { cutoff, running } = this
    const { cutoff: stopped, leave } = running.options
    const { limitMs, late } = limitOf(running)
    const timer = running.parts.log.clock.setTimeout(() => cutoff.cut(late()), limitMs)
    stopped.onCut(() => cutoff.cut(stopped.reason))
    cutoff.onCut(() => this.#end.reject(cutoff.reason))
    const settled = this.#settle(called)
    settled.then(this.#end.resolve, this.#end.reject)
    try {
      return await this.#end.promise
    } catch (error) {
      if (!cutoff.isCut) throw error
      // A step that the handler has not awaited may still run when the handler returns.
      leave(settled.finally(() => this.opened?.settle()))
      throw cutoff.reason
    } finally {
      this.close()
      if (this.opened?.hasSteps) running.hasSteps = true
      timer.cancel()
    }
  }

  /** From now on every call of the context is refused. */
  close(): void {
    this.#isOver = true
    this.opened?.close()
  }

  async #settle(called: Promise<unknown>): Promise<Invoked> {
    try {
      return { result: await called }
    } catch (error) {
      // Steps that still run are recorded, for the next attempt.
      await this.opened?.settle()
      throw error
    }
  }
}

/** The time of the attempt, or that of the whole execution, whichever ends first. */
function limitOf({ execution, handler, expiresAt }: RunningAttempt): { limitMs: number; late: () => Error } {
  const { name, timeoutMs, deadlineMs = 0 } = handler
  const limitMs = Math.max(1, timeoutMs - execution.ranMs)
  const leftMs = Math.max(1, withinExpiry(Number.POSITIVE_INFINITY, expiresAt))
  if (leftMs < limitMs) return { limitMs: leftMs, late: () => new DeadlinePassed({ handler: name, deadlineMs }) }
  return { limitMs, late: () => new ExecutionTimeout({ handler: name, timeoutMs }) }
}

async function earlyEnd(run: HandlerRun): Promise<Invoked> {
  const { log, handler, execution } = run
  const end = await run.over
  if (end.kind === 'suspended') return { early: suspendedOutcome(run) }
  const { error } = end
  if (!run.isRehearsal)
    log.telemetry.log.warn(
      { schema: log.schema, handler: handler.name, executionId: execution.id, error },
      'An execution is parked, because its handler does not fit its recorded steps.',
    )
  return { early: { kind: 'park', activity: 'parked', detail: error.code, error: describeError(error) } }
}
