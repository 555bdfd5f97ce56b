/**
 * Counts or deletes old rows of one table.
 *
 *     count:   one statement
 *     delete:  chunk ─► chunk ─► …, each a transaction of its own
 *
 * Both are made of the same conditions, so a deletion deletes exactly the rows that are counted. A deletion skips rows
 * that others have locked: no statement waits long for it, two at the same time share the work, and one that is
 * interrupted has deleted its chunks so far.
 */
import type { Database, Executor } from './database.ts'
import { type Identifier, identifier, type Statement } from './sql.ts'

/** The old rows of one table. */
export interface OldRows {
  /** The name of the statement, as in its leading comment. */
  readonly label: string
  readonly table: Identifier
  readonly key: readonly string[]
  /** The function of the schema that gives the time. */
  readonly clock: Identifier
  /** The function of the schema that adds milliseconds to a time. */
  readonly later: Identifier
  /** Conditions in SQL on a row `t`; `$1` is the time before which a row is old. */
  readonly where: string
  /** True if rows are made in the order of their key, so that the first ones show whether there are more. */
  readonly isInOrder?: boolean | undefined
  /** Rows of another table that are deleted with them: `column` holds the key. They are not counted. */
  readonly dependents?: { readonly table: Identifier; readonly column: string } | undefined
}

export interface PruneOptions {
  readonly olderThanMs: number
  /** Only counts the rows that would be deleted. */
  readonly dryRun?: boolean | undefined
  readonly signal?: AbortSignal | undefined
  /** Default: each chunk in a transaction of its own. */
  readonly inTurn?: InTurn | undefined
  readonly onChunk?: ((rows: number) => void) | undefined
}

/** Runs one chunk in a transaction. Returns undefined if another process is doing this work. */
export type InTurn = (work: (tx: Executor) => Promise<number>) => Promise<number | undefined>

const rowsPerChunk = 5_000

/** Returns how many rows were deleted, or would be. */
export async function prune(database: Database, old: OldRows, options: PruneOptions): Promise<number> {
  const { olderThanMs, dryRun = false, signal, inTurn = work => database.transaction(work), onChunk } = options
  if (dryRun) return countOf(await database.runArrays(countRows(old, olderThanMs)))
  let total = 0
  while (!signal?.aborted) {
    const count = await inTurn(async tx => countOf(await tx.runArrays(deleteRows(old, olderThanMs))))
    if (count === undefined) break
    total += count
    if (count > 0) onChunk?.(count)
    if (count < rowsPerChunk) break
  }
  return total
}

function countOf([row]: readonly (readonly unknown[])[]): number {
  return Number(row![0])
}

function countRows({ label, table, clock, later, where }: OldRows, olderThanMs: number): Statement {
  const text = `/* ${label} */
    with ${momentOf(clock, later)}
    select count(*)
    from ${table} as t
    where ${beforeMoment(where)}`
  return { label, text, values: [olderThanMs] }
}

function deleteRows(old: OldRows, olderThanMs: number): Statement {
  const { label, table, key, clock, later, where, isInOrder, dependents } = old
  const columns = key.map(column => identifier(column).quoted).join(', ')
  const source = isInOrder
    ? `(select * from ${table} order by ${columns} limit ${rowsPerChunk}) as t
      where ${beforeMoment(where)}`
    : `${table} as t
      where ${beforeMoment(where)}
      limit ${rowsPerChunk}
      for update skip locked`
  const others = dependents && identifier(dependents.column).quoted
  const deleteDependents = dependents
    ? `,
    dependents as (
      delete from ${dependents.table}
      where ${others} in (select ${columns} from deleted))`
    : ''
  const text = `/* ${label} */
    with ${momentOf(clock, later)},
    old as materialized (
      select ${columns}
      from ${source}),
    deleted as (
      delete from ${table}
      where (${columns}) in (select ${columns} from old)
      returning ${columns})${deleteDependents}
    select count(*)
    from deleted`
  return { label, text, values: [olderThanMs] }
}

/** The time before which a row is old, computed once. `clock` has to be called over a column. */
function momentOf(clock: Identifier, later: Identifier): string {
  return `given as materialized (
      select $1::float8 as older_than_ms),
    moment as materialized (
      select ${later}(${clock}(older_than_ms), -older_than_ms) as at
      from given)`
}

function beforeMoment(where: string): string {
  return where.replaceAll('$1', '(select at from moment)')
}
