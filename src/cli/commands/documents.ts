/** Commands about documents. A collection is taken as the configuration declares it; one it does not know is read as it is. */
import { DocumentNotFound } from '../../core/document-errors.ts'
import type { CollectionOptions } from '../../documents/collection.ts'
import type { Collection } from '../../documents/documents.ts'
import { documentScope, fieldAt } from '../../documents/query/field.ts'
import { filterFrom } from '../../documents/query/filter.ts'
import type { Query } from '../../documents/query/query.ts'
import { type Commands, defineCommand, defineVerbs, type Opened } from '../command.ts'
import { ago, duration } from '../output/amount.ts'
import { toJson } from '../output/output.ts'
import { fields, table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'

// A collection by its name on the line, and the query that options describe.

type AnyDocument = Record<string, unknown>

/** One that only reads declares no table: looking at what is not there must not make it. */
export function collectionFor({ store, config }: Opened, name: string, access: 'reads' | 'writes'): Collection {
  const declared = config.collections?.[name] as CollectionOptions<AnyDocument> | undefined
  return store.documents(name, declared ?? (access === 'reads' ? { readOnly: true } : {}))
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

export function queryOf(collection: Collection, given: GivenQuery): Query<AnyDocument> {
  const { where, orderBy, orderAs, descending } = given
  let query = collection.query()
  if (where !== undefined) query = query.where(filterFrom(where, { regex: true }))
  if (orderBy !== undefined)
    query = query.orderBy(() => fieldAt(documentScope, orderBy.split('.')), {
      ...{ as: orderAs, direction: descending ? 'desc' : 'asc' },
    })
  return query
}

const get = defineCommand({
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
  ],
  options: { includeDeleted: { kind: 'flag', summary: 'Also one that is soft-deleted' } },
  examples: ['rillflow documents get customers c-1', 'rillflow documents get customers c-1 --json | jq .data'],
  async run({ out, open, arguments: { collection, id }, options: { includeDeleted } }) {
    const document = await collectionFor(await open(), collection, 'reads').get(id, { includeDeleted })
    if (document === undefined) throw new DocumentNotFound({ collection, id })
    out.print(document, style =>
      fields(style, {
        id: document.id,
        version: document.version,
        created: `${document.createdAt.toISOString()} (${ago(document.createdAt, style.now)})`,
        updated: `${document.updatedAt.toISOString()} (${ago(document.updatedAt, style.now)})`,
        'updated by': document.updatedBy,
        deleted: document.deletedAt?.toISOString(),
        data: toJson(document.data, 2),
      }),
    )
  },
})

const put = defineCommand({
  description:
    'A soft-deleted document is shown again. The collection is checked and indexed as the configuration declares it.',
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
    { name: 'data', summary: 'A JSON object', kind: 'json' },
  ],
  options: {
    expected: { kind: 'whole', value: 'VERSION', summary: 'Only if the document is at this version' },
    user: { kind: 'text', value: 'USER', summary: 'Who does it' },
  },
  examples: [`rillflow documents put customers c-1 '{"name":"Ada"}'`],
  async run({ out, open, arguments: { collection, id, data }, options: { expected, user } }) {
    if (typeof data !== 'object' || data === null || Array.isArray(data))
      throw new WrongUsage({ reason: 'DATA must be a JSON object' })
    const documents = collectionFor(await open({ creates: true }), collection, 'writes')
    const version = await documents.put(id, data as Record<string, unknown>, { expected, userId: user })
    out.print({ collection, id, version }, () => `Put ${collection}/${id}, version ${version}.`)
  },
})

const query = defineCommand({
  arguments: [{ name: 'collection', summary: 'Its name', names: 'collection' }],
  options: {
    ...queryOptions,
    limit: { kind: 'whole', default: 25, value: 'COUNT', summary: 'How many at most' },
    includeDeleted: { kind: 'flag', summary: 'Also documents that are soft-deleted' },
  },
  examples: [`rillflow documents query customers --where '{"tier":"pro"}' --order-by name`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const query = queryOf(collectionFor(await open(), collection, 'reads'), options).limit(options.limit)
    const documents = await (options.includeDeleted ? query.includeDeleted() : query).toArray({ signal })
    out.print(documents, style =>
      table(
        style,
        documents,
        [
          { title: 'ID', of: each => each.id, paint: (_, colour) => colour.cyan },
          { title: 'VERSION', of: each => each.version, right: true },
          { title: 'UPDATED', of: each => ago(each.updatedAt, style.now), paint: (_, colour) => colour.dim },
          { title: 'DATA', of: each => toJson(each.data), cut: true },
        ],
        'No documents.',
      ),
    )
  },
})

const softDelete = defineCommand({
  description: 'It is left out of reads and queries until it is restored, or put.',
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
  ],
  examples: ['rillflow documents soft-delete customers c-1'],
  async run({ out, open, arguments: { collection, id } }) {
    const version = await collectionFor(await open(), collection, 'writes').softDelete(id)
    out.print({ collection, id, version, deleted: true }, () => `Hid ${collection}/${id}, version ${version}.`)
  },
})

const restore = defineCommand({
  arguments: [
    { name: 'collection', summary: 'Its name', names: 'collection' },
    { name: 'id', summary: 'The id of the document' },
  ],
  examples: ['rillflow documents restore customers c-1'],
  async run({ out, open, arguments: { collection, id } }) {
    const version = await collectionFor(await open(), collection, 'writes').restore(id)
    out.print({ collection, id, version, deleted: false }, () => `Restored ${collection}/${id}, version ${version}.`)
  },
})

const indexAdvisor = defineCommand({
  description:
    'Runs the query once and names the index that would serve it, as it is declared in the configuration. Nothing is named where the indexes there are do already.',
  arguments: [{ name: 'collection', summary: 'Its name', names: 'collection' }],
  options: queryOptions,
  examples: [`rillflow documents index-advisor customers --where '{"age":{"$gte":18}}' --order-by name`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const documents = collectionFor(await open(), collection, 'reads')
    await queryOf(documents, options).limit(1000).toArray({ signal })
    const advice = documents.adviseIndexes()
    out.print({ collection, table: documents.tableName, advice }, style =>
      table(
        style,
        advice,
        [
          { title: 'INDEX', of: each => each.index, paint: (_, colour) => colour.cyan },
          { title: 'TABLE', of: () => documents.tableName },
          { title: 'TOOK', of: each => duration(each.averageMs), right: true },
          { title: 'ROWS', of: each => each.maxRows, right: true },
        ],
        `No index is missing for this query on ${documents.tableName}.`,
      ),
    )
  },
})

const explain = defineCommand({
  arguments: [{ name: 'collection', summary: 'Its name', names: 'collection' }],
  options: { ...queryOptions, analyze: { kind: 'flag', summary: 'Run it, and show the times' } },
  examples: [`rillflow documents explain customers --where '{"age":{"$gte":18}}' --analyze`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const query = queryOf(collectionFor(await open(), collection, 'reads'), options)
    const plan = await query.explain({ analyze: options.analyze, signal })
    out.print({ collection, plan: plan.split('\n') }, () => plan)
  },
})

export const documents: Commands = defineVerbs({
  get: ['One document', get],
  put: ['Make or replace a document', put],
  query: ['Documents that meet a condition', query],
  'soft-delete': ['Hide a document', softDelete],
  restore: ['Show a hidden document again', restore],
  'index-advisor': ['The index that would serve a query', indexAdvisor],
  explain: ['The plan of a query', explain],
})
