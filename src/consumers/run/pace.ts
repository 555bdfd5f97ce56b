/**
 * How many events to hand over at once, so that a batch takes about as long as it should: half of a lease or of the time
 * a handler has; embedded a moment, because nobody else gets to the database meanwhile.
 *
 *     unknown cost ──► 16 ──applied in time──► twice as many, up to batchSize
 *                       └──too long, or the lease was lost──► fewer, down to 1          stored in the row, for the next holder
 *
 * So a handler that is too slow for a whole batch is not tried with one by every runner in turn: without progress, for ever.
 */
import type { Database } from '../../database/database.ts'
import type { Consumer } from '../consumer.ts'
import { firstBatchLimit } from '../row.ts'

export interface Pace {
  /** The most events of the next batch. */
  limit(): number
  /** So many events took so long. */
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
      // Growing by doubling only: one quick batch of events that were nothing to do says little about the next.
      limit = Math.max(1, Math.min(batchSize, fits, Math.max(limit, events) * 2))
    },
    tooLong(events) {
      limit = Math.max(1, Math.floor(events / 2))
    },
  }
}
