/** Records the statements of a store, and shows how the server would run them. */
import type { Database, Transaction } from '../../src/database/database.ts'
import { toText } from '../../src/database/pglite/wire.ts'
import { literal, type Statement } from '../../src/database/sql.ts'

/** The same database, with each statement recorded before it is sent. Statements inside transactions are not recorded. */
export function recording(database: Database, record: (statement: Statement) => void): Database {
  return {
    ...database,
    run: statement => {
      record(statement)
      return database.run(statement)
    },
    runArrays: statement => {
      record(statement)
      return database.runArrays(statement)
    },
    copyOut: text => {
      record({ label: 'copy', text, values: [] })
      return database.copyOut(text)
    },
  }
}

/** The plan of a prepared statement: `force_custom_plan` for the given values, `force_generic_plan` for any. */
export async function explain(tx: Transaction, statement: Statement, mode: string): Promise<string> {
  await tx.query(`set local plan_cache_mode = ${mode}`)
  await tx.query(`prepare hot as ${statement.text}`)
  try {
    const values = statement.values.map(value => (toText(value) === null ? 'null' : literal(toText(value)!)))
    const rows = await tx.query(`explain execute hot${values.length === 0 ? '' : `(${values.join(', ')})`}`)
    return rows.map(row => String(Object.values(row)[0])).join('\n')
  } finally {
    await tx.query('deallocate hot')
  }
}
