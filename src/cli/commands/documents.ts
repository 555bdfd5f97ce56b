/**
 * `rillflow documents`: the documents of a collection.
 *
 *     get · put · soft-delete · restore        one document
 *     query · explain · index-advisor          documents by a filter, the plan of the query, the index that it lacks
 *
 * A collection is opened as the configuration declares it; by a command that only reads, read-only, so that it never creates a
 * table.
 *
 * What can fail: a document that does not exist (`DocumentNotFound`), a filter that is not valid (`InvalidFilter`).
 */

import { collectionOf } from '../../documents/collection.ts'
import type { Documents } from '../../documents/documents.ts'
import { DocumentNotFound } from '../../documents/errors.ts'
import type { Query } from '../../documents/query/query.ts'
import { type Argument, type Commands, defineCommand, defineVerbs, type Opened } from '../command.ts'
import { listCommand, pageOptions, printPage } from '../list-command.ts'
import { ago, duration } from '../output/amount.ts'
import { type Style, toJson } from '../output/output.ts'
import { type Column, fields, table } from '../output/table.ts'
import { WrongUsage } from '../report-error.ts'

const collection = {
  name: 'collection',
  summary: 'The name of the collection',
  completes: 'collection',
} as const satisfies Argument

const id = { name: 'id', summary: 'The id of the document' } as const satisfies Argument

const queryOptions = {
  where: {
    kind: 'json',
    value: 'FILTER',
    summary: `The filter: '{"age":{"$gte":18},"tags":{"$contains":["vip"]}}'`,
  },
  orderBy: { kind: 'text', value: 'FIELD', summary: 'Sort by this field, a path with dots' },
  orderAs: {
    kind: 'text',
    value: 'KIND',
    default: 'text',
    choices: ['text', 'number', 'boolean'],
    summary: 'Compare the values of that field as this type',
  },
  descending: { kind: 'flag', summary: 'Sort in descending order' },
} as const

