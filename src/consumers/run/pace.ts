/**
 * The number of events of the next batch, so that a batch takes about half of a lease or of the time limit of a
 * handler; much less on an embedded database, because no other call can use it meanwhile.
 */
import type { Database } from '../../database/database.ts'
import type { Consumer } from '../consumer.ts'

export interface Pace {
  /** The most events of the next batch. */
  limit(): number
  /** Reports that `events` took `ms`. */
  took(events: number, ms: number): void
  /** The batch was too much: less next time. */
  tooLong(events: number): void
}

const embeddedMs = 50

export function setPace(database: Database, consumer: Pick<Consumer, 'batchSize' | 'leaseMs' | 'timeoutMs'>): Pace {
  const { batchSize, leaseMs, timeoutMs = 30_000 } = consumer
  const most = Math.min(leaseMs, timeoutMs) / 2
  const targetMs = database.engine === 'pglite' ? Math.min(embeddedMs, most) : most
  // Embedded it starts small: the first batch is as unknown as a slow one.
  let limit = database.engine === 'pglite' ? Math.min(batchSize, 100) : batchSize
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
