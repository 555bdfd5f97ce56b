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
import { Cutoff } from '../../core/abort.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { cancelIn } from '../cancel/cancel.ts'
import { undoOutcome } from '../cancel/compensate.ts'
import { loadUndo } from '../cancel/undo.ts'
import { type AppendIn, type EmitLimits, prepareEmitted, type ReadResult, readResult } from '../emit.ts'
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
import { type HandlerContext, handlerContext } from '../steps/context.ts'
import { type HandlerRun, openHandlerRun } from '../steps/handler-run.ts'
import { loadCalls, mayHaveCalls } from '../steps/stored-calls.ts'
import { suspendedOutcome } from '../steps/waits.ts'
import { isTransition } from '../transition.ts'
import type { Claimed } from './claim.ts'
import { expiryOf, failureOutcome, type Outcome, type OutcomeBase, type OutcomeEnd, withinExpiry } from './outcome.ts'

/** The parts that run handlers. */
export interface AttemptParts {
  readonly log: Log
  readonly limits: EmitLimits
  readonly append: AppendIn
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

/** Runs one attempt, with its metrics and its span. */
export async function runAttempt(
  parts: AttemptParts,
  claimed: Claimed,
  handler: Handler,
  options: AttemptOptions,
): Promise<Outcome> {
  const { telemetry } = parts.log
  // One that was held was not ready before the one ahead of it ended.
  if (!claimed.isHeld) telemetry.observe('execution_queue_seconds', queuedMs(claimed, handler) / 1000, handler.name)
  const run = (): Promise<Outcome> => attempt(parts, claimed, handler, options)
  const outcome = telemetry.isTraced ? await traced(parts.log, claimed, handler, run) : await run()
  telemetry.observe('execution_run_seconds', outcome.runningMs / 1000, handler.name)
  telemetry.count('attempts_total', 1, handler.name)
  if (outcome.activity === 'failed') telemetry.count('attempt_failures_total', 1, handler.name)
  return outcome
}

/** A rank is the time in milliseconds, and ten seconds further for each step of priority. */
function queuedMs({ beyondRankMs, claimedAt }: Claimed, { priority }: Handler): number {
  const waitedMs = beyondRankMs === undefined ? 0 : beyondRankMs + priority * 10_000
  return Math.max(0, waitedMs + performance.now() - claimedAt)
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
interface RunningAttempt extends AttemptOptions {
  readonly parts: AttemptParts
  readonly handler: Handler
  /** With the batch that it joins, once that is loaded. */
  execution: Claimed
  /** When the execution expires, by `performance.now()`. */
  readonly expiresAt: number | undefined
  /** Whether the execution may have stored steps. */
  hasSteps: boolean
  /** Whether the handler's own code is running, so that an error comes from it. */
  isInHandler: boolean
}

async function attempt(
  parts: AttemptParts,
  claimed: Claimed,
  handler: Handler,
  options: AttemptOptions,
): Promise<Outcome> {
  const started = performance.now()
  const known = { expiresAt: expiryOf(claimed, handler), hasSteps: mayHaveCalls(claimed) }
  const running: RunningAttempt = { parts, handler, execution: claimed, ...options, ...known, isInHandler: false }
  const base = (): OutcomeBase => ({
    execution: running.execution,
    runningMs: performance.now() - started,
    emits: handler.definition.emits ?? [],
    hasSteps: running.hasSteps,
    expiresAt: running.expiresAt,
  })
  try {
    const end = await runToEnd(running)
    // In place: a suspended outcome learns its delay only when its waits are stored.
    return Object.assign(end, base())
  } catch (error) {
    // Cut off because its worker stops, which is not a failure of the handler.
    if (options.cutoff.isCut) return { ...base(), kind: 'release', activity: 'released', detail: 'stopped' }
    const failure = { handler, error, isThrown: running.isInHandler, interruptions: options.interruptions }
    return { ...base(), ...(await failureOutcome(parts, base(), failure)) }
  }
}

async function runToEnd(running: RunningAttempt): Promise<OutcomeEnd> {
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
  // No lane could be assigned: now the error says why.
  if (execution.lane === undefined) checkKey(handler, event)
  const input = handler.runsAs === 'join' ? joinedEvents(handler, execution) : event
  running.isInHandler = true
  const isSelective = handler.when !== undefined || handler.transition !== undefined
  if (isSelective && !(await isWanted(parts.log, handler, event))) return { kind: 'done', activity: 'skipped' }
  const read = await callHandler(running, input)
  if ('early' in read) return read.early
  const emitter = { handler: handler.name, event, emits: handler.definition.emits, ...placeOf(execution) }
  const emitted = await prepareEmitted(parts.log, emitter, read.emitted, parts.limits)
  const done = { kind: 'done', activity: 'completed', emitted } as const
  if (read.compensation === undefined) return { ...done, write: read.work }
  const { reason } = read.compensation
  const cancelled = { reason, compensate: true, except: execution.id }
  return { ...done, compensates: true, write: tx => cancelIn(parts.log, tx, execution.correlationId, cancelled) }
}

function refuseWornOut({ execution, handler, expiresAt = Number.POSITIVE_INFINITY }: RunningAttempt): void {
  const { crashes, isRejected } = execution
  if (isRejected) throw new ExecutionRejected({ handler: handler.name })
  if (crashes > maxCrashes) throw new WorkerCrashed({ handler: handler.name, crashes })
  if (expiresAt <= performance.now())
    throw new DeadlinePassed({ handler: handler.name, deadlineMs: handler.deadlineMs ?? 0 })
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

async function callHandler(running: RunningAttempt, input: unknown): Promise<Called> {
  running.isInHandler = true
  const invoked = await invoke(running, input)
  running.isInHandler = false
  if ('early' in invoked) return invoked
  const read = readResult(invoked.result)
  if ('reason' in read) throw new InvalidResult({ handler: running.handler.name, reason: read.reason })
  return read
}

type Invoked = { readonly early: OutcomeEnd } | { readonly result: unknown }

/**
 * Calls the handler, and waits until it returns or fails, its time is over, it is taken over, or it does nothing but wait.
 */
async function invoke(running: RunningAttempt, input: unknown): Promise<Invoked> {
  const { parts, execution, handler, cutoff: stopped, leaseMs, leave } = running
  const recorded = mayHaveCalls(execution) ? await loadCalls(parts.log, execution) : []
  const cutoff = new Cutoff()
  const { limitMs, late } = limitOf(running)
  const timer = parts.log.clock.setTimeout(() => cutoff.cut(late()), limitMs)
  stopped.onCut(() => cutoff.cut(stopped.reason))
  let run: HandlerRun | undefined
  let called: Promise<Invoked> | undefined
  let isOver = false
  try {
    return await new Promise<Invoked>((resolve, reject) => {
      cutoff.onCut(() => reject(cutoff.reason))
      // A handler that never uses its context needs no memory.
      const open = (): HandlerRun => {
        if (run !== undefined) return run
        run = openHandlerRun({ ...parts, execution, handler, leaseMs, signal: cutoff.signal }, recorded)
        if (isOver) run.close()
        earlyEnd(run).then(resolve, (error: unknown) => cutoff.cut(error))
        return run
      }
      if (cutoff.isCut) return
      if (recorded.length > 0) open()
      const context = handlerContext({ execution, handler, cutoff, open, opened: () => run })
      called = callAndSettle(handler, input, context, () => run?.settle())
      called.then(resolve, reject)
    })
  } catch (error) {
    if (!cutoff.isCut) throw error
    // A step that the handler has not awaited may still run when the handler returns.
    if (called !== undefined) leave(called.finally(() => run?.settle()))
    throw cutoff.reason
  } finally {
    isOver = true
    run?.close()
    if (run?.hasSteps) running.hasSteps = true
    timer.cancel()
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

async function callAndSettle(
  handler: Handler,
  input: unknown,
  context: HandlerContext,
  settle: () => Promise<void> | undefined,
): Promise<Invoked> {
  try {
    return { result: await handler.run(input, context as never) }
  } catch (error) {
    // Steps that still run are recorded, for the next attempt.
    await settle()
    throw error
  }
}

async function earlyEnd(run: HandlerRun): Promise<Invoked> {
  const { log, handler, execution } = run
  const end = await run.over
  if (end.kind === 'suspended') return { early: suspendedOutcome(run) }
  const { error } = end
  log.telemetry.log.warn(
    { schema: log.schema, handler: handler.name, executionId: execution.id, error },
    'An execution is parked, because its handler does not fit its recorded steps.',
  )
  return { early: { kind: 'park', activity: 'parked', detail: error.code, error: describeError(error) } }
}