const get = defineCommand({
  arguments: [collection, id],
  options: { includeDeleted: { kind: 'flag', summary: 'Also show a document that is soft-deleted' } },
  examples: ['rillflow documents get customers c-1', 'rillflow documents get customers c-1 --json | jq .data'],
  async run({ out, open, arguments: { collection, id }, options: { includeDeleted } }) {
    const document = await openCollection(await open(), collection, 'read').get(id, { includeDeleted })
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
    'The document is checked and indexed as the configuration declares the collection. A soft-deleted document becomes visible again.',
  arguments: [collection, id, { name: 'data', summary: 'The document as a JSON object', kind: 'json' }],
  options: {
    expected: { kind: 'whole', value: 'VERSION', summary: 'Only if the document has this version' },
    user: { kind: 'text', value: 'USER', summary: 'The user who changes the document' },
  },
  examples: [`rillflow documents put customers c-1 '{"name":"Ada"}'`],
  async run({ out, open, arguments: { collection, id, data }, options: { expected, user } }) {
    if (typeof data !== 'object' || data === null || Array.isArray(data))
      throw new WrongUsage({ reason: 'DATA must be a JSON object' })
    const documents = openCollection(await open({ create: true, purpose: 'write' }), collection, 'write')
    const version = await documents.put(id, data as Record<string, unknown>, { expected, userId: user })
    out.print({ collection, id, version }, () => `Put ${collection}/${id}, version ${version}.`)
  },
})

const collections = listCommand({
  description: 'The number of documents is the estimate of the server.',
  options: pageOptions,
  examples: ['rillflow documents collections'],
  empty: 'There are no collections.',
  list: (store, given) => store.documents.list(given),
  columns: () => [
    { title: 'COLLECTION', of: ({ name }) => name, paint: (_, colour) => colour.cyan },
    { title: 'DOCUMENTS', of: ({ estimate }) => (estimate === undefined ? '' : `~${estimate}`), right: true },
    { title: 'BYTES', of: ({ bytes }) => String(bytes), right: true },
    { title: 'INDEXES', of: ({ indexes }) => indexes.join(', '), cut: true },
  ],
})

const query = defineCommand({
  arguments: [collection],
  options: {
    ...queryOptions,
    ...pageOptions,
    includeDeleted: { kind: 'flag', summary: 'Also show documents that are soft-deleted' },
  },
  examples: [`rillflow documents query customers --where '{"tier":"pro"}' --order-by name`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const query = await queryFrom(openCollection(await open(), collection, 'read'), options)
    const { after, limit } = options
    const page = await (options.includeDeleted ? query.includeDeleted() : query).page({ after, limit, signal })
    const columns = ({ now }: Style): Column<(typeof page.items)[number]>[] => [
      { title: 'ID', of: ({ id }) => id, paint: (_, colour) => colour.cyan },
      { title: 'VERSION', of: ({ version }) => version, right: true },
      { title: 'UPDATED', of: ({ updatedAt }) => ago(updatedAt, now), paint: (_, colour) => colour.dim },
      { title: 'DATA', of: ({ data }) => toJson(data), cut: true },
    ]
    printPage(out, page, columns, 'There are no such documents.')
  },
})

const softDelete = defineCommand({
  description: 'Reads and queries skip the document until it is restored or put again.',
  arguments: [collection, id],
  examples: ['rillflow documents soft-delete customers c-1'],
  async run({ out, open, arguments: { collection, id } }) {
    const version = await openCollection(await open({ purpose: 'write' }), collection, 'write').softDelete(id)
    const result = { collection, id, version, deleted: true }
    out.print(result, () => `Soft-deleted ${collection}/${id}, version ${version}.`)
  },
})

const restore = defineCommand({
  arguments: [collection, id],
  examples: ['rillflow documents restore customers c-1'],
  async run({ out, open, arguments: { collection, id } }) {
    const version = await openCollection(await open({ purpose: 'write' }), collection, 'write').restore(id)
    out.print({ collection, id, version, deleted: false }, () => `Restored ${collection}/${id}, version ${version}.`)
  },
})

const indexAdvisor = defineCommand({
  description:
    'Runs the query once and shows the index that would make it faster, as you would declare it in the configuration. It shows nothing if the existing indexes are enough. With --field or --gin it prints the statements that create these indexes instead.',
  arguments: [collection],
  options: {
    ...queryOptions,
    field: { kind: 'text', many: true, value: 'FIELD', summary: 'Print the statement for an index of this field' },
    gin: { kind: 'flag', summary: 'Print the statement for an index of whole documents' },
  },
  examples: [
    `rillflow documents index-advisor customers --where '{"age":{"$gte":18}}' --order-by name`,
    'rillflow documents index-advisor customers --gin --field email',
  ],
  async run({ out, open, arguments: { collection }, options, signal }) {
    if (options.gin || options.field.length > 0) {
      const statements = await indexStatements(await open(), collection, options)
      out.print({ collection, statements }, () => statements.map(each => `${each};`).join('\n'))
      return
    }
    const documents = openCollection(await open(), collection, 'read')
    const query = await queryFrom(documents, options)
    await query.limit(1000).toArray({ signal })
    const { tableName } = collectionOf(documents)!
    const advice = documents.adviseIndexes()
    const columns: Column<(typeof advice)[number]>[] = [
      { title: 'INDEX', of: ({ index }) => index, paint: (_, colour) => colour.cyan },
      { title: 'TABLE', of: () => tableName },
      { title: 'TOOK', of: ({ averageMs }) => duration(averageMs), right: true },
      { title: 'ROWS', of: ({ maxRows }) => maxRows, right: true },
    ]
    out.print({ collection, table: tableName, advice }, style =>
      table(style, advice, columns, `The query on ${tableName} needs no other index.`),
    )
  },
})

/** The statements that would create the indexes, as a sync writes them when the configuration declares them. */
async function indexStatements(
  { store, config }: Opened,
  name: string,
  { field, gin }: { readonly field: readonly string[]; readonly gin: boolean },
): Promise<string[]> {
  const { collectionTable } = await import('../../documents/table.ts')
  const { createIndex } = await import('../../schema/table-sql.ts')
  const tableName = config.collections?.find(each => each.name === name)?.options.table ?? name
  const table = collectionTable(tableName, { indexes: field, gin })
  return (table.indexes ?? []).map(index => createIndex(store.schema.name, table, index))
}

const explain = defineCommand({
  arguments: [collection],
  options: { ...queryOptions, analyze: { kind: 'flag', summary: 'Run the query and show the times' } },
  examples: [`rillflow documents explain customers --where '{"age":{"$gte":18}}' --analyze`],
  async run({ out, open, arguments: { collection }, options, signal }) {
    const query = await queryFrom(openCollection(await open(), collection, 'read'), options)
    const plan = await query.explain({ analyze: options.analyze, signal })
    out.print({ collection, plan: plan.split('\n') }, () => plan)
  },
})

export const documents: Commands = defineVerbs({
  collections: ['Show the collections of the store', collections],
  get: ['Show one document', get],
  put: ['Create or replace a document', put],
  query: ['Show the documents that match a filter', query],
  'soft-delete': ['Hide a document', softDelete],
  restore: ['Make a soft-deleted document visible again', restore],
  'index-advisor': ['Show the index that a query lacks', indexAdvisor],
  explain: ['Show the plan of a query', explain],
})

type AnyDocument = Record<string, unknown>

function openCollection({ store, config }: Opened, name: string, access: 'read' | 'write'): Documents {
  const defined = config.collections?.find(collection => collection.name === name)
  if (access === 'write') return defined === undefined ? store.documents(name) : (store.documents(defined) as Documents)
  return store.documents(name, { ...defined?.options, readOnly: true }) as Documents
}

/** The code of queries is loaded only here, because help does not need it. */
async function queryFrom(
  collection: Documents,
  {
    where,
    orderBy,
    orderAs,
    descending,
  }: {
    readonly where: unknown
    readonly orderBy: string | undefined
    readonly orderAs: 'text' | 'number' | 'boolean'
    readonly descending: boolean
  },
): Promise<Query<AnyDocument>> {
  const { documentScope, fieldAt } = await import('../../documents/query/field.ts')
  const { filterFrom } = await import('../../documents/query/filter.ts')
  let query = collection.query()
  if (where !== undefined) query = query.where(filterFrom(where, { regex: true }))
  if (orderBy !== undefined)
    query = query.orderBy(() => fieldAt(documentScope, orderBy.split('.')), {
      as: orderAs,
      direction: descending ? 'desc' : 'asc',
    })
  return query
}
