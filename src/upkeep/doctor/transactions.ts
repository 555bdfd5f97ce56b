/** Checks for transactions that are in the way: of vacuum, which cannot clean up behind an old one, and of the log. */
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { heldBackBy } from '../../events/order/order.ts'
import { isOnNodes, readFromNodes } from '../../schema/table-facts.ts'
import type { Check, DoctorLimits, FoundProblem } from './doctor.ts'

/** An append is announced and committed within milliseconds, so a longer one is a problem. */
const maxAppendMs = 1_000
const forgottenMs = 30_000
/** A commit of several nodes takes milliseconds, and an interrupted one is finished by the next recovery. */
const unfinishedMs = 60_000
const maxRecoveryMs = 10_000
/** How much of the server's log an unused slot may retain. */
const maxRetainedBytes = 1024 ** 3

export function checkTransactions(log: Log, { oldTransactionMs }: DoctorLimits): Check[] {
  const { database } = log
  return [
    {
      name: 'transactions.old',
      ok: 'No old transaction keeps vacuum from removing rows.',
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
          message: `A transaction of process ${pid}${application && ` (${application})`} has been open for ${ageText(age_ms)}, state ${state}: ${query}`,
          fix: `Run: select pg_terminate_backend(${pid}). Then set idle_in_transaction_session_timeout for its role.`,
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
          message: `The prepared transaction '${gid}' has been open for ${ageText(age_ms)}. It holds its locks and keeps vacuum from removing rows.`,
          fix: `Run: commit prepared '${gid}', or rollback prepared '${gid}'.`,
        }))
      },
    },
    {
      name: 'transactions.unfinished',
      ok: 'No commit of several nodes was left unfinished.',
      async find() {
        if (!(await isOnNodes(database))) return []
        const rows = await readFromNodes<{ gid: string; age_ms: number }>(
          database,
          `
          select coalesce(json_agg(json_build_object(
            'gid', gid,
            'age_ms', extract(epoch from clock_timestamp() - prepared) * 1000)), '[]')::text
          from pg_prepared_xacts
          where database = current_database()
            and gid like 'citus%'
            and prepared < clock_timestamp() - make_interval(secs => ${unfinishedMs / 1000})`,
        )
        const [interval] = await database.run<{ ms: number }>(sql`/* doctor.recovery */
          select setting::integer as ms
          from pg_settings
          where name = 'citus.recover_2pc_interval'`)
        const found: FoundProblem[] = rows.map(({ gid, age_ms }) => ({
          level: 'warning',
          message: `The commit '${gid}' of several nodes has been unfinished for ${ageText(age_ms)}. Its rows stay locked until then.`,
          fix: 'Run on the coordinator: select recover_prepared_transactions(). If it stays, look whether a node cannot be reached.',
        }))
        const { ms = 0 } = interval ?? {}
        if (ms >= 0 && ms <= maxRecoveryMs) return found
        return [
          ...found,
          {
            level: 'warning',
            message: `The setting citus.recover_2pc_interval is ${ms < 0 ? 'off' : `${ms} ms`}, so a commit of several nodes that is interrupted may keep its rows locked for so long.`,
            fix: "Run on each node: alter system set citus.recover_2pc_interval = '10s', then select pg_reload_conf().",
          },
        ]
      },
    },
    {
      name: 'transactions.slots',
      ok: 'No unused replication slot retains too much.',
      async find() {
        if (database.engine === 'pglite') return []
        const rows = await database.run<{ name: string; bytes: number }>(sql`/* doctor.slots */
          select slot_name::text as name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint as bytes
          from pg_replication_slots
          where not active
            and (xmin is not null
              or catalog_xmin is not null
              or pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) > ${maxRetainedBytes}::bigint)
          order by slot_name`)
        return rows.map(({ name, bytes }) => ({
          level: 'warning' as const,
          message: `The replication slot "${name}" is not in use and retains ${Math.round(bytes / 2 ** 20)} MiB of the server's log, and old rows.`,
          fix: `Start its consumer, or drop the slot: select pg_drop_replication_slot('${name}').`,
        }))
      },
    },
    {
      name: 'log.held_back',
      ok: 'Nothing holds the log back: consumers can read everything that was appended.',
      find: async () => (await heldBackBy(log)).filter(each => each.ageMs >= maxAppendMs).map(toProblem),
    },
  ]
}

function toProblem({ pid, gid, ageMs, state, query }: Awaited<ReturnType<typeof heldBackBy>>[number]): FoundProblem {
  const holder = gid === undefined ? `process ${pid} (${state}: ${query})` : `the prepared transaction '${gid}'`
  return {
    level: ageMs < forgottenMs ? 'warning' : 'error',
    message: `Consumers cannot read new events, because ${holder} has appended events and has not ended its transaction for ${ageText(ageMs)}.`,
    fix:
      gid === undefined
        ? `Run: select pg_terminate_backend(${pid}).`
        : `Run: rollback prepared '${gid}', or commit prepared '${gid}'.`,
  }
}

function ageText(ms: number): string {
  return ms < 120_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`
}
