/** Sends statements through `pg`, with our own parsers, and keeps track of the calls that are running. */
import type pg from 'pg'
import { type Deferred, deferred } from '../../core/abort.ts'
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

/**
 * The calls that are running. Closing the database waits for them; those that take too long are rejected then, because a
 * pool that ends forgets the callers that wait for a connection.
 */
export interface RunningCalls {
  track<T>(call: () => Promise<T>): Promise<T>
  /** Resolves when no call is running, or after `limitMs`. */
  whenIdle(limitMs: number): Promise<void>
  /** Rejects all calls that are still running. */
  rejectAll(error: Error): void
}

export function openRunningCalls(): RunningCalls {
  const running = new Set<(error: Error) => void>()
  let idle: Deferred<void> | undefined
  const remove = (reject: (error: Error) => void): void => {
    running.delete(reject)
    if (running.size === 0) idle?.resolve()
  }
  return {
    track: call =>
      new Promise((resolve, reject) => {
        running.add(reject)
        call().then(
          value => {
            remove(reject)
            resolve(value)
          },
          error => {
            remove(reject)
            reject(error)
          },
        )
      }),
    async whenIdle(limitMs) {
      if (running.size === 0) return
      idle = deferred<void>()
      const timer = setTimeout(idle.resolve, limitMs)
      await idle.promise
      clearTimeout(timer)
    },
    rejectAll(error) {
      for (const reject of running) reject(error)
    },
  }
}
