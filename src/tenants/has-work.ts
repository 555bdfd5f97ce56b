/**
 * Whether tenants have anything to do. A tenant that has not is stopped in this process, and started again when it has.
 *
 *     readLogHeads    one statement for all tenants of a server: has the log of any of them grown?
 *     readWork        one statement for one tenant: does it have work now, and when will it have some?
 */
import { hasConsumerBehind, nextDeadLetterAt } from '../consumers/pending-work.ts'
import type { Database } from '../database/database.ts'
import { identifier, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import { readDrawn } from '../schema/numbers.ts'
import { hasOpenWork, nextWorkAt } from '../workflows/pending-work.ts'

/**
 * The last position drawn in the log of each store on a server, by schema. It reads only the catalogue and the sequences,
 * so that a server with a thousand idle tenants answers one statement a second.
 */
export async function readLogHeads(database: Database, prefix: string): Promise<Map<string, number>> {
  const rows = await database.runArrays(sql`/* tenants.heads */
    select n.nspname::text, pg_sequence_last_value(case when c.relkind = 'S' then c.oid end), c.relkind = 'S'
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where (c.relname, c.relkind) in (('events_position', 'S'), ('counters', 'r'))
      and starts_with(n.nspname, ${prefix}::text)`)
  const heads = new Map<string, number>()
  for (const [schema, head, isSequence] of rows as [string, number | null, boolean][]) {
    // No statement reads the rows of several tenants: they may be on several servers.
    const drawn = isSequence ? head : (await readDrawn(database, schema, 'counter')).events_position
    heads.set(schema, drawn ?? 0)
  }
  return heads
}

export interface TenantWork {
  /** The last position drawn. */
  readonly head: number
  readonly hasWork: boolean
  /** When the next timer, schedule, retry or join is due; undefined if none is. */
  readonly nextInMs: number | undefined
}

/** `consumers` are those that this process has code for: others may be behind without being its work. */
export async function readWork(log: Log, consumers: readonly string[]): Promise<TenantWork> {
  const { database, names } = log
  const head = identifier('head', 'position')
  const [row] = await database.run<{ head: number; has_work: boolean; next_in: number | null }>(sql`/* tenants.idle */
    with head as materialized (select ${(await settle(log)).head}::bigint as position)
    select
      ${head} as head,
      ${hasConsumerBehind(log, consumers, head)}
        or ${hasOpenWork(log)} as has_work,
      (extract(epoch from least(
        ${nextWorkAt(log)},
        ${nextDeadLetterAt(log)}) - ${names.clock}(head.position)) * 1000)::float8 as next_in
    from head`)
  return { head: row!.head, hasWork: row!.has_work, nextInMs: row!.next_in ?? undefined }
}
