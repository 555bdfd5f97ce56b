/**
 * Retention: how long each kind of data that is no longer in use is kept. Events of streams in use, open dead letters and
 * events that a consumer has still to read are never old, whatever the options say.
 */
import { oldEntries } from '../audit/audit.ts'
import { closedDeadLetters } from '../consumers/dead-letters/row.ts'
import { checkWhole } from '../core/options.ts'
import { type PruneOptions, prune } from '../database/prune.ts'
import { oldVersions } from '../documents/retention.ts'
import type { Log } from '../events/log.ts'
import { oldIdempotencyKeys } from '../events/retention.ts'
import { pruneAttempts } from '../workflows/retention.ts'

/**
 * How long each kind is kept. `Infinity` keeps it for ever.
 *
 * @example
 * ```ts
 * const retention: RetentionOptions = { idempotencyKeysMs: 7 * 86_400_000 }
 * ```
 */
export interface RetentionOptions {
  /** The history of settled workflows: attempts, joins, undos, runs of schedules. Default 30 days. */
  attemptsMs?: number | undefined
  /** Idempotency keys: a repeat after that is a new append. Default 30 days. */
  idempotencyKeysMs?: number | undefined
  /** Dead letters, since they were replayed or resolved. Open ones are kept. Default 30 days. */
  deadLettersMs?: number | undefined
  /** The audit: the actions of operators, since they began. Default 90 days. */
  auditMs?: number | undefined
  /** Versions of documents, since they were replaced. The newest of each is kept. Default: for ever. */
  historyMs?: number | undefined
  /**
   * The events of streams, since the stream was archived or tombstoned. Its name stays taken: an append to it is refused
   * as tombstoned. A projection that is rebuilt afterwards does not see the events. Default: for ever.
   */
  archivedStreamsMs?: number | undefined
}

export type Retention = Readonly<Record<keyof RetentionOptions, number>>

const dayMs = 24 * 60 * 60_000
const monthMs = 30 * dayMs
const defaults: Retention = {
  attemptsMs: monthMs,
  idempotencyKeysMs: monthMs,
  deadLettersMs: monthMs,
  auditMs: 90 * dayMs,
  historyMs: Number.POSITIVE_INFINITY,
  archivedStreamsMs: Number.POSITIVE_INFINITY,
}

/** A thousand years, which an interval of the database can hold. */
const maxRetentionMs = 1_000 * 365 * 24 * 60 * 60_000

/** The options with their defaults, checked. */
export function retentionOf(options: RetentionOptions = {}): Retention {
  const given = Object.entries(options).filter(([, ms]) => ms !== undefined)
  for (const [name, ms] of given)
    if (ms !== Number.POSITIVE_INFINITY) checkWhole(`retention.${name}`, ms, 0, maxRetentionMs)
  return { ...defaults, ...Object.fromEntries(given) }
}

export type PruneKind = (options: Omit<PruneOptions, 'olderThanMs'>) => Promise<number>

/** How each kind is deleted, apart from archived streams (`archived-streams.ts`). */
export function pruneKinds(
  log: Log,
  retention: Retention,
): Record<'attempts' | 'idempotencyKeys' | 'deadLetters' | 'audit' | 'history', PruneKind> {
  const { database } = log
  const unlessForEver = (olderThanMs: number, work: (options: PruneOptions) => Promise<number>): PruneKind => {
    return async options => (olderThanMs === Number.POSITIVE_INFINITY ? 0 : work({ ...options, olderThanMs }))
  }
  return {
    attempts: unlessForEver(retention.attemptsMs, options => pruneAttempts(log, options)),
    idempotencyKeys: unlessForEver(retention.idempotencyKeysMs, options =>
      prune(database, oldIdempotencyKeys(log), options),
    ),
    deadLetters: unlessForEver(retention.deadLettersMs, options => prune(database, closedDeadLetters(log), options)),
    audit: unlessForEver(retention.auditMs, options =>
      prune(database, oldEntries({ schema: log.schema, clock: log.names.clock, later: log.names.later }), options),
    ),
    history: unlessForEver(retention.historyMs, async options => {
      let total = 0
      for (const old of await oldVersions({
        database,
        schema: log.schema,
        clock: log.names.clock,
        later: log.names.later,
      }))
        total += await prune(database, old, options)
      return total
    }),
  }
}
