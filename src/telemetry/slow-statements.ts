/**
 * Reports statements that take too long: to the logger, on a channel and in a counter, with their text and never with
 * their values, which may be personal data. On request their plan is added.
 *
 *     store ─► watched database ─► database        two looks at the clock and a promise: 1 µs per statement
 *                    └─ slow ─► report, with a plan that is read on a connection of its own
 *
 * The time is the whole wait of the caller, including the wait for a free connection. A plan is read with the values of
 * the statement, because without them it would be that of another statement; they are taken out of its text. It is an `explain` that runs nothing, in a
 * transaction with short limits: one at a time, and for one statement once a minute, so that looking at slowness does
 * not add to it.
 */
import { elapsedMs } from '../core/host.ts'
import { checkWhole } from '../core/options.ts'
import type { Database, Executor, Transaction } from '../database/database.ts'
import type { Statement } from '../database/sql.ts'
import { runOutside } from '../database/transaction.ts'
import { addStatement } from './cost.ts'
import { channels, type Telemetry } from './telemetry.ts'

export interface SlowStatementOptions {
  /** Statements that take longer are reported to the logger and on the channel `slow`. Default 500; Infinity: none. */
  slowStatementMs?: number | undefined
  /** Adds the plan of slow statements. It costs one more statement, at most once a minute for each. Default false. */
  explainSlow?: boolean | undefined
}

const explainEveryMs = 60_000
const maxRemembered = 500
const maxTextLength = 4_000
const explainMs = 5_000
const explainLockMs = 200
const explainLabel = 'telemetry.explain'

/** The same database, with its slow statements reported. */
export function watchStatements(
  database: Database,
  { telemetry, schema }: { readonly telemetry: Telemetry; readonly schema: string },
  { slowStatementMs = 500, explainSlow = false }: SlowStatementOptions,
): Database {
  if (slowStatementMs === Number.POSITIVE_INFINITY) return database
  checkWhole('slowStatementMs', slowStatementMs, 0)
  /** When each text was explained last. */
  const explainedAt = new Map<string, number>()
  let isExplaining = false

  /** The caller gets the promise itself: to look at the clock is not in its way. */
  const watched = <T>(statement: Statement, started: number, sent: Promise<T>): Promise<T> => {
    const look = (): void => {
      const durationMs = elapsedMs() - started
      addStatement(durationMs)
      if (durationMs > slowStatementMs) void report(statement, durationMs)
    }
    sent.then(look, look)
    return sent
  }

  const report = async (statement: Statement, durationMs: number): Promise<void> => {
    telemetry.count('slow_statements_total', 1, statement.label)
    const plan = explainSlow && mayExplain(statement) ? await explain(statement) : undefined
    const text = statement.text.slice(0, maxTextLength)
    const fields = { schema, statement: statement.label, text, durationMs, ...(plan === undefined ? {} : { plan }) }
    telemetry.log.warn(fields, 'A statement was slow.')
    telemetry.publish(channels.slow, () => fields)
  }

  const mayExplain = ({ text, label }: Statement): boolean => {
    const now = elapsedMs()
    if (isExplaining || label === explainLabel || !isExplainable(text)) return false
    if (now - (explainedAt.get(text) ?? -explainEveryMs) < explainEveryMs) return false
    if (explainedAt.size >= maxRemembered) explainedAt.clear()
    explainedAt.set(text, now)
    return true
  }

  const explain = async ({ text, values }: Statement): Promise<string> => {
    isExplaining = true
    try {
      const statement = { label: explainLabel, text: `explain ${text}`, values, unprepared: true }
      const limits = { timeoutMs: explainMs, lockTimeoutMs: explainLockMs }
      // Outside of the caller's transaction, if it has one. The caller does not wait for this.
      const rows = await runOutside(() => database.transaction(tx => tx.runArrays(statement), limits))
      return withoutValues(rows.map(([line]) => String(line)).join('\n'))
    } catch (error) {
      // The message of the server may quote a value.
      return `no plan: ${(error as { sqlState?: string }).sqlState ?? (error as Error).name}`
    } finally {
      isExplaining = false
    }
  }

  const watchExecutor = (executor: Executor): Executor => ({
    run: statement => watched(statement, elapsedMs(), executor.run(statement)),
    runArrays: statement => watched(statement, elapsedMs(), executor.runArrays(statement)),
  })
  const watchTransaction = (tx: Transaction): Transaction => ({
    ...tx,
    ...watchExecutor(tx),
    query: (text, values = []) => watched({ label: 'query', text, values }, elapsedMs(), tx.query(text, values)),
  })
  return {
    ...database,
    ...watchExecutor(database),
    transaction: (work, options) => database.transaction(tx => work(watchTransaction(tx)), options),
  }
}

/** Conditions of a plan have the values of the statement in them: texts in quotes, and numbers. */
function withoutValues(plan: string): string {
  const texts = plan.replaceAll(/'(?:[^']|'')*'/g, `'?'`)
  return texts.replaceAll(/^ +[A-Z][A-Za-z ]+: .*$/gm, line => line.replaceAll(/(?<![\w$."])-?\d+(?:\.\d+)?\b/g, '?'))
}

/** Whether a statement has a plan. A comment with its name may come first. */
function isExplainable(text: string): boolean {
  return /^\s*(\/\*.*?\*\/\s*)?(select|insert|update|delete|with|values)\b/is.test(text)
}
