/** Running the statements of queries. */

import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { optionNames, refuseUnknownOptions } from '../../core/options.ts'
import type { Executor } from '../../database/database.ts'
import type { Statement } from '../../database/sql.ts'
import { type CallOptions, prepared } from '../collection.ts'
import { InvalidQuery, UnknownLanguage } from '../errors.ts'
import type { QuerySource, QueryState, Written } from './state.ts'

/** The executor of one call, once the tables of all collections exist. Called before a statement is written. */
export async function executorFor(source: QuerySource, state: QueryState, options: CallOptions): Promise<Executor> {
  refuseUnknownOptions('A query', options, callOptionNames)
  for (const { source: other } of state.included) await prepared(other.collection, options)
  return prepared(source.collection, options)
}

/** The options that every call of a query has. */
export const callOptionNames: readonly string[] = optionNames<CallOptions>({ tx: true, signal: true })

/** Runs a statement, and passes it to the advisor. */
export async function runQuery(
  source: QuerySource,
  state: QueryState,
  { text, parameters }: Written,
  executor: Executor,
): Promise<unknown[][]> {
  const start = elapsedMs()
  const { values, budgetMs } = parameters
  const statement = { label: `${source.label}.query`, text, values, budgetMs, shapeOf: tableOf(source) }
  const rows = await send(source, statement, executor)
  source.noteRun({ state, text, rows: rows.length, tookMs: elapsedMs() - start })
  return rows
}

/** The same for a statement that was written before. */
export async function runPrepared(
  source: QuerySource,
  state: QueryState,
  { text, values, budgetMs }: Pick<Statement, 'text' | 'values' | 'budgetMs'>,
  executor: Executor,
): Promise<unknown[][]> {
  const start = elapsedMs()
  const rows = await send(
    source,
    { label: `${source.label}.query`, text, values, budgetMs, shapeOf: tableOf(source) },
    executor,
  )
  source.noteRun({ state, text, rows: rows.length, tookMs: elapsedMs() - start })
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

async function send(source: QuerySource, statement: Statement, executor: Executor): Promise<unknown[][]> {
  try {
    return await executor.runArrays(statement)
  } catch (error) {
    throw toQueryError(source, error)
  }
}

function tableOf({ collection }: QuerySource): string {
  return `${collection.parts.schema.name}.${collection.tableName}`
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
