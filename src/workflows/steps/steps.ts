/**
 * A handler's memory: what it did is remembered, what it waits for holds no worker, and it runs again from its top.
 *
 *     ctx.step, tx, start ─► run ─► recorded under the fence ─┐       the first result stands
 *     ctx.sleep, waitFor, child.settled ─► suspended ─► due or answered ─► run again, answered from memory
 *
 * Every call of the context has a kind, a name and a place in the order of calls; a run that comes to another call than the one
 * recorded is parked (`NonDeterministic`), because its memory would answer the wrong question. A wait is registered under the
 * workflow's row in the transaction that suspends the run, so no signal is missed. Suspension costs no try.
 *
 * What can fail: the run is somebody else's by now (`ExecutionLost`, nothing is recorded), a result is no JSON or too large,
 * an event that ended a wait is gone. A step that throws has failed for this attempt only.
 *
 * Here: steps, what is done once and remembered, by itself or together with writes to the database.
 */
import { InvalidOption, isRillflowError } from '../../core/errors.ts'
import { encodeJson } from '../../core/json.ts'
import type { Transaction } from '../../database/database.ts'
import { TransactionTimeout } from '../../database/errors.ts'
import { lendTransaction } from '../../database/handle.ts'
import { recordUndo, settleUndo, type UndoRequest } from '../cancel/undo.ts'
import { InvalidStepResult } from '../errors.ts'
import { hasIdledTooLong, idleLimit } from '../work/limits.ts'
import type { Attempt } from './attempt.ts'
import type { Call, End } from './replay.ts'

export interface StepOptions {
  /**
   * How to undo it, should the workflow be compensated: a handler registered with `flows.undo`, and data for it. Recorded before
   * the step is run.
   */
  undo?: UndoRequest | undefined
}

export async function step<T>(
  attempt: Attempt,
  name: string,
  run: () => T | Promise<T>,
  options: StepOptions = {},
): Promise<T> {
  checkRun(run)
  return attempt.call('step', name, call =>
    attempt.work(call, async () => {
      const beside = await prepareUndo(attempt, call, options)
      const end = doneWith(attempt, call, await run())
      await attempt.record(call, end, beside && (tx => beside(tx, end.result)))
      return end
    }),
  )
}

/** The fence is looked at last: whoever takes over must not wait for users' code. */
export async function transactionalStep<T>(
  attempt: Attempt,
  name: string,
  run: (tx: Transaction) => T | Promise<T>,
  options: StepOptions = {},
): Promise<T> {
  checkRun(run)
  const { log, signal } = attempt
  const limit = idleLimit(attempt.leaseMs)
  return attempt.call('tx', name, call =>
    attempt.work(call, async () => {
      const beside = await prepareUndo(attempt, call, options)
      const work = async (tx: Transaction): Promise<End> => {
        const end = doneWith(attempt, call, await lent(tx, run))
        const { committed } = await attempt.recordIn(tx, call, end)
        await beside?.(tx, end.result)
        tx.afterCommit(committed)
        return end
      }
      try {
        return await log.database.transaction(work, { signal, ...limit })
      } catch (error) {
        // That it took too long is its own fault, not the connection's.
        throw hasIdledTooLong(error) ? new TransactionTimeout({ timeoutMs: limit.idleMs }, error) : error
      }
    }),
  )
}

function checkRun(run: unknown): void {
  if (typeof run !== 'function')
    throw new InvalidOption({ option: 'run', reason: 'of a step must be a function that does it' })
}

async function lent<T>(tx: Transaction, run: (tx: Transaction) => T | Promise<T>): Promise<T> {
  const { handle, shut } = lendTransaction(tx)
  try {
    return await run(handle)
  } finally {
    shut()
  }
}

/** What it returns is done in the transaction that records the step's result, which may be tried again. */
async function prepareUndo(
  { log, execution }: Attempt,
  { kind, name }: Call,
  { undo }: StepOptions,
): Promise<((tx: Transaction, result: string | undefined) => Promise<unknown>) | undefined> {
  if (undo === undefined) return undefined
  const place = { executionId: execution.id, fence: execution.fence, kind, step: name }
  await recordUndo(log, log.database, place, undo)
  return (tx, result) => settleUndo(log, tx, place, result ?? 'null')
}

/** The handler gets what will be remembered, so that the first run sees what all others see. */
function doneWith({ log, handler, replay }: Attempt, { name }: Call, value: unknown): End {
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
