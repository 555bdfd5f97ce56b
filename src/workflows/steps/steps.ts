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
import { isRillflowError } from '../../core/errors.ts'
import { encodeJson } from '../../core/json.ts'
import { describe } from '../../core/options.ts'
import type { Transaction } from '../../database/database.ts'
import { TransactionTimeout } from '../../database/errors.ts'
import { lendTransaction } from '../../database/handle.ts'
import { recordUndo, settleUndo, type UndoRequest } from '../cancel/undo.ts'
import { InvalidStepResult } from '../errors.ts'
import { refusal } from '../handler.ts'
import { idleLimit, wasIdleTooLong } from '../work/complete.ts'
import type { HandlerRun } from './handler-run.ts'
import type { Call, End } from './replay.ts'

export interface StepOptions<Data = unknown> {
  /** How to undo it, if the workflow is compensated: an undo and data for it. Recorded before the step runs. */
  undo?: UndoRequest<Data> | undefined
}

export async function step<T>(
  run: HandlerRun,
  name: string,
  doIt: () => T | Promise<T>,
  options: StepOptions = {},
): Promise<T> {
  checkFunction(doIt)
  return run.call('step', name, call =>
    run.work(call, async () => {
      const alongside = await prepareUndo(run, call, options)
      const end = doneWith(run, call, await doIt())
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
  options: StepOptions = {},
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
  { undo }: StepOptions,
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
