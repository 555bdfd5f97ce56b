/**
 * Stops the writers of a schema for a moment: a transaction on the source that locks every table in exclusive mode. It
 * gets the locks when all running writes have ended, and nothing is written until it ends. Readers are not stopped.
 *
 *     try ─► lock of the migrations ─► tables, in the order of writers ─► no table is being made ─► work ─► commit
 *      ▲                                        │ a lock did not come in time
 *      └──────────── a pause ◄──────────────────┘
 *
 * Exclusive mode, not access exclusive: it conflicts with every mode but access share, under which no row can be changed,
 * locked or deleted. So readers are not stopped, and a report that runs for an hour does not delay the move.
 *
 * Writers queue behind a lock that is waited for. So each try is short, the first ones are the shortest, and there is a
 * pause between two tries. Tables are locked in the order in which writers lock them, so that a running write can end.
 * Later tries last longer than `deadlock_timeout` (a second), after which PostgreSQL cancels an autovacuum that is in the
 * way.
 *
 * It also takes the lock of the schema's migrations, because a table that is made meanwhile would not be copied. The same
 * holds for a table that is made by hand: its session holds a lock on the schema itself, which is looked for at the
 * beginning and at the end and waited for. Only the time of the commit itself remains.
 */

import { deadline, sleep } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import { DatabaseFailed } from '../../database/errors.ts'
import { identifier, sql } from '../../database/sql.ts'
import { lockNotAvailable } from '../../database/sqlstate.ts'
import { lockKey } from '../../schema/migrate.ts'
import type { StoreLocation } from '../transfer.ts'
import { MoveHeldUp, MoveRefused } from './errors.ts'

export interface StopWritersOptions {
  /** How long one try may make writers wait. Default 2000. */
  lockTimeoutMs?: number | undefined
  /** How long to try, before `MoveHeldUp`. Default 60 000. */
  stopTimeoutMs?: number | undefined
  /** How long writers may be stopped. A move that needs more fails, and they continue on the source. Default 60 000. */
  maxPauseMs?: number | undefined
  signal?: AbortSignal | undefined
}

const defaults = { lockTimeoutMs: 2_000, stopTimeoutMs: 60_000, maxPauseMs: 60_000 }

const firstTryShare = 1 / 8
const betweenTries: Backoff = { baseMs: 50, factor: 2, maxMs: 2_000, jitter: 0.5 }

/** The moment in which nothing is written. */
export interface StoppedWriters {
  /** The transaction that holds the locks. Its commit ends the moment. */
  readonly tx: Transaction
  /** Aborts with the caller's signal, or when the pause gets too long. */
  readonly signal: AbortSignal
  /** Since when writers may have been waiting, by `elapsedMs()`. */
  readonly since: number
}

/** Runs `work` while the writers are stopped. */
export async function withWritersStopped<T>(
  source: StoreLocation,
  options: StopWritersOptions,
  work: (stopped: StoppedWriters) => Promise<T>,
): Promise<T> {
  const { lockTimeoutMs = defaults.lockTimeoutMs, stopTimeoutMs = defaults.stopTimeoutMs } = options
  const { maxPauseMs = defaults.maxPauseMs } = options
  const giveUpAt = elapsedMs() + stopTimeoutMs
  for (let attempt = 1; ; attempt++) {
    const lockMs = Math.min(lockTimeoutMs, lockTimeoutMs * firstTryShare * 2 ** (attempt - 1))
    const limitMs = lockMs + maxPauseMs
    const limit = deadline(options.signal, limitMs, { what: 'The last pass of the move' })
    const { signal } = limit
    try {
      return await source.database.transaction(
        async tx => {
          const since = elapsedMs()
          await lockTables(tx, source.schema, { lockMs, limitMs })
          // By its oid, because the schema has another name at the end.
          const oid = await readOid(tx, source.schema)
          await refuseWhileChanged(tx, oid)
          const result = await work({ tx, signal, since })
          await refuseWhileChanged(tx, oid)
          return result
        },
        { timeoutMs: limitMs + 1_000, idleMs: limitMs, signal, isolation: 'read committed' },
      )
    } catch (error) {
      if (!(error instanceof NotYet)) throw error
      if (elapsedMs() > giveUpAt) {
        const holders = await readHolders(source)
        throw new MoveHeldUp({ schema: source.schema, timeoutMs: stopTimeoutMs, holders }, error)
      }
    } finally {
      limit.dispose()
    }
    await sleep(delay(betweenTries, attempt), { signal: options.signal })
  }
}

