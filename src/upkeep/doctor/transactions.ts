/** Who stands in the way: of vacuum, which cannot clean up behind an old snapshot, and of the log, which waits for appends. */
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { heldBackBy } from '../../events/order/order.ts'
import type { Check, Limits, Trouble } from './doctor.ts'

/** An append is announced and committed within milliseconds; whoever holds back the log for longer has forgotten to. */
const heldMs = 1_000
const forgottenMs = 30_000
/** What a slot keeps is a file system's business from here on. */
const keptBytes = 1024 ** 3

export function checkTransactions(log: Log, { oldTransactionMs }: Limits): Check[] {
  const { database } = log
  return [
    {
      name: 'transactions.old',
      ok: 'No old transaction keeps vacuum from cleaning up.',
      async find() {
        const rows = await database.run<{
          pid: number
          age_ms: number
          state: string
          application: string
          query: string
        }>(
          sql`/* doctor.transactions */
            select pid, (extract(epoch from clock_timestamp() - xact_start) * 1000)::float8 as age_ms,
              coalesce(state, '') as state, coalesce(application_name, '') as application,
              left(coalesce(query, ''), 200) as query
            from pg_stat_activity
            where pid <> pg_backend_pid()
              and backend_type = 'client backend'
              and (backend_xid is not null or backend_xmin is not null)
              and xact_start < clock_timestamp() - make_interval(secs => ${oldTransactionMs}::float8 / 1000)
            order by xact_start
            limit 20`,
        )
        return rows.map(({ pid, age_ms, state, application, query }) => ({
          level: 'warning' as const,
          message: `A transaction of process ${pid}${application && ` (${application})`} has been open for ${minutes(age_ms)}, ${state}: ${query}`,
          mend: `select pg_terminate_backend(${pid}); and set idle_in_transaction_session_timeout for its role.`,
        }))
      },
    },
    {
      name: 'transactions.prepared',
      ok: 'No prepared transaction was forgotten.',
      async find() {
        const rows = await database.run<{ gid: string; age_ms: number }>(sql`/* doctor.prepared */
          select gid, (extract(epoch from clock_timestamp() - prepared) * 1000)::float8 as age_ms
          from pg_prepared_xacts
          where database = current_database()
            and prepared <= clock_timestamp() - make_interval(secs => ${oldTransactionMs}::float8 / 1000)
          order by prepared
          limit 20`)
        return rows.map(({ gid, age_ms }) => ({
          level: 'warning' as const,
          message: `The prepared transaction '${gid}' has been open for ${minutes(age_ms)}; it holds its locks and keeps vacuum from cleaning up.`,
          mend: `commit prepared '${gid}', or rollback prepared '${gid}'.`,
        }))
      },
    },
    {
      name: 'transactions.slots',
      ok: 'No replication slot keeps more than it should.',
      async find() {
        if (database.engine === 'pglite') return []
        const rows = await database.run<{ name: string; bytes: number }>(sql`/* doctor.slots */
          select slot_name::text as name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint as bytes
          from pg_replication_slots
          where not active
            and (xmin is not null
              or catalog_xmin is not null
              or pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) > ${keptBytes}::bigint)
          order by slot_name`)
        return rows.map(({ name, bytes }) => ({
          level: 'warning' as const,
          message: `Nobody reads the replication slot "${name}"; it keeps ${Math.round(Number(bytes) / 2 ** 20)} MiB of log, and old rows.`,
          mend: `Start who reads it, or: select pg_drop_replication_slot('${name}').`,
        }))
      },
    },
    {
      name: 'log.held_back',
      ok: 'Nothing holds the log back: all that is appended is being read.',
      find: async () => (await heldBackBy(log)).filter(each => each.ageMs >= heldMs).map(toTrouble),
    },
  ]
}

function toTrouble({ pid, gid, ageMs, state, query }: Awaited<ReturnType<typeof heldBackBy>>[number]): Trouble {
  const who = gid === undefined ? `process ${pid} (${state}: ${query})` : `the prepared transaction '${gid}'`
  return {
    level: ageMs < forgottenMs ? 'warning' : 'error',
    message: `Consumers see nothing new: ${who} has appended, and has not ended for ${minutes(ageMs)}.`,
    mend: gid === undefined ? `select pg_terminate_backend(${pid}).` : `rollback prepared '${gid}', or commit it.`,
  }
}

function minutes(ms: number): string {
  return ms < 120_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`
}
