/**
 * The fence: a transaction on the source that holds every table of the schema in exclusive mode. It comes when all who
 * are writing have ended, lets nobody write until it ends, and everybody read.
 *
 * Exclusive mode and not access exclusive: it shuts out every mode but access share, and no row can be changed, locked or
 * deleted under that. So readers go on through the moment, and a report that runs for an hour does not hold it up.
 *
 * Whoever wants to write queues behind a lock that is waited for. So a try is short, the first ones shortest, and between
 * tries there is room. Tables are locked in the order in which writers take them, so that who is under way comes to its
 * end. Later tries outlast `deadlock_timeout` (a second), after which PostgreSQL sends an autovacuum away that is in the
 * way.
 *
 * It also holds the lock of the schema's migrations: a table that is made meanwhile would stay behind. So would one that
 * somebody makes by hand; whoever does has a lock on the schema itself, is looked for at the beginning and at the end, and
 * is waited for. What is left is the time of the commit.
 */

import { isRillflowError } from '../../core/errors.ts'
import { deadline, sleep } from '../../core/lifecycle.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import { DatabaseFailed } from '../../database/errors.ts'
import { identifier, sql } from '../../database/sql.ts'
import { lockNotAvailable } from '../../database/sqlstate.ts'
import { lockKey } from '../../schema/migrate.ts'
import type { Place } from '../place.ts'
import { MoveHeldUp, MoveRefused } from './errors.ts'

export interface FenceOptions {
  /** The most that one try to stop the writers may hold them up. Default 2000. */
  lockTimeoutMs?: number | undefined
  /** How long to go on trying; then `MoveHeldUp`. Default 60 000. */
  fenceMs?: number | undefined
  /** The longest pause of the writers. A move that needs more fails, and they go on on the source. Default 60 000. */
  pauseMs?: number | undefined
  signal?: AbortSignal | undefined
}

const defaults = { lockTimeoutMs: 2_000, fenceMs: 60_000, pauseMs: 60_000 }

const firstTryShare = 1 / 8
const between: Backoff = { baseMs: 50, factor: 2, maxMs: 2_000, jitter: 0.5 }

export interface Fence {
  /** What the source does for the move is done through this, and committed with the end of the fence. */
  readonly tx: Transaction
  /** Aborts with the caller's, or when the pause gets too long. */
  readonly signal: AbortSignal
  /** Since when writers may have been waiting, by `performance.now()`. */
  readonly since: number
}

/** Runs `work` while nobody writes. */
export async function fenced<T>(source: Place, options: FenceOptions, work: (fence: Fence) => Promise<T>): Promise<T> {
  const { lockTimeoutMs = defaults.lockTimeoutMs, fenceMs = defaults.fenceMs, pauseMs = defaults.pauseMs } = options
  const patience = performance.now() + fenceMs
  for (let attempt = 1; ; attempt++) {
    const lockMs = Math.min(lockTimeoutMs, lockTimeoutMs * firstTryShare * 2 ** (attempt - 1))
    const limitMs = lockMs + pauseMs
    const limit = deadline(options.signal, limitMs, { what: 'The last pass of the move' })
    const { signal } = limit
    try {
      return await source.database.transaction(
        async tx => {
          const since = performance.now()
          await lockTables(tx, source.schema, { lockMs, limitMs })
          // It has another name at the end.
          const oid = await oidOf(tx, source.schema)
          await waitForMakers(tx, oid)
          const result = await work({ tx, signal, since })
          await waitForMakers(tx, oid)
          return result
        },
        { timeoutMs: limitMs + 1_000, idleMs: limitMs, signal, isolation: 'read committed' },
      )
    } catch (error) {
      if (!(error instanceof NotYet)) throw error
      if (performance.now() > patience) {
        const holders = await holdersOf(source)
        throw new MoveHeldUp({ schema: source.schema, timeoutMs: fenceMs, holders }, error)
      }
    } finally {
      limit.dispose()
    }
    await sleep(delay(between, attempt), { signal: options.signal })
  }
}

class NotYet extends Error {}

async function lockTables(
  tx: Transaction,
  schema: string,
  { lockMs, limitMs }: { lockMs: number; limitMs: number },
): Promise<void> {
  const [lock] = await tx.run<{ taken: boolean }>(sql`/* moving.lock_schema */
    select pg_try_advisory_xact_lock(${lockKey(schema)}::bigint) as taken`)
  if (lock?.taken !== true) throw new NotYet()
  const names = await tablesOf(tx, schema)
  if (names.length === 0) throw new MoveRefused({ schema, reason: 'it is not there any more' })
  await limitStatements(tx, lockMs)
  try {
    const list = names.map(name => identifier(schema, name).quoted).join(', ')
    const text = `/* moving.fence */ lock table ${list} in exclusive mode`
    await tx.run({ label: 'moving.fence', text, values: [], unprepared: true })
    // Still under the short limit itself.
    await limitStatements(tx, limitMs)
  } catch (error) {
    throw isPassing(error) ? new NotYet('', { cause: error }) : error
  }
  if (String(await tablesOf(tx, schema)) !== String(names)) throw new NotYet()
}

async function oidOf(tx: Transaction, schema: string): Promise<number> {
  const [row] = await tx.run<{ oid: number }>(sql`/* moving.schema_oid */
    select oid::bigint::float8 as oid
    from pg_namespace
    where nspname = ${schema}::text`)
  return row!.oid
}

/** Whoever makes something in a schema holds a lock on it until it is committed. */
async function waitForMakers(tx: Transaction, oid: number): Promise<void> {
  const rows = await tx.run(sql`/* moving.makers */
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

/** The whole list counts, not each table of it. */
async function limitStatements(tx: Transaction, limitMs: number): Promise<void> {
  await tx.run(sql`/* moving.limit */
    select set_config('statement_timeout', ${`${Math.ceil(limitMs)}ms`}::text, true)`)
}

/** In the order in which an append or a save takes them: keys, streams, …, the log. */
async function tablesOf(tx: Transaction, schema: string): Promise<string[]> {
  const rows = await tx.run<{ name: string }>(sql`/* moving.fence_tables */
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

/** Somebody was in the way, or a table has gone. */
function isPassing(error: unknown): boolean {
  if (isRillflowError(error, 'serialization_failed')) return true
  return error instanceof DatabaseFailed && [lockNotAvailable, canceled, undefinedTable].includes(error.sqlState)
}

const canceled = '57014'
const undefinedTable = '42P01'

async function holdersOf({ database, schema }: Place): Promise<{ pid: number | null; query: string }[]> {
  return database.run(sql`/* moving.holders */
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
