/**
 * The tables that a rebuild fills beside the old ones, and the row with its checkpoint. They are made together and go
 * together, so that a rebuild that was cut off can go on where it was: its row says how far the tables are.
 */

import { createHash } from 'node:crypto'
import { removeAll } from '../../consumers/dead-letters/row.ts'
import { ensure, forget, isHeld } from '../../consumers/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import type { Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { toRillflowError } from '../../database/sqlstate.ts'
import type { Log } from '../../events/log.ts'
import { type DeclaredTable, indexesOf } from '../../schema/table.ts'
import { createIndex, createTable, stampIndex } from '../../schema/table-sql.ts'
import { shadowName } from '../consume.ts'
import { RebuildRunning } from '../errors.ts'
import type { Projection } from '../projection.ts'
import { shadowOf } from '../table.ts'

/**
 * Makes the tables and the row, unless a rebuild by the same code was cut off: that one is gone on with. One by other
 * code is thrown away, since half of its rows would be the old code's.
 */
export async function beginShadow(log: Log, projection: Projection, restart: boolean): Promise<void> {
  const name = shadowName(projection)
  const print = fingerprint(projection)
  await log.database.transaction(async tx => {
    for (;;) {
      const [row] = await tx.run<{ print: string | null; held: boolean }>(sql`/* projections.shadow */
        select c.definition ->> 'fingerprint' as print, ${isHeld(log)} as held
        from ${consumerNames(log).consumers} as c
        where c.name = ${name}::text
        for update`)
      if (row?.held === true) throw new RebuildRunning({ projection: projection.name })
      if (row !== undefined && row.print === print && !restart) return
      if (row !== undefined) await forgetShadow(log, tx, projection)
      const { startFrom } = projection.options
      const checkpoint = typeof startFrom === 'number' ? startFrom : 0
      const definition = { rebuilds: projection.name, fingerprint: print }
      const [made] = await ensure(log, [{ name, kind: 'projection', checkpoint, definition }], tx)
      // Another process has just begun.
      if (made === undefined) continue
      for (const { declared } of projection.tables) await makeShadow(log, tx, shadowOf(declared))
      return
    }
  })
}

/** The row, its dead letters and the tables. */
export async function forgetShadow(log: Log, tx: Transaction, projection: Projection): Promise<void> {
  const name = shadowName(projection)
  await removeAll(log, [name], tx)
  await forget(log, [name], tx)
  for (const { declared } of projection.tables) await dropTable(log, tx, shadowOf(declared))
}

async function makeShadow(log: Log, tx: Transaction, shadow: DeclaredTable): Promise<void> {
  await dropTable(log, tx, shadow)
  await ddl(tx, createTable(log.schema, shadow), shadow.name)
  for (const index of indexesOf(shadow)) {
    await ddl(tx, createIndex(log.schema, shadow, index), index.name)
    await ddl(tx, stampIndex(log.schema, index), index.name)
  }
}

async function dropTable(log: Log, tx: Transaction, declared: DeclaredTable): Promise<void> {
  await ddl(tx, `drop table if exists ${identifier(log.schema, declared.name)}`, declared.name)
}

/** Sent as plain text: a statement that is never sent again is not worth preparing. */
export async function ddl(tx: Transaction, text: string, what: string): Promise<void> {
  try {
    await tx.query(text)
  } catch (error) {
    throw toRillflowError(error, what)
  }
}

/** Changes with the tables and with the text of the code. */
function fingerprint(projection: Projection): string {
  const tables = projection.tables.map(({ declared }) => declared)
  return createHash('sha256')
    .update(JSON.stringify([projection.source, tables, projection.filter.types ?? null]))
    .digest('hex')
}
