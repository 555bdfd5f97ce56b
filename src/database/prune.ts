/**
 * Old rows, counted or deleted. What is counted is what a deletion would take, since both are made of the same conditions.
 * A deletion goes in chunks, each a transaction of its own, and passes over rows that others have locked: nobody waits long
 * for it, two at once share the work, and one that is interrupted has done what it has done.
 */
import type { Database, Executor } from './database.ts'
import { type Identifier, identifier, type Statement } from './sql.ts'

/** Rows of one table that are old. */
export interface OldRows {
  /** As in a statement's leading comment. */
  readonly label: string
  readonly table: Identifier
  readonly key: readonly string[]
  /** The function that reads the time, over a column. */
  readonly clock: Identifier
  /** Conditions, in SQL, on a row `t`; `$1` is the time before which it is old. */
  readonly where: string
  /** Rows come to be in the order of the key, so that a look at the oldest tells whether there is more. */
  readonly isInOrder?: boolean | undefined
  /** Rows of another table that go with one of these: the column that has its key. They are not counted. */
  readonly dependents?: { readonly table: Identifier; readonly column: string } | undefined
}

export interface PruneOptions {
  readonly olderThanMs: number
  /** Only tell how many would go. */
  readonly dryRun?: boolean | undefined
  readonly signal?: AbortSignal | undefined
  /** Default: in a transaction of its own. */
  readonly inTurn?: InTurn | undefined
  readonly onChunk?: ((rows: number) => void) | undefined
}

/** Runs one chunk in a transaction; undefined means that it is not for us to do. */
export type InTurn = (work: (tx: Executor) => Promise<number>) => Promise<number | undefined>

const chunk = 5_000

/** Returns how many rows went, or would go. */
export async function prune(database: Database, old: OldRows, options: PruneOptions): Promise<number> {
  const { olderThanMs, dryRun = false, signal, inTurn = work => database.transaction(work), onChunk } = options
  if (dryRun) return Number((await database.runArrays(countStatement(old, olderThanMs)))[0]![0])
  let total = 0
  while (!signal?.aborted) {
    const count = await inTurn(async tx => Number((await tx.runArrays(deleteStatement(old, olderThanMs)))[0]![0]))
    if (count === undefined) break
    total += count
    if (count > 0) onChunk?.(count)
    if (count < chunk) break
  }
  return total
}

function countStatement(old: OldRows, olderThanMs: number): Statement {
  const { label, table } = old
  const text = `/* ${label} */
    select count(*)
    from ${table} as t
    where ${conditions(old)}`
  return { label, text, values: [olderThanMs] }
}

function deleteStatement(old: OldRows, olderThanMs: number): Statement {
  const { label, table, key, isInOrder, dependents } = old
  const columns = key.map(column => identifier(column).quoted).join(', ')
  const source = isInOrder
    ? `(select * from ${table} order by ${columns} limit ${chunk}) as t
      where ${conditions(old)}`
    : `${table} as t
      where ${conditions(old)}
      limit ${chunk}
      for update skip locked`
  const others = dependents && identifier(dependents.column).quoted
  const more = dependents
    ? `,
    more as (
      delete from ${dependents.table}
      where ${others} in (select ${columns} from gone))`
    : ''
  const text = `/* ${label} */
    with old as materialized (
      select ${columns}
      from ${source}),
    gone as (
      delete from ${table}
      where (${columns}) in (select ${columns} from old)
      returning ${columns})${more}
    select count(*)
    from gone`
  return { label, text, values: [olderThanMs] }
}

/** The age, given as `$1` in milliseconds, as the time that the conditions are about. */
function conditions({ where, clock, key }: OldRows): string {
  return where.replaceAll('$1', `(${clock}(t.${identifier(key[0]!)}) - make_interval(secs => $1::float8 / 1000))`)
}
