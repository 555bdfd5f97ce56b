/** Lines into a table, a chunk at a time, parsed by PostgreSQL. */
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Executor } from '../../database/database.ts'
import { Identifier, identifier, type Statement, sql } from '../../database/sql.ts'
import { storedColumns, type TableShape } from '../table-shape.ts'
import type { ArchivedFile } from './manifest.ts'
import { columnList, readColumns } from './rows.ts'
import { checkingFile, lineBreak, readArchived } from './verify.ts'

export interface Loading {
  readonly input: string
  readonly schema: string
  readonly signal: AbortSignal | undefined
  onRows(rows: number, bytes: number): void
}

/** Stores all rows of a file. It is checked once more while it is read: it may have changed since it was verified. */
export async function loadFile(tx: Executor, table: TableShape, file: ArchivedFile, loading: Loading): Promise<void> {
  const { input, schema, signal } = loading
  const check = checkingFile(input, file)
  let rest: Buffer = Buffer.alloc(0)
  let storing: Promise<unknown> = Promise.resolve()
  for await (const chunk of readArchived(input, file)) {
    throwIfAborted(signal)
    check.add(chunk)
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const end = rest.lastIndexOf(lineBreak) + 1
    if (end === 0) continue
    const lines = rest.subarray(0, end)
    rest = rest.subarray(end)
    const { text, rows } = listOf(lines)
    // The next lines are read while the database stores these.
    await storing
    storing = tx.run(inserting(schema, table, text))
    storing.catch(() => {})
    loading.onRows(rows, lines.length)
  }
  await storing
  check.end()
}

/** Lines as one JSON array. In JSON a line break is never part of a value, so each one here ends a row. */
function listOf(lines: Buffer): { text: string; rows: number } {
  const list = Buffer.from(lines)
  let rows = 0
  for (let at = list.indexOf(lineBreak); at >= 0; at = list.indexOf(lineBreak, at + 1)) {
    list[at] = comma
    rows++
  }
  return { text: `[${list.toString('utf8', 0, list.length - 1)}]`, rows }
}

const comma = 44

/** Stores rows given as a JSON array, those that meet a condition if there is one. */
export function inserting(schema: string, table: TableShape, rows: string, where?: Identifier): Statement {
  const name = identifier(schema, table.name)
  const columns = new Identifier(columnList(storedColumns(table)))
  return sql`/* archive.load */
    insert into ${name} (${columns})
    select ${new Identifier(readColumns(table))}
    from json_populate_recordset(null::${name}, ${rows}::json) as r
    where ${where ?? always}`
}

const always = new Identifier('true')
