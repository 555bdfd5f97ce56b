/**
 * Changes the set of inline projections while other transactions append.
 *
 * An append has looked at `inline_projections` before it writes anything, and keeps that look as a shared lock until
 * its transaction ends. A transaction that holds the barrier, the exclusive lock of that table, therefore knows: every
 * event of an append that has looked is committed or will never be, so the log is settled up to its head; and the next
 * append waits, then sees the change. Work for that moment (folding the last events, renaming a table) belongs between
 * taking the barrier and the commit.
 *
 * Take it first: a transaction that has locked documents or rows of consumers before may wait for an append that waits
 * for it. It is never waited for longer than half a second at a time, since appends queue behind a transaction that waits.
 */

import { sleep } from '../../core/abort.ts'
import { isRillflowError, TimedOut } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { lockNotAvailable, sqlStateOf } from '../../database/sqlstate.ts'
import { moment } from '../../schema/clock.sql.ts'
import type { Log } from '../log.ts'

/** An inline projection as the database knows it. */
export interface ActiveInline {
  readonly name: string
  readonly version: number
  /** The types it wants, as they are stored; undefined: all. */
  readonly types: readonly string[] | undefined
}

const waitMs = 500
const maxTries = 40
const pauses: Backoff = { baseMs: 50, factor: 1.5, maxMs: 500, jitter: 0.5 }

/** Makes a projection inline with this transaction's commit. `types` are given as readers see them. */
export async function activateInline(
  log: Log,
  tx: Transaction,
  { name, version, types }: { name: string; version: number; types: readonly string[] | undefined },
): Promise<void> {
  checkName('Consumer', name)
  await holdInlineBarrier(log, tx)
  const stored = types === undefined ? null : [...new Set(types.flatMap(type => log.upcasters.sourcesOf(type)))]
  await tx.run(sql`/* inline.activate */
    insert into ${log.names.inline_projections} as i (name, version, types, activated_at)
    select ${name}::text, ${version}::integer, ${stored}::text[], moment.at
    from ${moment(log.names.clock)}
    on conflict (name) do update
      set version = excluded.version, types = excluded.types, activated_at = excluded.activated_at`)
  await noteChange(log, tx)
}

/** Ends that a projection is inline, with this transaction's commit. False if it was not inline. */
export async function retireInline(log: Log, tx: Transaction, name: string): Promise<boolean> {
  await holdInlineBarrier(log, tx)
  const retired = await tx.run(sql`/* inline.retire */
    delete from ${log.names.inline_projections}
    where name = ${name}::text
    returning name`)
  await noteChange(log, tx)
  return retired.length > 0
}

/**
 * Waits for every append that has read the table, and makes the next ones wait until this transaction ends.
 * [barrier-5]
 */
export async function holdInlineBarrier(log: Log, tx: Transaction): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await tx.savepoint(() => lockTable(log, tx))
    } catch (error) {
      const state = isRillflowError(error) ? sqlStateOf(error.cause) : undefined
      if (state !== lockNotAvailable) throw error
      const what = 'The end of the transactions with open appends'
      if (tries === maxTries) throw new TimedOut({ what, timeoutMs: maxTries * waitMs }, error)
      await sleep(delay(pauses, tries))
    }
  }
}

export async function listInline(log: Log, executor: Executor = log.database): Promise<ActiveInline[]> {
  const rows = await executor.run<{ name: string; version: number; types: string[] | null }>(sql`/* inline.list */
    select name, version, to_jsonb(types) as types
    from ${log.names.inline_projections}
    order by name`)
  return rows.map(({ name, version, types }) => ({ name, version, types: types ?? undefined }))
}

async function lockTable(log: Log, tx: Transaction): Promise<void> {
  const [before] = await tx.run<{ timeout: string }>(sql`/* inline.timeout */
    select current_setting('lock_timeout') as timeout`)
  await tx.run(sql`/* inline.limit */
    select set_config('lock_timeout', ${`${waitMs}ms`}::text, true)`)
  await tx.run(sql`/* inline.barrier */
    lock table ${log.names.inline_projections} in access exclusive mode`)
  await tx.run(sql`/* inline.limit */
    select set_config('lock_timeout', ${before!.timeout}::text, true)`)
}

/** The row that makes a transaction stricter than read committed fail if it began before. [barrier-6] */
async function noteChange(log: Log, tx: Transaction): Promise<void> {
  await tx.run(sql`/* inline.change */
    update ${log.names.inline_changes}
    set changes = changes + 1
    where id = 1`)
}
