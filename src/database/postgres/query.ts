/** Sends statements through `pg`, with our own parsers. */
import type pg from 'pg'
import { ownParser, parsers } from '../parse.ts'
import type { PreparedShapes } from '../prepared.ts'
import { preparedName, type Statement } from '../sql.ts'
import { refuseUnstorable } from '../storable.ts'

export interface DriverTypes {
  getTypeParser(oid: number, format?: string): (text: string) => unknown
}

/** For our own statements, whatever a user has set for the whole driver. */
export const ownTypes: DriverTypes = { getTypeParser: oid => ownParser(oid) }

/** For users' statements: our parsers for the types we define, and the driver's (with the user's settings) for all others. */
export function driverTypes(driver: typeof pg): DriverTypes {
  return {
    getTypeParser: (oid, format) => {
      const parser = format === 'binary' ? undefined : parsers[oid]
      return parser ?? (driver.types.getTypeParser(oid, format as 'text') as (text: string) => unknown)
    },
  }
}

export interface SendOptions {
  /** Which statements are prepared; undefined: none. */
  readonly shapes: PreparedShapes | undefined
  readonly arrays: boolean
  readonly timeoutMs?: number | undefined
}

/** Sends on a connection, prepared under a name if it is one of `shapes`. */
export async function send(
  client: { query(query: pg.QueryConfig): Promise<pg.QueryResult> },
  statement: Statement,
  { shapes, arrays, timeoutMs }: SendOptions,
): Promise<pg.QueryResult> {
  refuseUnstorable(statement.label, statement.text, statement.values)
  const query: Record<string, unknown> = { text: statement.text, values: statement.values, types: ownTypes }
  // Always with a parse message: the server then refuses a text of two statements.
  query.queryMode = 'extended'
  if (shapes?.keeps(statement) === true) query.name = preparedName(statement)
  if (arrays) query.rowMode = 'array'
  if (timeoutMs !== undefined) query.query_timeout = timeoutMs
  return client.query(query as unknown as pg.QueryConfig)
}
