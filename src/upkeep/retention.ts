/**
 * How long what is of no more use is kept, and what each kind of it is. Events of streams in use, open dead letters and what
 * a consumer has still to read are never old, whatever is said here.
 */

import { closedDeadLetters } from '../consumers/dead-letters/row.ts'
import { checkWhole } from '../core/whole.ts'
import { type OldRows, type PruneOptions, prune } from '../database/prune.ts'
import { identifier, sql } from '../database/sql.ts'
import { historyName, historyTable } from '../documents/table.ts'
import type { Log } from '../events/log.ts'
import { pruneAttempts } from '../workflows/retention.ts'

/** How long each kind is kept. `Infinity` keeps it for ever. */
export interface RetentionOptions {
  /** The trace of settled workflows: attempts, joins, undos, runs of schedules. Default 30 days. */
  attemptsMs?: number | undefined
  /** Idempotency keys: a repeat after that is a new append. Default 30 days. */
  idempotencyKeysMs?: number | undefined
  /** Dead letters, since they were replayed or resolved; open ones stay. Default 30 days. */
  deadLettersMs?: number | undefined
  /** Versions of documents, since they were replaced; the newest of each stays. Default: for ever. */
  historyMs?: number | undefined
  /**
   * The events of streams, since they were archived or tombstoned. The stream's name stays taken: appending to it is refused
   * as tombstoned. A projection that is rebuilt afterwards does not see them. Default: for ever.
   */
  archivedStreamsMs?: number | undefined
}

export type Retention = Readonly<Record<keyof RetentionOptions, number>>

const month = 30 * 24 * 60 * 60_000
const defaults: Retention = {
  attemptsMs: month,
  idempotencyKeysMs: month,
  deadLettersMs: month,
  historyMs: Number.POSITIVE_INFINITY,
  archivedStreamsMs: Number.POSITIVE_INFINITY,
}

/** The options in full, checked. */
export function retentionOf(options: RetentionOptions = {}): Retention {
  const given = Object.entries(options).filter(([, ms]) => ms !== undefined)
  for (const [name, ms] of given) if (ms !== Number.POSITIVE_INFINITY) checkWhole(`retention.${name}`, ms, 0, longest)
  return { ...defaults, ...Object.fromEntries(given) }
}

/** A thousand years: what an interval of the database can hold, and anybody can wait for. */
const longest = 1_000 * 365 * 24 * 60 * 60_000

export type PruneKind = (options: Omit<PruneOptions, 'olderThanMs'>) => Promise<number>

/** The kinds that are rows of their own; what became of streams is in `archived.ts`. */
export function oldRowsOf(
  log: Log,
  retention: Retention,
): Record<'attempts' | 'idempotencyKeys' | 'deadLetters' | 'history', PruneKind> {
  const { database } = log
  const unlessKept = (olderThanMs: number, work: (options: PruneOptions) => Promise<number>): PruneKind => {
    return async options => (olderThanMs === Number.POSITIVE_INFINITY ? 0 : work({ ...options, olderThanMs }))
  }
  return {
    attempts: unlessKept(retention.attemptsMs, options => pruneAttempts(log, options)),
    idempotencyKeys: unlessKept(retention.idempotencyKeysMs, options => prune(database, oldKeys(log), options)),
    deadLetters: unlessKept(retention.deadLettersMs, options => prune(database, closedDeadLetters(log), options)),
    history: unlessKept(retention.historyMs, async options => {
      let total = 0
      for (const table of await historyTables(log))
        total += await prune(database, replacedVersions(log, table), options)
      return total
    }),
  }
}

function oldKeys({ names }: Log): OldRows {
  return {
    label: 'upkeep.keys',
    table: names.idempotency_keys,
    key: ['key'],
    clock: names.clock,
    where: 't.created_at < $1',
  }
}

/**
 * A version is needed to tell how a document was at any time at which it had not been replaced yet; the last one, also the
 * mark of a deletion, gives the next version its number.
 */
function replacedVersions({ schema, names }: Log, table: string): OldRows {
  return {
    label: 'upkeep.history',
    table: identifier(schema, table),
    key: ['id', 'version'],
    clock: names.clock,
    where: `exists (
          select
          from ${identifier(schema, table)} as n
          where n.id = t.id
            and n.version = t.version + 1
            and n.updated_at < $1)`,
  }
}

/** The histories of all collections, also of those this program does not know: by name and shape, beside their collection. */
async function historyTables({ database, schema }: Log): Promise<string[]> {
  const rows = await database.run<{ name: string }>(sql`/* upkeep.histories */
    select h.relname as name
    from pg_class as h
    join pg_namespace as n on n.oid = h.relnamespace
    where n.nspname = ${schema}::text
      and h.relkind = 'r'
      and right(h.relname, length(${historyName('')}::text)) = ${historyName('')}::text
      and exists (
        select
        from pg_class as c
        where c.relnamespace = h.relnamespace
          and c.relkind = 'r'
          and c.relname = left(h.relname, -length(${historyName('')}::text)))
      and (
        select array_agg(a.attname::text order by a.attname)
        from pg_attribute as a
        where a.attrelid = h.oid
          and a.attnum > 0
          and not a.attisdropped) = ${historyColumns}::text[]
    order by h.relname`)
  return rows.map(row => row.name)
}

const historyColumns = historyTable('')
  .columns.map(column => column.name)
  .sort()
