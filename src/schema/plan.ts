/**
 * The plan of a sync, as SQL: pending migrations first, then functions, then the missing parts of declared tables.
 * `sync` runs exactly this list, made anew under its lock, so that a plan shown to a person and the work done cannot
 * differ in kind.
 */
import type { Executor } from '../database/database.ts'
import { hasRows, readTables } from './catalogue.ts'
import { dependsOnRows, diffTable } from './diff.ts'
import { type Difference, join, nothing } from './difference.ts'
import { historySteps, readHistory, refuseForeignHistory } from './history.ts'
import { planRepairs } from './mend.ts'
import type { Library } from './part.ts'
import { type DeclaredTable, indexesOf } from './table.ts'

/** One schema, and the objects that it should have. */
export interface Target extends DeclaredTarget {
  readonly library: Library
}

/** The same without the library's own objects. */
export interface DeclaredTarget {
  readonly schema: string
  readonly tables: readonly DeclaredTable[]
  /** Whether there is a second connection to build indexes on, while writers write. Default false. */
  readonly concurrently?: boolean | undefined
}

/** `steps` are the statements to run, in order; `problems` are differences that no sync repairs. */
export type Plan = Difference

export async function makePlan(executor: Executor, target: Target): Promise<Plan> {
  const { schema, library } = target
  const history = await readHistory(executor, schema, library)
  refuseForeignHistory(history, schema, library)
  return join([
    { steps: historySteps(history, schema), problems: [] },
    await planRepairs(executor, target, history),
    await planTables(executor, target),
  ])
}

/** The part of a plan that concerns declared tables. One query, unless it matters whether there are rows. */
export async function planTables(executor: Executor, target: DeclaredTarget): Promise<Difference> {
  const { schema, tables, concurrently = false } = target
  if (tables.length === 0) return nothing
  const names = tables.flatMap(table => [table.name, ...indexesOf(table).map(index => index.name)])
  const found = await readTables(executor, schema, names)
  const filled = new Set<string>()
  for (const table of tables) {
    if (!dependsOnRows(table, found.get(table.name))) continue
    if (await hasRows(executor, schema, table.name)) filled.add(table.name)
  }
  return join(tables.map(table => diffTable(table, { schema, found, filled, concurrently })))
}
