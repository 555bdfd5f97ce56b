/**
 * The order of the log: how far it is settled, and how consumers wait for it to grow.
 *
 *     append ── announces a lower bound, draws positions, commits ──► [events]
 *                                                                        │ wake: a hint, in this process and by pg_notify
 *     reader ◄── events up to `settled` ◄── settle: head, then announced bounds, then a new snapshot ◄── watch
 *
 * Guarantee: every event at or below `settled` is visible now or will never exist, so a reader that takes the events up to
 * it misses none. Why that is right is in `order.sql.ts`.
 *
 * What can fail: a server in recovery is refused. An append that stays open holds `settled` back; `heldBackBy` names it.
 */
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../log.ts'

export interface Settled {
  /** The last position that was drawn, in any process. */
  readonly head: number
  /** Every event up to here is visible or will never exist. */
  readonly settled: number
  /** Changes when another server takes over. */
  readonly timeline: string
  /** Changes when the server may have restarted: data that was only in its memory is lost then. */
  readonly epoch: number
}

/** A transaction that has appended and is still open. */
export interface HeldBackBy {
  /** The server's process; undefined for a prepared transaction. */
  readonly pid: number | undefined
  /** The name of a prepared transaction. */
  readonly gid: string | undefined
  readonly ageMs: number
  readonly state: string
  readonly application: string
  readonly query: string
}

/** Must not run inside a transaction that reads events afterwards: they need a snapshot taken after this. [order-4] */
export async function settle(log: Log, executor: Executor = log.database): Promise<Settled> {
  log.telemetry.count('settles_total')
  const [row] = await executor.runArrays(sql`/* events.settle */
    select head, settled, timeline, session
    from ${log.names.settle}()`)
  const [head, settled, timeline, session] = row as [number, number, string, string]
  return { head, settled, timeline, epoch: epochOf(log, session) }
}

/**
 * A session that has answered before proves that the server has not crashed since: none outlives that. A new one proves
 * nothing, so it begins an epoch; there are as many of those as connections, and each costs a follower one look.
 */
export function epochOf(log: Log, session: string): number {
  const known = sessionsOf.get(log) ?? { epoch: 0, sessions: new Set<string>() }
  sessionsOf.set(log, known)
  if (!known.sessions.has(session)) {
    if (known.sessions.size >= maxSessions) known.sessions.clear()
    known.sessions.add(session)
    known.epoch++
  }
  return known.epoch
}

const sessionsOf = new WeakMap<Log, { epoch: number; sessions: Set<string> }>()
const maxSessions = 1_000

/** The transactions that hold the log back, the lowest bound first. */
export async function heldBackBy(log: Log): Promise<HeldBackBy[]> {
  const rows = await log.database.run<{
    pid: number | null
    gid: string | null
    age_ms: number
    state: string
    application: string
    query: string
  }>(sql`/* events.held_back_by */
    select
      locks.pid,
      prepared.gid,
      greatest(0, extract(epoch from clock_timestamp() - coalesce(activity.xact_start, prepared.prepared)) * 1000)::float8
        as age_ms,
      coalesce(activity.state, 'prepared') as state,
      coalesce(activity.application_name, '') as application,
      left(coalesce(activity.query, ''), 500) as query
    from pg_locks as locks
    left join pg_stat_activity as activity on activity.pid = locks.pid
    -- A prepared transaction has no process; what all its locks share leads to the one on its own id.
    left join pg_locks as own
      on locks.pid is null and own.pid is null
      and own.virtualtransaction = locks.virtualtransaction
      and own.locktype = 'transactionid' and own.mode = 'ExclusiveLock'
    left join pg_prepared_xacts as prepared on prepared.transaction = own.transactionid
    where locks.locktype = 'advisory'
      and locks.database = (select oid from pg_database where datname = current_database())
      and locks.classid = to_regclass(${log.names.events_position.quoted}::text)::oid
      and locks.objsubid = 2
      and locks.mode = 'ShareLock'
    order by age_ms desc`)
  return rows.map(({ pid, gid, age_ms, ...rest }) => ({
    ...rest,
    pid: pid ?? undefined,
    gid: gid ?? undefined,
    ageMs: age_ms,
  }))
}
