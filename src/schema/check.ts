/**
 * Compares the schema with its migrations, functions and declarations. Each difference is reported for people
 * (`problem`, `fix`) and for programs (`kind`).
 *
 * It finds: migrations that are pending, changed or of a newer library; objects of the library that are missing or were
 * altered; triggers and rules, which change the meaning of our statements; a sequence that would hand out positions out
 * of order or twice; and declared tables that differ.
 *
 * The objects are compared only when the schema's migrations are exactly this library's: with one pending or one
 * unknown, they are rightly different. So is a function of a higher revision.
 */

import type { Executor } from '../database/database.ts'
import { fragment, identifier, joinFragments, sql } from '../database/sql.ts'
import { type Problem, report, type Step } from './difference.ts'
import { SequenceBehind } from './errors.ts'
import { expectedWith } from './expected-with.ts'
import { functionName, type History, readHistory } from './history.ts'
import { repairsOf } from './mend.ts'
import { migrationName } from './migration.ts'
import { raiseStatement, readDrawn } from './numbers.ts'
import type { Drawn, Library } from './part.ts'
import { planTables, type Target } from './plan.ts'
import type { Numbers } from './plpgsql.ts'
import { bodyHashes, readShape } from './shape.ts'
import { bySync, shapeProblems } from './shape-problems.ts'

export interface CheckResult {
  /** Whether there are no problems. */
  readonly isHealthy: boolean
  readonly problems: readonly Problem[]
  /**
   * Migrations and functions of a newer library that this one can work with. Such a function is not compared, and with
   * such a migration no object is.
   */
  readonly newer: readonly string[]
}

export async function checkSchema(executor: Executor, target: Target): Promise<CheckResult> {
  const { schema, library } = target
  const history = await readHistory(executor, schema, library)
  if (!history.hasStore) {
    const problem = history.hasSchema ? 'has no store in it' : 'does not exist'
    return { isHealthy: false, problems: [report('schema_missing', `schema ${schema}`, problem, bySync)], newer: [] }
  }
  const problems = historyProblems(history)
  if (problems.length === 0 && history.unknown.length === 0) {
    const found = await readShape(executor, schema, expectedWith(history.numbers))
    const shape = shapeProblems(found, bodyHashes(library.functions, schema, history.numbers), history)
    const repairs = await repairsOf(executor, target, history, shape)
    const repaired = new Set(repairs.steps.map(step => step.object))
    problems.push(...shape.map(each => (repaired.has(each.object) ? { ...each, fix: byRepair } : each)))
    const isReadable = !problems.some(each => vital.includes(each.object) && each.kind !== 'sequence_changed')
    if (isReadable) problems.push(...(await findBehind(executor, schema, library, history.numbers)).map(behindProblem))
  }
  const declared = await planTables(executor, target)
  const lacking = new Map(declared.steps.map(step => [step.object, lack(step)]))
  problems.push(...lacking.values(), ...declared.problems)
  const unknown = history.unknown.filter(each => !each.breaking).map(migrationName)
  const newer = [...unknown, ...history.newer.map(name => functionName({ name }))]
  return { isHealthy: problems.length === 0, problems, newer }
}

const byRepair = 'call store.schema.sync() (rillflow schema sync)'

/** The objects that the positions are read from. */
const vital = ['table events', 'column events.position', 'sequence events_position']

function historyProblems({ pending, changed, unknown }: History): Problem[] {
  const byUpdate = 'update rillflow in this program'
  const byOldVersion = 'use the version of rillflow that applied it; a released migration never changes'
  const breaking = unknown.filter(each => each.breaking)
  return [
    ...pending.map(each => report('migration_pending', migrationName(each), 'is not applied', bySync)),
    ...changed.map(each =>
      report('migration_changed', migrationName(each), 'was applied with another text', byOldVersion),
    ),
    ...breaking.map(each => report('schema_newer', migrationName(each), 'is not known to this library', byUpdate)),
  ]
}

/**
 * Refuses a schema whose numbers are behind: logical replication and some restores copy rows and not sequences. Its log
 * would look empty, and every append would fail.
 */
export async function refuseSequenceBehind(
  executor: Executor,
  schema: string,
  library: Library,
  numbers: Numbers,
): Promise<void> {
  const [behind] = await findBehind(executor, schema, library, numbers)
  if (behind !== undefined) {
    const { sequence, drawn, used, statement } = behind
    throw new SequenceBehind({ schema, sequence, drawn, used, statement })
  }
}

interface Behind extends Drawn {
  readonly drawn: number
  readonly used: number
  /** Sets the source right. */
  readonly statement: string
}

/** The rows are read first: a number that was in use before the sources were read was drawn before. */
async function findBehind(executor: Executor, schema: string, library: Library, numbers: Numbers): Promise<Behind[]> {
  const highest = library.drawn.map(
    ({ table, column }) => fragment`(select coalesce(max(${identifier(column)}), 0) from ${identifier(schema, table)})`,
  )
  const used = await executor.runArrays(sql`/* schema.used */
    select ${joinFragments(highest, ', ')}`)
  const drawn = await readDrawn(executor, schema, numbers)
  return library.drawn.flatMap((source, at) => {
    const [highestUsed, lastDrawn] = [used[0]![at] as number, drawn[source.sequence] ?? 0]
    if (lastDrawn >= highestUsed) return []
    const statement = raiseStatement(schema, numbers, source.sequence, highestUsed)
    return [{ ...source, drawn: lastDrawn, used: highestUsed, statement }]
  })
}

function behindProblem({ sequence, table, column, drawn, used, statement }: Behind): Problem {
  const found = `is at ${drawn}, but ${column} ${used} of ${table} is in use: the next append would fail`
  return report('sequence_behind', `sequence ${sequence}`, found, `stop all writers, then: ${statement}`)
}

function lack({ kind, object }: Step): Problem {
  const what = kind === 'column' || kind === 'index' ? kind : 'table'
  return report(`${what}_missing`, object, 'is declared and missing', bySync)
}
