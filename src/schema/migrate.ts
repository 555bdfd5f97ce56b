/**
 * The runner: one transaction that holds the schema's lock, makes the plan and runs it, all or nothing. Indexes of
 * tables with rows follow, one statement each, next to a transaction that does nothing but hold the lock again.
 *
 * Of many processes that start at once one gets the lock; the others ask again every now and then, and find nothing to
 * do when it is done. They ask in transactions of their own instead of waiting inside one: a wait then holds neither a
 * connection nor a snapshot, ends at once when it is aborted, and does not look like a slow migration.
 *
 * The lock is an advisory one with a single 64-bit key; those with two 32-bit keys belong to announced positions. It is
 * of the transaction, so a process that dies releases it, and there may be a pooler in transaction mode.
 */

import { createHash } from 'node:crypto'
import { sleep, throwIfAborted } from '../core/abort.ts'
import { isRillflowError, TimedOut } from '../core/errors.ts'
import { elapsedMs } from '../core/host.ts'
import { optionNames } from '../core/options.ts'
import { type Backoff, delay, retry } from '../core/retry.ts'
import type { Database, Transaction } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { lockNotAvailable, sqlStateOf, toRillflowError } from '../database/sqlstate.ts'
import { runOutside } from '../database/transaction.ts'
import type { Step } from './difference.ts'
import { hasCitus } from './numbers.ts'
import { makePlan, type Plan, type Target } from './plan.ts'

export interface SyncOptions {
  /** Called before each step. It runs inside the migration's transaction, so it must not use the store. */
  onProgress?: ((progress: Progress) => void) | undefined
  signal?: AbortSignal | undefined
  /** How long the migration may take, and how long to wait for another process that is migrating. Default 1 hour. */
  timeoutMs?: number | undefined
  /**
   * How long a step may wait for a table that others are using. They in turn wait behind it, so it gives up, and the
   * whole sync with it, instead of delaying their work. Default 10 000.
   */
  lockMs?: number | undefined
}

export const syncOptionNames: readonly string[] = optionNames<SyncOptions>({
  ...{ onProgress: true, signal: true, timeoutMs: true, lockMs: true },
})

export interface Progress {
  readonly step: Step
  /** How many steps are done, of `total`. */
  readonly done: number
  readonly total: number
}

const defaults = { timeoutMs: 3_600_000, lockMs: 10_000 }

/** A stopped process must not keep the others waiting: between two steps there is nothing to wait for. */
const idleMs = 60_000

const asking: Backoff = { baseMs: 20, factor: 1.5, maxMs: 500, jitter: 0.5 }

/** Brings the schema up to its target and returns the plan that it ran. */
export async function migrate(database: Database, target: () => Target, options: SyncOptions = {}): Promise<Plan> {
  const { timeoutMs = defaults.timeoutMs, signal } = options
  const patience = elapsedMs() + timeoutMs
  // A step that deadlocks with the application's own work is undone as a whole, so it can simply run again.
  const collided = { retries: 3, when: (error: unknown) => isRillflowError(error, 'serialization_failed'), signal }
  for (let attempt = 1; ; attempt++) {
    const plan = await retry(() => tryToMigrate(database, target(), options), collided)
    if (plan !== undefined && (await tryToBuild(database, target(), plan, options))) return plan
    if (elapsedMs() > patience) {
      const what = `The end of another process's migration of schema "${target().schema}"`
      throw new TimedOut({ what, timeoutMs })
    }
    await sleep(delay(asking, attempt), { signal })
  }
}

/** Undefined while another process has the lock. */
function tryToMigrate(database: Database, target: Target, options: SyncOptions): Promise<Plan | undefined> {
  const { timeoutMs = defaults.timeoutMs, lockMs = defaults.lockMs, signal } = options
  const work = async (tx: Transaction): Promise<Plan | undefined> => {
    const [lock] = await tx.run<{ taken: boolean }>(sql`/* schema.lock */
      select
        set_config('lock_timeout', ${`${lockMs}ms`}::text, true),
        set_config('idle_in_transaction_session_timeout', ${`${idleMs}ms`}::text, true),
        pg_try_advisory_xact_lock(${lockKey(target.schema)}::bigint) as taken`)
    if (lock?.taken !== true) return undefined
    const plan = await makePlan(tx, target)
    if (plan.steps.length > 0) await spreadSchemas(tx)
    for (const [done, step] of plan.steps.entries()) {
      if (step.isAlone === true) continue
      throwIfAborted(signal)
      options.onProgress?.({ step, done, total: plan.steps.length })
      await runStep(tx, step, lockMs)
    }
    return plan
  }
  return database.transaction(work, { timeoutMs, signal, isolation: 'read committed', changesTables: true })
}

/**

 * Builds the indexes that a plan leaves; false while another process has the lock. The transaction that holds it must
 * not have a snapshot: building waits for every transaction that may see the table in its earlier state, and would wait
 * for this one for ever.
 */
function tryToBuild(database: Database, target: Target, plan: Plan, options: SyncOptions): Promise<boolean> {
  const { timeoutMs = defaults.timeoutMs, signal } = options
  if (!plan.steps.some(step => step.isAlone === true)) return Promise.resolve(true)
  const work = async (tx: Transaction): Promise<boolean> => {
    const [lock] = await tx.run<{ taken: boolean }>(sql`/* schema.lock_to_build */
      select pg_try_advisory_xact_lock(${lockKey(target.schema)}::bigint) as taken`)
    if (lock?.taken !== true) return false
    // A query keeps its snapshot until the next one on its connection, and building waits for it; a command has none.
    await tx.query('set local idle_in_transaction_session_timeout = 0')
    await runOutside(async () => {
      const { steps } = await makePlan(database, target)
      for (const [done, step] of steps.entries()) {
        if (step.isAlone !== true) continue
        throwIfAborted(signal)
        options.onProgress?.({ step, done, total: steps.length })
        await database.run({ label: step.object, text: step.sql, values: [], unprepared: true, alone: { timeoutMs } })
      }
    })
    return true
  }
  return database.transaction(work, { timeoutMs, signal, isolation: 'read committed', changesTables: true })
}

/** Sent as plain text: a statement that is never sent again is not worth preparing. */
async function runStep(tx: Transaction, step: Step, lockMs: number): Promise<void> {
  try {
    await tx.query(step.sql)
  } catch (error) {
    if (sqlStateOf(error) === lockNotAvailable)
      throw new TimedOut({ what: `Getting the lock for ${step.object}`, timeoutMs: lockMs }, error)
    throw toRillflowError(error, step.object)
  }
}

/** The same number in every process for the same schema of one database. */
export function lockKey(schema: string): bigint {
  return createHash('sha256').update(`rillflow schema ${schema}`).digest().readBigInt64BE()
}

/** On Citus a schema that this transaction makes becomes one that the cluster places, as a whole, on one of its nodes. */
async function spreadSchemas(tx: Transaction): Promise<void> {
  await tx.run(sql`/* schema.spread */
    select set_config('citus.enable_schema_based_sharding', 'on', true)
    where ${hasCitus}`)
}
