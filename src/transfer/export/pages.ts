/** Pages of lines in the order of a name, and a version where the table has one; each page is a transaction of its own. */
import { Identifier, identifier, type Statement, sql } from '../../database/sql.ts'
import type { Place } from '../place.ts'
import type { TableShape } from '../table-shape.ts'
import type { Key } from './copy.ts'
import { lineOf, writeExactly, writtenColumns } from './rows.ts'

export interface PageRequest {
  /** The column with the name: `stream`, `id`. */
  readonly name: string
  readonly after: Key
  readonly limit: number
  /** Up to this one. Default: to the end. */
  readonly upTo?: Key | undefined
  /** Only under these names. Default: under all. */
  readonly among?: readonly string[] | undefined
  /** Only rows that meet this. Default: all. */
  readonly where?: Identifier | undefined
}

export interface PageLine {
  readonly key: Key
  readonly line: string
}

export async function readPage(place: Place, table: TableShape, request: PageRequest): Promise<PageLine[]> {
  const { after, upTo, among, limit, where = always } = request
  const name = identifier(request.name)
  const version = table.columns.some(column => column.name === 'version') ? identifier('version') : noVersion
  return readLines(
    place,
    sql`/* archive.page */
      select p.name, p.version, ${new Identifier(lineOf(table, new Identifier('p.line')))}
      from (
        select ${name} as name, ${version} as version, (
          select r
          from (select ${new Identifier(writtenColumns(table))}) as r) as line
        from ${identifier(place.schema, table.name)}
        where (${name}, ${version}) > (${after[0]}::text, ${after[1]}::bigint)
          and (${upTo?.[0] ?? null}::text is null
            or (${name}, ${version}) <= (${upTo?.[0] ?? null}::text, ${upTo?.[1] ?? null}::bigint))
          and (${among ?? null}::text[] is null or ${name} = any(${among ?? null}::text[]))
          and ${where}
        order by ${name}, ${version}
        limit ${limit}::integer) as p`,
  )
}

/** Runs a statement that gives a name, a version and a line. */
export async function readLines({ database }: Place, statement: Statement): Promise<PageLine[]> {
  const rows = await database.transaction(async tx => {
    await writeExactly(tx)
    // Planned for the values given: most of its conditions are left out then.
    return tx.runArrays({ ...statement, unprepared: true })
  })
  return (rows as [string, number, string][]).map(([name, version, line]) => ({ key: [name, `${version}`], line }))
}

export function listOfLines(lines: readonly PageLine[]): string {
  return `[${lines.map(({ line }) => line).join(',')}]`
}

const always = new Identifier('true')
const noVersion = new Identifier('0::bigint')
