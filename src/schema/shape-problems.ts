/** The differences between the library's own objects in a schema and the expected ones, each as a problem. */
import { type Problem, report } from './difference.ts'
import { expectedWith } from './expected-with.ts'
import { functionName, type History } from './history.ts'
import { type FoundShape, type SchemaShape, shapeOf, type TableShape } from './shape.ts'

export const bySync = 'open the store with { migrate: true }, or call store.schema.sync() (rillflow schema sync)'
const byHand = 'undo the manual change; store.schema.plan() on an empty schema shows the statement that made it'

export function shapeProblems(found: FoundShape, bodies: ReadonlyMap<string, string>, history: History): Problem[] {
  const actual = shapeOf(found)
  const expected = expectedWith(history.numbers)
  const problems = Object.entries(expected.tables).flatMap(([name, wanted]) =>
    tableProblems(name, wanted, found, actual),
  )
  problems.push(...compare('sequence', '', expected.sequences, actual.sequences))
  return [...problems, ...functionProblems(found, actual, bodies, history)]
}

function functionProblems(
  found: FoundShape,
  actual: SchemaShape,
  bodies: ReadonlyMap<string, string>,
  { outdated, newer, numbers }: History,
): Problem[] {
  const expected = expectedWith(numbers)
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

function tableProblems(name: string, wanted: TableShape, found: FoundShape, actual: SchemaShape): Problem[] {
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
