/** A collection by its name on the line, and the query that options describe. */
import type { Documents } from '../../documents/documents.ts'
import { documentScope, fieldAt } from '../../documents/query/field.ts'
import { filterFrom } from '../../documents/query/filter.ts'
import type { Query } from '../../documents/query/query.ts'
import type { Opened } from '../command.ts'

type AnyDocument = Record<string, unknown>

/** One that only reads declares no table: looking at what is not there must not make it. */
export function collectionFor({ store, config }: Opened, name: string, access: 'reads' | 'writes'): Documents {
  const defined = config.collections?.find(each => each.name === name)
  if (defined !== undefined) return store.documents(defined) as Documents
  return store.documents(name, access === 'reads' ? { readOnly: true } : {})
}

export const queryOptions = {
  where: {
    kind: 'json',
    value: 'FILTER',
    summary: `What must hold: '{"age":{"$gte":18},"tags":{"$contains":["vip"]}}'`,
  },
  orderBy: { kind: 'text', value: 'FIELD', summary: 'In the order of this field, a path with dots' },
  orderAs: {
    kind: 'text',
    value: 'KIND',
    default: 'text',
    choices: ['text', 'number', 'boolean'],
    summary: 'As what that field is compared',
  },
  descending: { kind: 'flag', summary: 'The other way round' },
} as const

export interface GivenQuery {
  readonly where: unknown
  readonly orderBy: string | undefined
  readonly orderAs: 'text' | 'number' | 'boolean'
  readonly descending: boolean
}

export function queryOf(collection: Documents, given: GivenQuery): Query<AnyDocument> {
  const { where, orderBy, orderAs, descending } = given
  let query = collection.query()
  if (where !== undefined) query = query.where(filterFrom(where, { regex: true }))
  if (orderBy !== undefined)
    query = query.orderBy(() => fieldAt(documentScope, orderBy.split('.')), {
      ...{ as: orderAs, direction: descending ? 'desc' : 'asc' },
    })
  return query
}
