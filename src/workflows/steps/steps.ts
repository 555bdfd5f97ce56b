/**
 * A handler's memory: its steps are recorded, its waits hold no worker, and it runs again from its top.
 *
 *     ctx.step, tx, start ─► run ─► recorded under the fence ─┐       the first result counts
 *     ctx.sleep, waitForEvent, child ─► suspended ─► due or answered ─► run again, answered from memory
 *
 * Here: steps, which run once and whose result is recorded, alone or together with writes to the database. `handler-run.ts`
 * is one run, `replay.ts` decides which call gets which record, `waits.ts` and `children.ts` suspend and wake.
 *
 * Guarantees:
 * - Every call of the context has a kind, a name and a place in the order of calls. A run that makes another call than the
 *   recorded one is parked (`NonDeterministic`), because the record would answer the wrong call.
 * - A wait is stored under the workflow's row in the transaction that suspends the run, so no signal is missed.
 *   Suspension does not count as an attempt.
 *
 * What can fail: the execution was taken over (`ExecutionLost`, nothing is recorded), a result is not JSON or too large, an
 * event that ended a wait is no longer in the log. A step that throws has failed for this attempt only.
 */
import { deferred, onAbort } from '../../core/abort.ts'
import type { Clock } from '../../core/clock.ts'
import { isRillflowError } from '../../core/errors.ts'
import { encodeJson } from '../../core/json.ts'
import { describe, refuseUnknownInside, refuseUnknownOptions } from '../../core/options.ts'
import { type Backoff, backoffNames, retry } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import { TransactionTimeout } from '../../database/errors.ts'
import { lendTransaction } from '../../database/handle.ts'
import { recordUndo, settleUndo, type UndoRequest } from '../cancel/undo.ts'
import { InvalidStepResult, StepTimeout } from '../errors.ts'
import { checkCount, refusal } from '../handler.ts'
import { idleLimit, wasIdleTooLong } from '../work/complete.ts'
import type { HandlerRun } from './handler-run.ts'
import type { Call, End } from './replay.ts'
import { isFinal, retryAfter } from './step-failure.ts'

export interface UndoOptions<Data = unknown> {
  /** How to undo it, if the workflow is compensated: an undo and data for it. Recorded before the step runs. */
  undo?: UndoRequest<Data> | undefined
}

export interface StepOptions<Data = unknown> extends UndoOptions<Data> {
  /** How long one call may take. One that hangs costs the step a retry, and not the attempt. Default: the time of the attempt. */
  timeoutMs?: number | undefined
  /** How often it is called again within this attempt. Default 0: a failure fails the attempt, which is retried as a whole. */
  retries?: number | undefined
  /** The waits between calls, during which the worker is held. Default 1 s, doubling to 30 s, half of it left to chance. */
  backoff?: Partial<Backoff> | undefined
  /** False for errors that no other call can fix. */
  isRetryable?: ((error: unknown) => boolean) | undefined
}

/** One call of a step's function. */
export interface StepCall {
  /** Aborts when the time of this call is over, or the run is. */
  readonly signal: AbortSignal
  /** Its number in this run, from 1. */
  readonly call: number
}

export async function step<T>(
  run: HandlerRun,
  name: string,
  doIt: (call: StepCall) => T | Promise<T>,
  options: StepOptions = {},
): Promise<T> {
  checkFunction(doIt)
  checkOptions(name, options)
  return run.call('step', name, call =>
    run.work(call, async () => {
      const alongside = await prepareUndo(run, call, options)
      const end = doneWith(run, call, await called(run, call, doIt, options))
      await run.record(call, end, alongside && (tx => alongside(tx, end.result)))
      return end
    }),
  )
}

/** The fence is checked last: a worker that takes over must not wait for users' code. */
export async function transactionalStep<T>(
  run: HandlerRun,
  name: string,
  doIt: (tx: Transaction) => T | Promise<T>,
  options: UndoOptions = {},
): Promise<T> {
  checkFunction(doIt)
  const { log, signal } = run
  const limit = idleLimit(run.leaseMs)
  return run.call('tx', name, call =>
    run.work(call, async () => {
      const alongside = await prepareUndo(run, call, options)
      const work = async (tx: Transaction): Promise<End> => {
        const end = doneWith(run, call, await lent(tx, doIt))
        const { committed } = await run.recordIn(tx, call, end)
        await alongside?.(tx, end.result)
        tx.afterCommit(committed)
        return end
      }
      try {
        return await log.database.transaction(work, { signal, ...limit })
      } catch (error) {
        // The step has taken too long; the connection is not to blame.
        throw wasIdleTooLong(error) ? new TransactionTimeout({ timeoutMs: limit.idleMs }, error) : error
      }
    }),
  )
}

