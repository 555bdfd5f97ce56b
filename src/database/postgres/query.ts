/** Sending one statement through `pg`, with our own parsers, prepared under a name or not. */
import type pg from 'pg'
import { parsers } from '../parse.ts'
import { preparedName, type Statement } from '../sql.ts'

export interface DriverTypes {
  getTypeParser(oid: number, format?: string): (text: string) => unknown
}

/** Our parsers for the types we promise, the driver's (with whatever the user set there) for all others. */
export function driverTypes(driver: typeof pg): DriverTypes {
  return {
    getTypeParser: (oid, format) => {
      const parser = format === 'binary' ? undefined : parsers[oid]
      return parser ?? (driver.types.getTypeParser(oid, format as 'text') as (text: string) => unknown)
    },
  }
}

export interface SendOptions {
  readonly prepare: boolean
  readonly arrays: boolean
  readonly types: DriverTypes
  readonly timeoutMs?: number | undefined
}

/** Works on a pool and on a single connection alike. */
export function send(
  to: { query(query: pg.QueryConfig): Promise<pg.QueryResult> },
  statement: Statement,
  { prepare, arrays, types, timeoutMs }: SendOptions,
): Promise<pg.QueryResult> {
  const query: Record<string, unknown> = { text: statement.text, values: statement.values, types }
  if (prepare && statement.unprepared !== true) query.name = preparedName(statement)
  if (arrays) query.rowMode = 'array'
  if (timeoutMs !== undefined) query.query_timeout = timeoutMs
  return to.query(query as unknown as pg.QueryConfig)
}
