/** The state of a query: a value that every step copies and none changes. */
import type { OpenCollection } from '../collection.ts'
import type { Condition } from './condition.ts'
import type { Place } from './field.ts'
import type { Layout } from './layout.ts'
import { Parameters } from './operand.ts'
import type { OrderKey } from './order.ts'
import { renderCondition, startWriting, type Writing } from './render.ts'

/** A collection, or a table of rows, as its queries see it. */
export interface QuerySource {
  /** The beginning of the labels of its statements. */
  readonly label: 'documents' | 'rows'
  readonly collection: OpenCollection
  readonly layout: Layout
  /** Called with each query that was run. */
  noteRun(run: QueryRun): void
}

/** A query that was run, for the index advisor. */
export interface QueryRun {
  readonly state: QueryState
  readonly text: string
  readonly rows: number
  readonly tookMs: number
}

export interface QueryState {
  readonly conditions: readonly Condition[]
  readonly order: readonly OrderKey[]
  /** A number, or its placeholder. */
  readonly limit: unknown
  /** The most rows that `first`, `one` and `optional` can use, whatever the limit. */
  readonly cap: number
  readonly offset: unknown
  readonly deleted: 'hidden' | 'included' | 'only'
  /** The selected fields, by name; undefined for whole documents. */
  readonly selected: ReadonlyMap<string, Place> | undefined
  readonly included: readonly Included[]
}

/** Related documents, of another collection or of the same one, that are read with each document. */
export interface Included {
  readonly name: string
  readonly source: QuerySource
  readonly state: QueryState
  /** The field of the document that holds an id, or a list of ids. */
  readonly local: Place
  /** The field of the related document that is equal to it. */
  readonly foreign: Place
  readonly many: boolean
}

export const everything: QueryState = {
  conditions: [],
  order: [],
  limit: undefined,
  cap: Number.POSITIVE_INFINITY,
  offset: undefined,
  deleted: 'hidden',
  selected: undefined,
  included: [],
}

export interface Written {
  readonly text: string
  readonly parameters: Parameters
}

/** Writes a statement of a query. */
export function write(source: QuerySource, make: (writing: Writing) => string): Written {
  const parameters = new Parameters()
  const text = make(startWriting(parameters, source.layout, source.collection.name, 'd.'))
  return { text, parameters }
}

/** `from …` and `where …`, with further conditions that are SQL already. */
export function renderFrom(
  { collection }: QuerySource,
  { conditions, deleted }: Pick<QueryState, 'conditions' | 'deleted'>,
  writing: Writing,
  more: readonly string[] = [],
): string {
  const { prefix, layout } = writing
  const all = conditions.map(each => renderCondition(each, writing)).concat(more)
  if (layout.row === undefined && deleted !== 'included')
    all.unshift(`${prefix}deleted_at is ${deleted === 'only' ? 'not ' : ''}null`)
  const where = all.length === 0 ? '' : `\n  where ${all.join('\n    and ')}`
  return `from ${collection.table} as ${prefix.slice(0, -1)}${where}`
}
