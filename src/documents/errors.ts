/** The errors of collections, documents, patches and queries. */
import { defineError, type ErrorKind } from '../core/errors.ts'

interface Which {
  collection: string
  id: string
}

const named = (d: Which): string => `Document ${JSON.stringify(d.id)} of ${d.collection}`

export const DocumentNotFound: ErrorKind<'document_not_found', Which> = defineError(
  'document_not_found',
  d => `${named(d)} does not exist. Check the id, or make the document with put or insert.`,
)
/** `isInSession`: it was staged by a session that had not loaded it. */
export const DocumentExists: ErrorKind<
  'document_exists',
  Which & { version: number; isInSession?: boolean | undefined }
> = defineError('document_exists', d => {
  const fix =
    d.isInSession === true
      ? 'The session had not loaded it, and does not overwrite unseen: load it first, change it with update or patch, or put it with { upsert: true }.'
      : 'Replace it with put, or use another id.'
  return `${named(d)} exists already, at version ${d.version}. ${fix}`
})
export const DocumentDeleted: ErrorKind<'document_deleted', Which & { version: number }> = defineError(
  'document_deleted',
  d => `${named(d)} is soft-deleted (version ${d.version}). Restore it first, or put it without an expected version.`,
)
export const DocumentConflict: ErrorKind<'document_conflict', Which & { expected: number; actual: number }> =
  defineError(
    'document_conflict',
    d =>
      `${named(d)} has version ${d.actual}, not the expected ${d.expected}. Read it again, and write at that version.`,
  )
export const InvalidDocument: ErrorKind<'invalid_document', Which & { path: string; reason: string }> = defineError(
  'invalid_document',
  d => `${named(d)}: ${d.path} ${d.reason}. Nothing was written.`,
)
export const DocumentTooLarge: ErrorKind<'document_too_large', Which & { bytes: number; maxBytes: number }> =
  defineError(
    'document_too_large',
    d =>
      `${named(d)} takes ${d.bytes} bytes as the database gives it back, and at most ${d.maxBytes} are read. Select single fields of it, or put or delete it by its id, which does not read it.`,
  )
export const UniqueViolation: ErrorKind<
  'unique_violation',
  { collection: string; index: string; fields: string[]; value: unknown }
> = defineError('unique_violation', d => {
  const value = JSON.stringify(d.value) ?? 'its value'
  return (
    `Another document of ${d.collection} has ${d.fields.join(', ')} = ${value} already, and index ${d.index} is unique. ` +
    'Nothing was written. Use another value, or change the other document.'
  )
})
export const InvalidPatch: ErrorKind<'invalid_patch', { path: string; reason: string }> = defineError(
  'invalid_patch',
  d => `The patch is not valid at ${JSON.stringify(d.path)}: ${d.reason}. Nothing was written.`,
)
export const PatchMismatch: ErrorKind<'patch_mismatch', Which & { path: string; reason: string }> = defineError(
  'patch_mismatch',
  d => `${named(d)} does not fit the patch: ${d.path} ${d.reason}. Nothing was written.`,
)
export const UpcastFailed: ErrorKind<'upcast_failed', Which> = defineError(
  'upcast_failed',
  d => `The upcast of collection ${d.collection} failed on document ${JSON.stringify(d.id)}. See error.cause.`,
)

export interface RefusedItem {
  /** Its index in the list that was given. */
  readonly index: number
  readonly id: string
  readonly outcome: 'missing' | 'exists' | 'deleted' | 'conflict'
  /** The version it has; undefined if it does not exist. */
  readonly version: number | undefined
}

export const BulkRefused: ErrorKind<'bulk_refused', { collection: string; items: RefusedItem[] }> = defineError(
  'bulk_refused',
  d => {
    const some = d.items.slice(0, 3).map(item => `${JSON.stringify(item.id)} ${item.outcome}`)
    const more = d.items.length > 3 ? ` and ${d.items.length - 3} more` : ''
    return `Nothing was written to ${d.collection}, because items were refused: ${some.join(', ')}${more}. Fix these (error.items), or leave them out.`
  },
)
export const CollectionNotSynced: ErrorKind<
  'collection_not_synced',
  { collection: string; missing: string[]; isInside: boolean }
> = defineError('collection_not_synced', d => {
  const remedy = d.isInside
    ? 'Tables are not made inside a transaction: await ready() before it, or call store.schema.sync()'
    : 'Call store.schema.sync() after defining it, or open the store with { migrate: true }'
  return `Collection ${d.collection} cannot be used, because the schema lacks ${d.missing.join(', ')}. ${remedy}.`
})
export const CollectionNotFound: ErrorKind<
  'collection_not_found',
  { collection: string; schema: string; nearest: string | undefined }
> = defineError('collection_not_found', d => {
  const suggestion = d.nearest === undefined ? '' : ` Did you mean ${JSON.stringify(d.nearest)}?`
  return `There is no collection ${JSON.stringify(d.collection)} in schema ${d.schema}.${suggestion} A collection is made by the first write to it, or by store.schema.sync().`
})
export const CollectionReadOnly: ErrorKind<'collection_read_only', { collection: string }> = defineError(
  'collection_read_only',
  d => `Collection ${d.collection} is read only. If it is the read model of a projection, append events instead.`,
)

export const InvalidQuery: ErrorKind<'invalid_query', { collection?: string | undefined; reason: string }> =
  defineError('invalid_query', d => {
    const where = d.collection === undefined ? 'The query' : `The query of "${d.collection}"`
    return `${where} cannot be run: ${d.reason}.`
  })
export const InvalidFilter: ErrorKind<'invalid_filter', { path: string; reason: string }> = defineError(
  'invalid_filter',
  d => `The filter is not valid: ${d.path} ${d.reason}.`,
)
export const InvalidCursor: ErrorKind<'invalid_cursor', { reason: string }> = defineError(
  'invalid_cursor',
  d =>
    `The cursor ${d.reason}. Pass "next" of the last page as "after" of the same query, or nothing for the first page.`,
)
export const UnknownLanguage: ErrorKind<'unknown_language', { language: string; known: readonly string[] }> =
  defineError(
    'unknown_language',
    d => `There is no full-text language ${JSON.stringify(d.language)}. The languages are ${d.known.join(', ')}.`,
  )
export const NotOne: ErrorKind<'not_one', { collection: string; found: 'none' | 'several' }> = defineError(
  'not_one',
  d =>
    `The query of "${d.collection}" must find exactly one result, and found ${d.found}. ` +
    'Use first() or optional(), or narrow the query down.',
)
