/** The rows of a table projection: the changes of a batch, in three statements, or five where they are locked first. */
import type { Executor } from '../database/database.ts'
import { type Identifier, identifier, literal, type Statement } from '../database/sql.ts'
import { InvalidProjectionValue } from './errors.ts'
import type { WrittenValues } from './table-projection.ts'

export interface TableColumn {
  readonly name: string
  readonly type: keyof WrittenValues
  readonly isKey: boolean
  /** Whether it is a number that can be incremented. */
  readonly isNumber: boolean
}

/** A value as it is sent. */
export type ColumnValue = string | number | boolean | null

/** The changes of one row. */
export interface ChangedRow {
  readonly key: readonly ColumnValue[]
  /** Whether the existing row is deleted. */
  isDeleted: boolean
  /** Whether there is a row afterwards. */
  isChanged: boolean
  readonly sets: Map<string, ColumnValue>
  readonly adds: Map<string, ColumnValue[]>
}

/**
 * Missing rows are made first, so that all can then be changed the same way. Inline, others may be changing the same
 * rows: all make and lock them in the order of the key.
 */
export async function writeRows(
  executor: Executor,
  table: Identifier,
  { projection, columns }: { readonly projection: string; readonly columns: readonly TableColumn[] },
  rows: readonly ChangedRow[],
  isInline: boolean,
): Promise<void> {
  const keys = columns.filter(column => column.isKey)
  const gone = rows.filter(row => row.isDeleted)
  const left = rows.filter(row => row.isChanged)
  if (isInline && left.length > 0) await executor.run(makeRows(table, keys, left))
  if (isInline && rows.length > 0) await executor.run(lockRows(table, keys, rows))
  if (gone.length > 0) await executor.run(deleteRows(table, keys, gone))
  if (left.length === 0) return
  if (!isInline || gone.length > 0) await executor.run(makeRows(table, keys, left))
  const changed = columns.filter(({ name }) => left.some(row => row.sets.has(name) || row.adds.has(name)))
  if (changed.length === 0) return
  const [inexact] = await executor.runArrays(changeRows(table, keys, changed, left))
  if (inexact === undefined) return
  const reason = `would be ${String(inexact[1])}, beyond ${Number.MAX_SAFE_INTEGER}: use the type numeric for such numbers`
  throw new InvalidProjectionValue({ projection, path: `column ${String(inexact[0])}`, reason })
}

function lockRows(table: Identifier, keys: readonly TableColumn[], rows: readonly ChangedRow[]): Statement {
  const values: unknown[] = []
  return {
    label: 'projections.lock_rows',
    text: `/* projections.lock_rows */
      select
      from ${table} as t
      join ${keySource(keys, rows, values)} on ${sameKey(keys)}
      order by ${keys.map(({ name }) => `t.${quoted(name)}`).join(', ')}
      for update of t`,
    values,
  }
}

function deleteRows(table: Identifier, keys: readonly TableColumn[], rows: readonly ChangedRow[]): Statement {
  const values: unknown[] = []
  return {
    label: 'projections.delete_rows',
    text: `/* projections.delete_rows */
      delete from ${table} as t
      using ${keySource(keys, rows, values)}
      where ${sameKey(keys)}`,
    values,
  }
}

function makeRows(table: Identifier, keys: readonly TableColumn[], rows: readonly ChangedRow[]): Statement {
  const values: unknown[] = []
  const list = keys.map(({ name }) => quoted(name)).join(', ')
  const order = keys.map(({ type }, i) => `k${i}${type.includes('text') ? ' collate "C"' : ''}`)
  return {
    label: 'projections.make_rows',
    text: `/* projections.make_rows */
      insert into ${table} (${list})
      select ${keys.map((_, i) => `k${i}`).join(', ')}
      from ${keySource(keys, rows, values)}
      order by ${order.join(', ')}
      on conflict do nothing`,
    values,
  }
}

