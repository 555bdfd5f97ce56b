/**
 * Damage to the library's own objects: an index, a table or a function that was dropped, and an index whose build was
 * interrupted, is made again by a sync, where no data can be lost by it. Every other difference is a problem in the plan, for a person to decide.
 *
 *     found shape ──► missing or invalid index, or table that can begin empty ──► the statements of the migration that made it
 *                 └─► anything else ──► a problem
 *
 * A table that others refer to (`Part.referred`) is not made again. With an empty `streams` versions would be given out
 * twice, and with an empty `consumers` every event would be applied a second time. Neither is a sequence: it would begin
 * at 1.
 *
 * The objects are compared only when the schema's migrations are exactly this library's: with one pending or one
 * unknown, they are rightly different. So is a function of a higher revision.
 */
import type { Executor } from '../database/database.ts'
import { identifier } from '../database/sql.ts'
import { hasRows } from './catalogue.ts'
import { type Difference, join, nothing, type Problem, type Step } from './difference.ts'
import { expectedWith } from './expected-with.ts'
import type { History } from './history.ts'
import type { Target } from './plan.ts'
import { nameIn } from './plpgsql.ts'
import { bodyHashes, readShape } from './shape.ts'
import { shapeProblems } from './shape-problems.ts'

export async function planRepairs(executor: Executor, target: Target, history: History): Promise<Difference> {
  if (!history.hasStore || history.pending.length > 0 || history.unknown.length > 0) return nothing
  const { schema, library } = target
  const found = await readShape(executor, schema, expectedWith(history.numbers))
  return repairsOf(
    executor,
    target,
    history,
    shapeProblems(found, bodyHashes(library.functions, schema, history.numbers), history),
  )
}

/** A step for each of the problems that a sync can repair. Functions that are made again are steps already. */
export async function repairsOf(
  executor: Executor,
  target: Target,
  history: History,
  problems: readonly Problem[],
): Promise<Difference> {
  const remade = new Set(history.outdated.map(({ name }) => `function ${name}`))
  const rest = problems.filter(each => !remade.has(each.object))
  return join(await Promise.all(rest.map(each => repair(executor, target, each))))
}

async function repair(executor: Executor, target: Target, problem: Problem): Promise<Difference> {
  const asProblem: Difference = { steps: [], problems: [problem] }
  const [kind, name] = problem.object.split(' ') as [string, string]
  if (problem.kind === 'table_missing') {
    const texts = target.library.referred.includes(name) ? [] : statementsOf(target, name)
    return texts.length === 0 ? asProblem : stepsOf('table', problem.object, texts)
  }
  const isInvalid = problem.kind === 'index_invalid'
  if ((problem.kind !== 'index_missing' && !isInvalid) || kind !== 'index') return asProblem
  const made = indexStatement(target, name)
  // The index of a primary key belongs to the table.
  if (made === undefined) return asProblem
  const isFilled = await hasRows(executor, target.schema, made.table)
  const isAlone = target.concurrently === true && isFilled
  const texts = isInvalid ? [`drop index ${identifier(target.schema, name)}`, made.text] : [made.text]
  const concurrent = (text: string): string => text.replace(/ index /, ' index concurrently ')
  const reason = isInvalid ? 'its build was interrupted' : undefined
  const how: How = isAlone ? { isAlone } : isFilled ? { locksWriters: true } : {}
  return stepsOf('index', problem.object, isAlone ? texts.map(concurrent) : texts, { ...how, reason })
}

type How = Pick<Step, 'isAlone' | 'locksWriters'> & { readonly reason?: string | undefined }

function stepsOf(
  kind: 'table' | 'index',
  object: string,
  texts: readonly string[],
  { reason = 'it is missing', ...how }: How = {},
): Difference {
  const step: Omit<Step, 'sql'> = { kind, object, reason, ...how }
  return { steps: texts.map(sql => ({ ...step, sql })), problems: [] }
}

/** All statements of the migrations on a table: those that make it and its indexes, and fill it. */
function statementsOf({ library, schema }: Target, table: string): string[] {
  const isOf = (statement: string): boolean => new RegExp(`^[^(]*~${table}\\b`).test(statement)
  return library.migrations
    .flatMap(each => each.statements)
    .filter(isOf)
    .map(statement => nameIn(schema, statement))
}

function indexStatement({ library, schema }: Target, index: string): { table: string; text: string } | undefined {
  for (const statement of library.migrations.flatMap(each => each.statements)) {
    const made = /^create (?:unique )?index (\w+) on ~(\w+)/.exec(statement)
    if (made?.[1] === index) return { table: made[2]!, text: nameIn(schema, statement) }
  }
  return undefined
}