/** This try has failed, and the next one may succeed. */
class NotYet extends Error {}

async function lockTables(
  tx: Transaction,
  schema: string,
  { lockMs, limitMs }: { lockMs: number; limitMs: number },
): Promise<void> {
  const [lock] = await tx.run<{ taken: boolean }>(sql`/* move.lock_schema */
    select pg_try_advisory_xact_lock(${lockKey(schema)}::bigint) as taken`)
  if (lock?.taken !== true) throw new NotYet()
  const names = await readTableNames(tx, schema)
  if (names.length === 0) throw new MoveRefused({ schema, reason: 'it does not exist or has no tables' })
  await limitStatements(tx, lockMs)
  try {
    const list = names.map(name => identifier(schema, name).quoted).join(', ')
    const text = `/* move.lock_tables */ lock table ${list} in exclusive mode`
    await tx.run({ label: 'move.lock_tables', text, values: [], unprepared: true })
    // Still under the short limit itself.
    await limitStatements(tx, limitMs)
  } catch (error) {
    throw isTemporary(error) ? new NotYet('', { cause: error }) : error
  }
  if (String(await readTableNames(tx, schema)) !== String(names)) throw new NotYet()
}

async function readOid(tx: Transaction, schema: string): Promise<number> {
  const [row] = await tx.run<{ oid: number }>(sql`/* move.schema_oid */
    select oid::bigint::float8 as oid
    from pg_namespace
    where nspname = ${schema}::text`)
  return row!.oid
}

/** A session that makes an object in a schema holds a lock on the schema until its commit. */
async function refuseWhileChanged(tx: Transaction, oid: number): Promise<void> {
  const rows = await tx.run(sql`/* move.schema_locks */
    select 1
    from pg_locks
    where locktype = 'object'
      and classid = 'pg_namespace'::regclass
      and objid = ${oid}::bigint::oid
      and database = (select oid from pg_database where datname = current_database())
      and pid is distinct from pg_backend_pid()
    limit 1`)
  if (rows.length > 0) throw new NotYet()
}

/** Limits the statement as a whole. `lock_timeout` would limit the wait for each table of the list. */
async function limitStatements(tx: Transaction, limitMs: number): Promise<void> {
  await tx.run(sql`/* move.limit */
    select set_config('statement_timeout', ${`${Math.ceil(limitMs)}ms`}::text, true)`)
}

/** In the order in which an append or a save locks them: keys, streams, …, events. */
async function readTableNames(tx: Transaction, schema: string): Promise<string[]> {
  const rows = await tx.run<{ name: string }>(sql`/* move.table_names */
    select c.relname::text as name
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind = 'r'
    order by
      coalesce(array_position(array['idempotency_keys', 'streams'], c.relname::text), 3),
      c.relname = 'events',
      c.relname`)
  return rows.map(row => row.name)
}

/** A lock did not come in time, or a table was dropped meanwhile. */
function isTemporary(error: unknown): boolean {
  if (isRillflowError(error, 'serialization_failed') || isRillflowError(error, 'statement_cancelled')) return true
  return error instanceof DatabaseFailed && [lockNotAvailable, undefinedTable].includes(error.sqlState)
}

const undefinedTable = '42P01'

/** The sessions that hold a lock which stands in the way. */
async function readHolders({ database, schema }: StoreLocation): Promise<{ pid: number | null; query: string }[]> {
  return database.run(sql`/* move.holders */
    select distinct
      locks.pid,
      coalesce(left(activity.query, 200), 'a prepared transaction') as query
    from pg_locks as locks
    join pg_namespace as n on n.nspname = ${schema}::text
    left join pg_class as c on c.oid = locks.relation
    left join pg_stat_activity as activity on activity.pid = locks.pid
    where locks.granted
      and (c.relnamespace = n.oid and c.relkind = 'r' and locks.mode <> 'AccessShareLock'
        or locks.locktype = 'object' and locks.classid = 'pg_namespace'::regclass and locks.objid = n.oid)
      and locks.database = (select oid from pg_database where datname = current_database())
    limit 10`)
}
