/**
 * Statements that take too long are told: to the logger, on a channel and in a counter, with their text and never with their
 * values, which may be anybody's. On request the plan comes with it.
 *
 *     store ─► watched database ─► database        two looks at the clock and a promise: 1 µs a statement
 *                    └─ slow ─► told; explained on a connection of its own, never in the transaction it was part of
 *
 * What is measured is what the caller waited: the time until a connection was free is part of it. A plan is asked for with
 * the values of the statement, since without them it would be that of another statement, or none. It is an `explain` that
 * runs nothing, in a transaction with short limits. One is asked for at a time, for one statement once a minute: slowness
 * is not made worse by looking at it.
 */
import { checkWhole } from '../core/whole.ts'
import type { Database, Executor, Transaction } from '../database/database.ts'
import type { Statement } from '../database/sql.ts'
import { runOutside } from '../database/transaction.ts'
import { channels, type Telemetry } from './telemetry.ts'

export interface SlowStatementOptions {
  /** Statements that take longer are told to the logger and on the channel `slow`. Default 500; Infinity tells of none. */
  slowStatementMs?: number | undefined
  /** Tell the plan of slow statements, too. It costs a statement of its own, at most once a minute each. Default false. */
  explainSlow?: boolean | undefined
}

const explainEveryMs = 60_000
const mostRemembered = 500
const longestText = 4_000
const explainMs = 5_000
const explainLockMs = 200

/** The same database, whose slow statements are told. */
export function watchStatements(
  database: Database,
  { telemetry, schema }: { readonly telemetry: Telemetry; readonly schema: string },
  { slowStatementMs = 500, explainSlow = false }: SlowStatementOptions,
): Database {
  if (slowStatementMs === Number.POSITIVE_INFINITY) return database
  checkWhole('slowStatementMs', slowStatementMs, 0)
  const explained = new Map<string, number>()
  let isExplaining = false

  const watched = async <T>(statement: Statement, started: number, sent: Promise<T>): Promise<T> => {
    try {
      return await sent
    } finally {
      const durationMs = performance.now() - started
      if (durationMs > slowStatementMs) void tell(statement, durationMs)
    }
  }

  const tell = async (statement: Statement, durationMs: number): Promise<void> => {
    telemetry.count('slow_statements_total', 1, statement.label)
    const plan = explainSlow && mayExplain(statement) ? await explain(statement) : undefined
    const text = statement.text.slice(0, longestText)
    const told = { schema, statement: statement.label, text, durationMs, ...(plan === undefined ? {} : { plan }) }
    telemetry.log.warn(told, 'a statement was slow')
    telemetry.publish(channels.slow, () => told)
  }

  const mayExplain = ({ text, label }: Statement): boolean => {
    const now = performance.now()
    if (isExplaining || !isExplainable(text) || now - (explained.get(text) ?? -explainEveryMs) < explainEveryMs)
      return false
    if (label === explaining) return false
    if (explained.size >= mostRemembered) explained.clear()
    explained.set(text, now)
    return true
  }

  const explain = async ({ text, values }: Statement): Promise<string> => {
    isExplaining = true
    try {
      const statement = { label: explaining, text: `explain ${text}`, values, unprepared: true }
      const limits = { timeoutMs: explainMs, lockTimeoutMs: explainLockMs }
      // Who waits for the statement does not wait for this, and may be inside of a transaction.
      const rows = await runOutside(() => database.transaction(tx => tx.runArrays(statement), limits))
      return rows.map(([line]) => String(line)).join('\n')
    } catch (error) {
      // That there is none is worth knowing, too.
      return `no plan: ${error instanceof Error ? error.message : String(error)}`
    } finally {
      isExplaining = false
    }
  }

  const executor = (of: Executor): Executor => ({
    run: statement => watched(statement, performance.now(), of.run(statement)),
    runArrays: statement => watched(statement, performance.now(), of.runArrays(statement)),
  })
  const transaction = (tx: Transaction): Transaction => ({
    ...tx,
    ...executor(tx),
    query: (text, values = []) => watched({ label: 'query', text, values }, performance.now(), tx.query(text, values)),
  })
  return {
    ...database,
    ...executor(database),
    transaction: (work, options) => database.transaction(tx => work(transaction(tx)), options),
  }
}

const explaining = 'telemetry.explain'

/** The statements of ours, and of users, that have a plan; behind the comment that names them. */
function isExplainable(text: string): boolean {
  return /^\s*(\/\*.*?\*\/\s*)?(select|insert|update|delete|with|values)\b/is.test(text)
}
