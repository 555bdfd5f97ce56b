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
import { expected } from './expected.ts'
import { functionName, type History, readHistory } from './history.ts'
import { migrationName } from './migration.ts'
import type { Drawn } from './part.ts'
import { planTables, type Target } from './plan.ts'
import { bodyHashes, type FoundShape, readShape, type SchemaShape, shapeOf } from './shape.ts'

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
    problems.push(...shapeProblems(found, bodyHashes(library.functions, schema), history))
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

/** The objects that the positions are read from. */
const vital = ['table events', 'column events.position', 'sequence events_position']

const bySync = 'open the store with { migrate: true }, or call store.schema.sync() (rillflow schema sync)'
const byHand = 'undo the manual change; store.schema.plan() on an empty schema shows the statement that made it'

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

function shapeProblems(found: FoundShape, bodies: ReadonlyMap<string, string>, history: History): Problem[] {
  const actual = shapeOf(found)
  const problems = Object.keys(expected.tables).flatMap(name => tableProblems(name, found, actual))
  problems.push(...compare('sequence', '', expected.sequences, actual.sequences))
  return [...problems, ...functionProblems(found, actual, bodies, history)]
}

function functionProblems(
  found: FoundShape,
  actual: SchemaShape,
  bodies: ReadonlyMap<string, string>,
  { outdated, newer }: History,
): Problem[] {
  const others = new Set([...outdated.map(each => each.name), ...newer])
  const wanted = Object.entries(expected.functions).filter(([name]) => !others.has(name))
  const problems = compare('function', '', Object.fromEntries(wanted), actual.functions)
  for (const each of outdated) {
    const isThere = found.objects.some(object => object.kind === 'function' && object.name === each.name)
    const [kind, problem] = isThere ? (['changed', 'has another body'] as const) : (['missing', 'is missing'] as const)
    problems.push(report(`function_${kind}`, functionName(each), problem, bySync))
  }
  for (const { name, bodyHash } of found.objects) {
    if (others.has(name) || !bodies.has(name) || bodyHash === null || bodies.get(name) === bodyHash) continue
    problems.push(report('function_changed', functionName({ name }), 'has another body', byHand))
  }
  return problems
}

function tableProblems(name: string, found: FoundShape, actual: SchemaShape): Problem[] {
  const wanted = expected.tables[name]!
  const table = found.tables.get(name)
  if (table === undefined) return [report('table_missing', `table ${name}`, 'is missing', byHand)]
  const kind = table.kind === 'table' ? [] : [report('table_changed', `table ${name}`, `is: ${table.kind}`, byHand)]
  if (!table.kind.endsWith('table')) return kind
  const problems = [...kind]
  problems.push(...compare('column', `${name}.`, wanted.columns, actual.tables[name]!.columns))
  problems.push(...compare('index', '', wanted.indexes, actual.tables[name]!.indexes))
  for (const index of table.indexes) {
    if (!index.valid && Object.hasOwn(wanted.indexes, index.name))
      problems.push(report('index_invalid', `index ${index.name}`, 'is invalid, so it is not used', 'reindex it'))
  }
  const dropping = `drop it: nothing may change the rows that are written to ${name}`
  for (const kind of ['trigger', 'rule'] as const) {
    for (const each of table[`${kind}s`])
      problems.push(report(kind, `${kind} ${each}`, `is on table ${name}`, dropping))
  }
  return problems
}

function compare(
  kind: 'column' | 'index' | 'sequence' | 'function',
  prefix: string,
  wanted: Readonly<Record<string, string>>,
  actual: Readonly<Record<string, string>>,
): Problem[] {
  return Object.entries(wanted).flatMap(([name, definition]) => {
    const found = actual[name]
    if (found === definition) return []
    const object = `${kind} ${prefix}${name}`
    if (found === undefined) return report(`${kind}_missing`, object, 'is missing', byHand)
    return report(`${kind}_changed`, object, `is ${found}, expected is ${definition}`, byHand)
  })
}

/**

 * In one statement, because a sequence is always read in its present state, and the snapshot of the statement is older:
 * the position of every event in the snapshot was drawn before.
 */
async function sequenceProblems(executor: Executor, schema: string, drawn: Drawn): Promise<Problem[]> {
  const sequence = identifier(schema, drawn.sequence)
  const [row] = await executor.run<{ drawn: number; used: number }>(sql`/* schema.positions */
    select
      case when is_called then last_value else last_value - 1 end as drawn,
      (select coalesce(max(${identifier(drawn.column)}), 0) from ${identifier(schema, drawn.table)}) as used
    from ${sequence}`)
  if (row === undefined || row.drawn >= row.used) return []
  const found = `is at ${row.drawn}, but ${drawn.column} ${row.used} of ${drawn.table} is in use: the next append would fail`
  const fix = `stop all writers, then: select setval('${sequence.quoted.replaceAll("'", "''")}', ${row.used})`
  return [report('sequence_behind', `sequence ${drawn.sequence}`, found, fix)]
}

function lack({ kind, object }: Step): Problem {
  const what = kind === 'column' || kind === 'index' ? kind : 'table'
  return report(`${what}_missing`, object, 'is declared and missing', bySync)
}
