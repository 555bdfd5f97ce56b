/**
 * Removing consumers: their rows and dead letters, and the tables of a projection if they are to be dropped.
 *
 *     remove ─► it is inline: retired, so that appends need no code of it ─► dead letters, rows ─► tables
 *
 * It is one transaction. The tables are those that the row names, so no code is needed: it is usually gone by then. A
 * consumer whose code still runs somewhere begins again, as a new one.
 *
 * What can fail: `ConsumerNotFound`; a table with views, which PostgreSQL does not drop: then all stays as it was.
 */
import { InvalidOption } from '../core/errors.ts'
import type { Executor, Transaction } from '../database/database.ts'
import { identifier, sql } from '../database/sql.ts'
import { toRillflowError } from '../database/sqlstate.ts'
import { retireInline } from '../events/inline/barrier.ts'
import type { Log } from '../events/log.ts'
import { expected } from '../schema/expected.ts'
import { lockOpen, removeAll } from './dead-letters/row.ts'
import { notFound, together } from './operator.ts'
import { forget } from './row.ts'
import { consumerNames } from './schema.ts'

export interface RemoveOptions {
  readonly dropTables?: boolean | undefined
}

export async function removeConsumers(
  log: Log,
  names: readonly string[],
  executor: Executor = log.database,
  { dropTables = false }: RemoveOptions = {},
): Promise<void> {
  const work = async (given: Executor): Promise<void> => {
    // `together` gives a transaction of its own; a caller that passes one on has it from the database, too.
    const tx = given as Transaction
    const rows = await readRemoved(log, names, tx)
    const missing = names.find(name => !rows.some(row => row.name === name))
    if (missing !== undefined) throw await notFound(log, missing, tx)
    if (dropTables) refuseOthers(rows)
    const all = rows.map(row => row.name)
    // The barrier before the rows, as a switch does.
    for (const { name, state } of rows) if (state === 'inline') await retireInline(log, tx, name)
    await lockOpen(log, all, tx)
    await forget(log, all, tx)
    await removeAll(log, all, tx)
    for (const row of rows) if (dropTables || row.rebuilds !== null) await dropTablesOf(log, row, tx)
  }
  await together(log, executor, work, { changesTables: true })
}

interface RemovedRow {
  readonly name: string
  readonly kind: string
  readonly state: string
  readonly tables: readonly string[] | null
  readonly rebuilds: string | null
}

/** The rows, and those of unfinished rebuilds, whose tables are of no use without them. */
async function readRemoved(log: Log, names: readonly string[], tx: Executor): Promise<RemovedRow[]> {
  return tx.run<RemovedRow>(sql`/* consumers.removed */
    select name, kind, state, definition -> 'tables' as tables, definition ->> 'rebuilds' as rebuilds
    from ${consumerNames(log).consumers}
    where name = any(${names}::text[])
      or definition ->> 'rebuilds' = any(${names}::text[])`)
}

function refuseOthers(rows: readonly RemovedRow[]): void {
  const other = rows.find(row => row.kind !== 'projection')
  if (other === undefined) return
  const reason = `Consumer "${other.name}" is a ${other.kind}, and only projections have tables. Leave "dropTables" out.`
  throw new InvalidOption({ option: 'dropTables', reason })
}

async function dropTablesOf(log: Log, { tables }: RemovedRow, tx: Transaction): Promise<void> {
  for (const name of tables ?? []) {
    // The list is data: it never names a table of the library itself.
    if (Object.hasOwn(expected.tables, name)) continue
    await tx.query(`drop table if exists ${identifier(log.schema, name)}`).catch((error: unknown) => {
      throw toRillflowError(error, name)
    })
  }
}
