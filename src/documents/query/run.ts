/** Running the statements of queries. */
import { isRillflowError } from '../../core/errors.ts'
import type { Executor } from '../../database/database.ts'
import type { Statement } from '../../database/sql.ts'
import { type CallOptions, prepared } from '../collection.ts'
import { InvalidQuery, UnknownLanguage } from '../errors.ts'
import type { QuerySource, QueryState, Written } from './state.ts'

/** The executor of one call, once the tables of all collections exist. Called before a statement is written. */
export async function executorFor(source: QuerySource, state: QueryState, options: CallOptions): Promise<Executor> {
  for (const { source: other } of state.included) await prepared(other.collection, options)
  return prepared(source.collection, options)
}

/** Runs a statement, and passes it to the advisor. */
export async function runQuery(
  source: QuerySource,
  state: QueryState,
  { text, parameters }: Written,
  executor: Executor,
): Promise<unknown[][]> {
  const start = performance.now()
  const rows = await runText(source, text, parameters.values, executor)
  source.noteRun({ state, text, rows: rows.length, tookMs: performance.now() - start })
  return rows
}

/** The same for a statement that is always prepared. */
export async function runPrepared(
  source: QuerySource,
  state: QueryState,
  { text, values }: { readonly text: string; readonly values: readonly unknown[] },
  executor: Executor,
): Promise<unknown[][]> {
  const start = performance.now()
  const rows = await send(source, { label: `${source.label}.query`, text, values }, executor)
  source.noteRun({ state, text, rows: rows.length, tookMs: performance.now() - start })
  return rows
}

/** Returns the lines of a plan. */
export function runExplain(
  source: QuerySource,
  text: string,
  values: readonly unknown[],
  executor: Executor,
): Promise<unknown[][]> {
  return send(source, { label: `${source.label}.explain`, text, values, unprepared: true }, executor)
}

/** Runs a statement; it is prepared while there are not too many. */
function runText(
  source: QuerySource,
  text: string,
  values: readonly unknown[],
  executor: Executor,
): Promise<unknown[][]> {
  const unprepared = !isWorthPreparing(source, text)
  return send(source, { label: `${source.label}.query`, text, values, unprepared }, executor)
}

async function send(source: QuerySource, statement: Statement, executor: Executor): Promise<unknown[][]> {
  try {
    return await executor.runArrays(statement)
  } catch (error) {
    throw toQueryError(source, error)
  }
}

/** A prepared statement stays on its connection, so the number of different ones is limited. */
const maxPrepared = 200

function isWorthPreparing({ prepared: known }: QuerySource, text: string): boolean {
  if (known.has(text)) return true
  if (known.size >= maxPrepared) return false
  known.add(text)
  return true
}

/** Errors in operands that only the database can find. */
function toQueryError({ collection }: QuerySource, error: unknown): unknown {
  if (!isRillflowError(error, 'database_failed')) return error
  const { sqlState, reason } = error as unknown as { sqlState: string; reason: string }
  if (sqlState === invalidRegex) return new InvalidQuery({ collection: collection.name, reason }, error)
  const language = sqlState === undefinedObject ? /text search configuration "([^"]*)"/.exec(reason)?.[1] : undefined
  return language === undefined ? error : new UnknownLanguage({ language, known: [] }, error)
}

const invalidRegex = '2201B'
const undefinedObject = '42704'
