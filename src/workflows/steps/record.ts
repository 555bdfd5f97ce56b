/**
 * Recording the ends of calls, in the order in which they come: calls that end while a statement is running go together into
 * the next. With each go the ends that were delivered to the handler before and are not stored yet, so that no consequence
 * is stored without its cause.
 */
import { isInterruption } from '../../consumers/run/failure.ts'
import { sleep } from '../../core/abort.ts'
import { coalesce } from '../../core/coalesce.ts'
import { isRillflowError } from '../../core/errors.ts'
import { delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import type { Log } from '../../events/log.ts'
import type { Claimed } from '../work/claim.ts'
import type { Call, End, Replay } from './replay.ts'
import { type CallRow, deliveredRow, markStored, storeCalls } from './stored-calls.ts'

export interface Recorder {
  /** Whether it has stored anything. */
  readonly hasStored: boolean
  /**
   * Resolves to whether it counts: false if the execution was taken over. While the database is away it waits, because
   * the work has been done. With `alongside`, both are one transaction, which may be tried again.
   */
  record(call: Call, end: End, alongside?: Alongside): Promise<boolean>
  /** The same in a transaction of the caller's, which calls `committed` after its commit. */
  recordIn(tx: Transaction, call: Call, end: End): Promise<{ committed(): void } | undefined>
}

export type Alongside = (tx: Transaction) => Promise<unknown>

export interface RecordParts {
  readonly log: Log
  readonly execution: Claimed
  /** Aborts when the run is over. */
  readonly signal: AbortSignal
}

interface EndedCall {
  readonly call: Call
  readonly end: End
}

const maxBatchBytes = 4 * 1024 * 1024
const retryBackoff = { baseMs: 20, factor: 2, maxMs: 2_000, jitter: 0.5 }

export function openRecorder({ log, execution, signal }: RecordParts, replay: Replay): Recorder {
  const calls = coalesce<EndedCall, boolean>({
    name: 'step',
    async send(entries) {
      const { track } = replay
      const rows = rowsOf(entries)
      const held = await storeCalls(log, log.database, execution, track, rows)
      if (held) committed(track, rows)
      return entries.map(() => held)
    },
    afterFailure(error, _, attempt) {
      const isPassing = isInterruption(error) || isRillflowError(error, 'serialization_failed')
      if (!isPassing || signal.aborted) return 'fail'
      log.telemetry.log.warn({ schema: log.schema, executionId: execution.id, error }, 'A step is not recorded yet.')
      return { sendAgainInMs: delay(retryBackoff, attempt) }
    },
    sizeOf: ({ end }) => ({ count: 1, bytes: end.result?.length ?? 0 }),
    maxBatch: { count: 1_000, bytes: maxBatchBytes },
    // The steps have been done: the calls of one handler limit their number, and a refusal would lose them.
    maxQueued: { count: 10_000, bytes: Number.POSITIVE_INFINITY },
    signal,
  })
  let hasStored = false

  return {
    get hasStored() {
      return hasStored
    },
    async record(call, end, alongside) {
      if (alongside !== undefined) return persist(() => recordWith(call, end, alongside))
      return calls.submit({ call, end })
    },
    recordIn: storeIn,
  }

  function recordWith(call: Call, end: End, alongside: Alongside): Promise<boolean> {
    return log.database.transaction(async tx => {
      const storing = await storeIn(tx, call, end)
      if (storing === undefined) return false
      await alongside(tx)
      tx.afterCommit(storing.committed)
      return true
    })
  }

  async function storeIn(tx: Transaction, call: Call, end: End): ReturnType<Recorder['recordIn']> {
    const { track } = replay
    const rows = rowsOf([{ call, end }])
    const isHeld = await storeCalls(log, tx, execution, track, rows)
    return isHeld ? { committed: () => committed(track, rows) } : undefined
  }

  function rowsOf(entries: readonly EndedCall[]): CallRow[] {
    const ended = entries.map(({ call, end }): CallRow => {
      const { state, result, position, at = replay.timeNow() } = end
      // Its turn is written with the next record: until it is delivered nothing follows from it.
      return { call, state, result, position, at, turn: undefined }
    })
    return [...replay.unstored().map(deliveredRow), ...ended]
  }

  function committed(track: number, rows: readonly CallRow[]): void {
    hasStored = true
    markStored(track, rows)
  }

  async function persist(store: () => Promise<boolean>): Promise<boolean> {
    for (let tries = 1; ; tries++) {
      try {
        return await store()
      } catch (error) {
        const isPassing = isInterruption(error) || isRillflowError(error, 'serialization_failed')
        if (!isPassing || signal.aborted) throw error
        log.telemetry.log.warn({ schema: log.schema, executionId: execution.id, error }, 'A step is not recorded yet.')
        await sleep(delay(retryBackoff, tries), { signal }).catch(() => {})
      }
    }
  }
}
