/**
 * The number of events of the next batch, so that a batch takes about half of a lease or of the time limit of a
 * handler; much less on an embedded database, because no other call can use it meanwhile.
 *
 *     unknown cost ──► 16 ──applied in time──► twice as many, up to batchSize
 *                       └──too long, or the lease was lost──► fewer, down to 1      stored in the row, for the next holder
 *
 * So a handler that is too slow for a whole batch makes progress, also if each batch has another runner.
 */
import type { Database } from '../../database/database.ts'
import type { Consumer } from '../consumer.ts'
import { firstBatchLimit } from '../row.ts'

export interface Pace {
  /** The most events of the next batch. */
  limit(): number
  /** Reports that `events` took `ms`. */
  took(events: number, ms: number): void
  /** The batch was too much: less next time. */
  tooLong(events: number): void
}

const embeddedMs = 50

/** `known`: the limit that earlier holders have come to. */
export function setPace(
  database: Database,
  consumer: Pick<Consumer, 'batchSize' | 'leaseMs' | 'timeoutMs'>,
  known: number = firstBatchLimit,
): Pace {
  const { batchSize, leaseMs, timeoutMs = 30_000 } = consumer
  const most = Math.min(leaseMs, timeoutMs) / 2
  const targetMs = database.engine === 'pglite' ? Math.min(embeddedMs, most) : most
  let limit = Math.max(1, Math.min(batchSize, known))
  return {
    limit: () => limit,
    took(events, ms) {
      if (events === 0) return
      const fits = Math.floor((targetMs * events) / Math.max(ms, 0.01))
      // It grows by doubling only: one quick batch of events without work says little about the next.
      limit = Math.max(1, Math.min(batchSize, fits, Math.max(limit, events) * 2))
    },
    tooLong(events) {
      limit = Math.max(1, Math.floor(events / 2))
    },
  }
}
