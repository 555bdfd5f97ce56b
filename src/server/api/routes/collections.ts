/** Documents of collections. Reads are by keyset; writes state the version that they are based on. */
import { InvalidOption } from '../../../core/errors.ts'
import type { Documents } from '../../../documents/documents.ts'
import { DocumentNotFound } from '../../../documents/errors.ts'
import { filterFrom } from '../../../documents/query/filter.ts'
import type { StoredDocument } from '../../../documents/read.ts'
import type { Redaction } from '../../access/redact.ts'
import { RequestRefused } from '../answer.ts'
import type { ShownDocument } from '../contract.ts'
import { pageFields, type Route, route } from '../route.ts'
import type { ApiStore } from '../source.ts'

const filter = { kind: 'json', summary: 'A filter as JSON, as `filterFrom` takes it. Default: all' } as const
const includeDeleted = { kind: 'flag', summary: 'Soft-deleted documents, too. Default: false' } as const

export const collectionRoutes: readonly Route[] = [
  route('GET /collections', {
    role: 'read',
    summary: 'Collections by name, with estimated sizes, indexes and advice',
    query: pageFields,
    cli: 'rillflow documents collections',
    call: ({ store, query }) => store.documents.list(query),
  }),
  route('POST /collections/:name/query', {
    role: 'read',
    summary: 'Documents that meet a filter, by id',
    body: { filter, includeDeleted, ...pageFields },
    cli: 'rillflow documents query {name}',
    async call({ store, parameters: { name }, body, redact }) {
      const { items, next } = await queryOf(await openToRead(store, name), body).page({
        after: body.after,
        limit: body.limit,
      })
      return { items: items.map(each => shown(each, name, redact)), next }
    },
  }),
  route('POST /collections/:name/explain', {
    role: 'read',
    summary: 'The plan of such a query',
    body: { filter, includeDeleted },
    cli: 'rillflow documents explain {name}',
    async call({ store, parameters: { name }, body }) {
      return { plan: await queryOf(await openToRead(store, name), body).explain() }
    },
  }),
  route('GET /collections/:name/:id', {
    role: 'read',
    summary: 'One document; with `version` or `at` as it was then, if the collection has a history',
    query: {
      version: { kind: 'whole', min: 1, summary: 'As it was at this version' },
      at: { kind: 'time', summary: 'As it was at this time' },
    },
    cli: 'rillflow documents get {name} {id}',
    async call({ store, parameters: { name, id }, query: { version, at }, redact }) {
      const documents = await openToRead(store, name)
      const found =
        version !== undefined
          ? await documents.getAt(id, { version })
          : at !== undefined
            ? await documents.getAt(id, { at })
            : await documents.get(id, { includeDeleted: true })
      if (found === undefined) throw new DocumentNotFound({ collection: name, id })
      return shown(found, name, redact)
    },
  }),
  route('GET /collections/:name/:id/history', {
    role: 'read',
    summary: 'Its versions, the oldest first',
    query: pageFields,
    async call({ store, parameters: { name, id }, query, redact }) {
      const { items, next } = await (await openToRead(store, name)).history(id, query)
      return { items: items.map(each => shown(each, name, redact)), next }
    },
  }),
  route('PUT /collections/:name/:id', {
    role: 'admin',
    summary: 'Replaces a document of the version in the header If-Match',
    audit: 'documents.put',
    body: { data: { kind: 'json', required: true, summary: 'The document' } },
    cli: 'rillflow documents put {name} {id} {data}',
    async call({ store, parameters: { name, id }, body, request, identity }) {
      const documents = await openToWrite(store, name)
      const data = objectOf(body.data)
      return { id, version: await documents.put(id, data, { expected: versionOf(request), userId: identity.name }) }
    },
  }),
  route('PATCH /collections/:name/:id', {
    role: 'admin',
    summary: 'Changes some fields of a document of that version by a JSON Merge Patch; null removes a field',
    audit: 'documents.merge',
    body: { patch: { kind: 'json', required: true, summary: 'The patch' } },
    async call({ store, parameters: { name, id }, body, request, identity }) {
      const documents = await openToWrite(store, name)
      const patch = objectOf(body.patch)
      return { id, version: await documents.merge(id, patch, { expected: versionOf(request), userId: identity.name }) }
    },
  }),
  route('DELETE /collections/:name/:id', {
    role: 'admin',
    summary: 'Hides a document of that version until it is restored, or deletes it for good',
    audit: 'documents.delete',
    query: { soft: { kind: 'flag', summary: 'Hide it. Default: delete it for good' } },
    cli: 'rillflow documents soft-delete {name} {id}',
    async call({ store, parameters: { name, id }, query, request, identity }) {
      const documents = await openToWrite(store, name)
      const options = { expected: versionOf(request), userId: identity.name }
      if (query.soft === true) return { id, version: await documents.softDelete(id, options) }
      if (!(await documents.delete(id, options))) throw new DocumentNotFound({ collection: name, id })
      return { id, version: undefined }
    },
  }),
  route('POST /collections/:name/:id/restore', {
    role: 'admin',
    summary: 'Shows a hidden document of that version again',
    audit: 'documents.restore',
    cli: 'rillflow documents restore {name} {id}',
    async call({ store, parameters: { name, id }, request, identity }) {
      const documents = await openToWrite(store, name)
      return { id, version: await documents.restore(id, { expected: versionOf(request), userId: identity.name }) }
    },
  }),
]

/** A look must neither make a table nor give a collection another shape than the application does. */
async function openToRead(store: ApiStore, name: string): Promise<Documents> {
  const found = await find(store, name)
  if (found.isOpen) return store.documents(name)
  return store.documents(name, { readOnly: true, history: found.hasHistory })
}

async function openToWrite(store: ApiStore, name: string): Promise<Documents> {
  const found = await find(store, name)
  if (found.isOpen) return store.documents(name)
  throw new RequestRefused(
    409,
    'collection_not_open',
    found.isProjection
      ? `"${name}" is the read model of a projection, and only events change it.`
      : `This process does not have the definition of "${name}", so it can only be read here.`,
  )
}

async function find(store: ApiStore, name: string) {
  const { items } = await store.documents.list({ limit: 10_000 })
  const found = items.find(each => each.name === name)
  if (found === undefined)
    throw new RequestRefused(404, 'collection_not_found', `There is no collection "${name.slice(0, 80)}".`)
  return found
}

function queryOf(documents: Documents, body: { filter?: unknown; includeDeleted?: boolean | undefined }) {
  const all = body.includeDeleted === true ? documents.query().includeDeleted() : documents.query()
  return body.filter === undefined || body.filter === null ? all : all.where(filterFrom(body.filter))
}

function shown(
  document: Omit<StoredDocument, 'data'> & { data?: unknown },
  name: string,
  redact: Redaction,
): ShownDocument {
  const { data, ...rest } = document
  return { ...rest, data: data === undefined ? null : redact.document(data, name) }
}

function objectOf(value: unknown): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  throw new InvalidOption({ option: 'data', reason: 'A document must be a JSON object.' })
}

/** Writes by people are based on what they saw. */
function versionOf(request: Request): number {
  const given = request.headers.get('if-match')?.replace(/^(?:W\/)?"?(\d{1,16})"?$/, '$1')
  if (given !== undefined && /^\d+$/.test(given)) return Number(given)
  throw new RequestRefused(428, 'version_required', 'Send the version that you saw in the header "If-Match".')
}