/** Calls the function, and again as its options say. The calls and the time of the first are recorded with the end. */
function called<T>(
  { handler, log, signal }: HandlerRun,
  call: Call,
  doIt: (call: StepCall) => T | Promise<T>,
  { timeoutMs, retries = 0, backoff, isRetryable = () => true }: StepOptions,
): Promise<T> {
  const { clock } = log
  call.startedAt = clock.now()
  const withinTime = (number: number): Promise<T> => {
    call.calls = number
    return timed({ handler: handler.name, step: call.name, timeoutMs, clock, signal }, own =>
      doIt({ signal: own, call: number }),
    )
  }
  return retry(withinTime, {
    ...{ retries, clock, signal, backoff: { ...stepBackoff, ...backoff } },
    // An error that says when to come back, or that nothing helps, decides about the attempt.
    when: error => !isFinal(error) && retryAfter(error) === undefined && isRetryable(error),
  })
}

const stepBackoff: Backoff = { baseMs: 1_000, factor: 2, maxMs: 30_000, jitter: 0.5 }

interface TimedCall {
  readonly handler: string
  readonly step: string
  readonly timeoutMs: number | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** A call that goes on after its time has no effect. */
async function timed<T>(
  { handler, step, timeoutMs, clock, signal }: TimedCall,
  doIt: (signal: AbortSignal) => T | Promise<T>,
): Promise<T> {
  if (timeoutMs === undefined) return doIt(signal)
  const own = new AbortController()
  const release = onAbort(signal, () => own.abort(signal.reason))
  const over = deferred<never>()
  const timer = clock.setTimeout(() => {
    const error = new StepTimeout({ handler, step, timeoutMs })
    over.reject(error)
    own.abort(error)
  }, timeoutMs)
  try {
    return await Promise.race([doIt(own.signal), over.promise])
  } finally {
    timer.cancel()
    release()
  }
}

function checkOptions(name: string, options: StepOptions): void {
  const what = `Step "${name}"`
  refuseUnknownOptions(what, options, ['undo', 'timeoutMs', 'retries', 'backoff', 'isRetryable'])
  refuseUnknownInside(what, 'backoff', options.backoff, backoffNames)
  refuseUnknownInside(what, 'undo', options.undo, ['by', 'data'])
  if (options.timeoutMs !== undefined) checkCount(what, 'timeoutMs', options.timeoutMs, 1)
  if (options.retries !== undefined) checkCount(what, 'retries', options.retries, 0)
}

function checkFunction(doIt: unknown): void {
  if (typeof doIt !== 'function')
    throw refusal('A step', 'run', `needs a function as its second argument, not ${describe(doIt)}.`)
}

/** Revokes the transaction when the step has returned. */
async function lent<T>(tx: Transaction, doIt: (tx: Transaction) => T | Promise<T>): Promise<T> {
  const { handle, shut } = lendTransaction(tx)
  try {
    return await doIt(handle)
  } finally {
    shut()
  }
}

/** The function returned runs in the transaction that records the step's result, which may be tried again. */
async function prepareUndo(
  { log, execution }: HandlerRun,
  { kind, name }: Call,
  { undo }: UndoOptions,
): Promise<((tx: Transaction, result: string | undefined) => Promise<unknown>) | undefined> {
  if (undo === undefined) return undefined
  const place = { executionId: execution.id, fence: execution.fence, kind, step: name }
  await recordUndo(log, log.database, place, undo)
  return (tx, result) => settleUndo(log, tx, place, result ?? 'null')
}

/** The handler gets the value as it is recorded, so that the first run sees what later runs see. */
function doneWith({ log, handler, replay }: HandlerRun, { name }: Call, value: unknown): End {
  const at = replay.timeNow()
  if (value === undefined) return { state: 'done', value, at }
  try {
    const { text } = encodeJson(value, { what: name, root: 'result', maxBytes: log.maxEventBytes })
    return { state: 'done', value: JSON.parse(text), result: text, at }
  } catch (error) {
    if (!isRillflowError(error, 'invalid_event')) throw error
    const { path, reason } = error as unknown as { path: string; reason: string }
    throw new InvalidStepResult({ handler: handler.name, step: name, reason: `${path} ${reason}` }, error)
  }
}