/**
 * One line per row and amount; a value that is set is in the first line of its row. Returns the name and value of a
 * `bigint` column that can no longer be read exactly as a number, if there is one.
 */
function changeRows(
  table: Identifier,
  keys: readonly TableColumn[],
  changed: readonly TableColumn[],
  rows: readonly ChangedRow[],
): Statement {
  const lines = rows.flatMap(row => {
    const count = Math.max(1, ...[...row.adds.values()].map(amounts => amounts.length))
    return Array.from({ length: count }, (_, i) => ({ row, i }))
  })
  const values: unknown[] = []
  const parameter = (given: unknown[], type: string): string => `$${values.push(given)}::${type}[]`
  const arrays = keys.map(({ type }, k) =>
    parameter(
      lines.map(({ row }) => row.key[k]),
      plain(type),
    ),
  )
  const names = keys.map((_, k) => `k${k}`)
  const sums: string[] = []
  const assignments: string[] = []
  for (const [c, { name, type, isNumber }] of changed.entries()) {
    const sets = lines.map(({ row, i }) => i === 0 && row.sets.has(name))
    arrays.push(parameter(sets, 'boolean'))
    arrays.push(
      parameter(
        lines.map(({ row }, l) => (sets[l] ? row.sets.get(name) : null)),
        plain(type),
      ),
    )
    names.push(`s${c}`, `v${c}`)
    sums.push(`bool_or(s${c}) as s${c}`, `(array_agg(v${c}) filter (where s${c}))[1] as v${c}`)
    const cast = type === 'jsonb' ? '::jsonb' : ''
    const base = `case when change.s${c} then change.v${c}${cast} else t.${quoted(name)} end`
    if (!isNumber) {
      assignments.push(`${quoted(name)} = ${base}`)
      continue
    }
    arrays.push(
      parameter(
        lines.map(({ row, i }) => row.adds.get(name)?.[i] ?? null),
        plain(type),
      ),
    )
    names.push(`a${c}`)
    sums.push(`coalesce(sum(a${c}), 0)::${type} as a${c}`)
    assignments.push(`${quoted(name)} = ${base} + change.a${c}`)
  }
  const grouped = keys.map((_, k) => `k${k}`).join(', ')
  const update = `update ${table} as t
      set ${assignments.join(',\n        ')}
      from (
        select ${[grouped, ...sums].join(', ')}
        from unnest(${arrays.join(', ')}) as line(${names.join(', ')})
        group by ${grouped}) as change
      where ${keys.map(({ name }, k) => `t.${quoted(name)} = change.k${k}`).join(' and ')}`
  const label = 'projections.change_rows'
  const bigints = changed.filter(({ type }) => type === 'bigint')
  if (bigints.length === 0) return { label, text: `/* ${label} */\n      ${update}`, values }
  const pairs = bigints.map(({ name }, i) => `(${literal(name)}, changed.b${i})`)
  return {
    label,
    text: `/* ${label} */
      with changed as (
      ${update}
      returning ${bigints.map(({ name }, i) => `t.${quoted(name)} as b${i}`).join(', ')}
      )
      select number.name, number.value::text
      from changed
      cross join lateral (values ${pairs.join(', ')}) as number(name, value)
      where number.value not between -${Number.MAX_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}
      limit 1`,
    values,
  }
}

function keySource(keys: readonly TableColumn[], rows: readonly ChangedRow[], values: unknown[]): string {
  const arrays = keys.map(({ type }, k) => `$${values.push(rows.map(row => row.key[k]))}::${plain(type)}[]`)
  return `unnest(${arrays.join(', ')}) as key(${keys.map((_, k) => `k${k}`).join(', ')})`
}

function sameKey(keys: readonly TableColumn[]): string {
  return keys.map(({ name }, k) => `t.${quoted(name)} = key.k${k}`).join(' and ')
}

/** The element type of the array a column's values are sent in. */
function plain(type: string): string {
  return type === 'jsonb' || type.startsWith('text') ? 'text' : type
}

function quoted(name: string): string {
  return identifier(name).quoted
}
