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
import { identifier, sql } from '../database/sql.ts'
import { type Problem, report, type Step } from './difference.ts'
import { SequenceBehind } from './errors.ts'
import { expected } from './expected.ts'
import { functionName, type History, readHistory } from './history.ts'
import { repairsOf } from './mend.ts'
import { migrationName } from './migration.ts'
import type { Drawn, Library } from './part.ts'
import { planTables, type Target } from './plan.ts'
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
    const found = await readShape(executor, schema, expected)
    const shape = shapeProblems(found, bodyHashes(library.functions, schema), history)
    const repairs = await repairsOf(executor, target, history, shape)
    const repaired = new Set(repairs.steps.map(step => step.object))
    problems.push(...shape.map(each => (repaired.has(each.object) ? { ...each, fix: byRepair } : each)))
    const isReadable = !problems.some(each => vital.includes(each.object) && each.kind !== 'sequence_changed')
    if (isReadable)
      for (const drawn of library.drawn) problems.push(...(await sequenceProblems(executor, schema, drawn)))
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

async function sequenceProblems(executor: Executor, schema: string, drawn: Drawn): Promise<Problem[]> {
  const behind = await findBehind(executor, schema, drawn)
  if (behind === undefined) return []
  const found = `is at ${behind.drawn}, but ${drawn.column} ${behind.used} of ${drawn.table} is in use: the next append would fail`
  const fix = `stop all writers, then: ${behind.statement}`
  return [report('sequence_behind', `sequence ${drawn.sequence}`, found, fix)]
}

/**
 * Refuses a schema whose sequence is behind: logical replication and some restores copy rows and not sequences. Its log
 * would look empty, and every append would fail.
 */
export async function refuseSequenceBehind(executor: Executor, schema: string, library: Library): Promise<void> {
  for (const drawn of library.drawn) {
    const behind = await findBehind(executor, schema, drawn)
    if (behind !== undefined) throw new SequenceBehind({ schema, sequence: drawn.sequence, ...behind })
  }
}

interface Behind {
  readonly drawn: number
  readonly used: number
  /** Sets the sequence right. */
  readonly statement: string
}

/**
 * In one statement, because a sequence is always read in its present state, and the snapshot of the statement is older:
 * the position of every event in the snapshot was drawn before.
 */
async function findBehind(executor: Executor, schema: string, drawn: Drawn): Promise<Behind | undefined> {
  const sequence = identifier(schema, drawn.sequence)
  const [row] = await executor.run<{ drawn: number; used: number }>(sql`/* schema.positions */
    select
      case when is_called then last_value else last_value - 1 end as drawn,
      (select coalesce(max(${identifier(drawn.column)}), 0) from ${identifier(schema, drawn.table)}) as used
    from ${sequence}`)
  if (row === undefined || row.drawn >= row.used) return undefined
  return { ...row, statement: `select setval('${sequence.quoted.replaceAll("'", "''")}', ${row.used})` }
}

function lack({ kind, object }: Step): Problem {
  const what = kind === 'column' || kind === 'index' ? kind : 'table'
  return report(`${what}_missing`, object, 'is declared and missing', bySync)
}
