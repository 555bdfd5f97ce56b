/** The errors of collections, documents, patches and queries. */
import { defineError, type ErrorKind } from '../core/errors.ts'

interface Which {
  collection: string
  id: string
}

const named = (d: Which): string => `Document ${JSON.stringify(d.id)} of ${d.collection}`

export const DocumentNotFound: ErrorKind<'document_not_found', Which> = defineError(
  'document_not_found',
  d => `${named(d)} is not there. Use put or insert to make it, or check the id.`,
)
export const DocumentExists: ErrorKind<'document_exists', Which & { version: number }> = defineError(
  'document_exists',
  d => `${named(d)} is there already, at version ${d.version}. Use put to replace it, or another id.`,
)
export const DocumentDeleted: ErrorKind<'document_deleted', Which & { version: number }> = defineError(
  'document_deleted',
  d => `${named(d)} was soft-deleted (version ${d.version}). Restore it first, or put it without an expected version.`,
)
export const DocumentConflict: ErrorKind<'document_conflict', Which & { expected: number; actual: number }> =
  defineError(
    'document_conflict',
    d => `${named(d)} is at version ${d.actual}, expected was ${d.expected}. Read it again, decide again, write.`,
  )
export const InvalidDocument: ErrorKind<'invalid_document', Which & { path: string; reason: string }> = defineError(
  'invalid_document',
  d => `${named(d)}: ${d.path} ${d.reason}. Nothing was written.`,
)
export const UniqueViolation: ErrorKind<
  'unique_violation',
  { collection: string; index: string; fields: string[]; value: unknown }
> = defineError('unique_violation', d => {
  const value = JSON.stringify(d.value) ?? 'its value'
  return `Another document of ${d.collection} has ${d.fields.join(', ')} = ${value} already, and index ${d.index} allows
only one. Nothing was written: change the value, or the other document.`.replace('\n', ' ')
})
export const InvalidPatch: ErrorKind<'invalid_patch', { path: string; reason: string }> = defineError(
  'invalid_patch',
  d => `Patch ${JSON.stringify(d.path)}: ${d.reason}. Nothing was written.`,
)
export const PatchMismatch: ErrorKind<'patch_mismatch', Which & { path: string; reason: string }> = defineError(
  'patch_mismatch',
  d => `${named(d)} does not fit the patch: ${d.path} ${d.reason}. Nothing was written.`,
)
export const UpcastFailed: ErrorKind<'upcast_failed', Which> = defineError(
  'upcast_failed',
  d => `The upcast of ${d.collection} failed on document ${JSON.stringify(d.id)}; error.cause says why.`,
)

export interface RefusedItem {
  /** Its place in what was given. */
  readonly index: number
  readonly id: string
  readonly outcome: 'missing' | 'exists' | 'deleted' | 'conflict'
  /** The version it has; undefined if it is not there. */
  readonly version: number | undefined
}

export const BulkRefused: ErrorKind<'bulk_refused', { collection: string; items: RefusedItem[] }> = defineError(
  'bulk_refused',
  d => {
    const some = d.items.slice(0, 3).map(item => `${JSON.stringify(item.id)} ${item.outcome}`)
    const more = d.items.length > 3 ? ` and ${d.items.length - 3} more` : ''
    return `Nothing was written to ${d.collection}: ${some.join(', ')}${more}. Mend these (error.items), or leave them out.`
  },
)
export const CollectionNotSynced: ErrorKind<
  'collection_not_synced',
  { collection: string; missing: string[]; isInside: boolean }
> = defineError('collection_not_synced', d => {
  const remedy = d.isInside
    ? 'Tables are not made inside a transaction: await its ready() before, or call store.schema.sync()'
    : 'Call store.schema.sync() after declaring it, or open the store with { migrate: true }'
  return `Collection ${d.collection} needs what the schema does not have yet: ${d.missing.join(', ')}. ${remedy}.`
})
export const CollectionReadOnly: ErrorKind<'collection_read_only', { collection: string }> = defineError(
  'collection_read_only',
  d => `Collection ${d.collection} is the read model of a projection, which alone writes it. Append events instead.`,
)

export const InvalidQuery: ErrorKind<'invalid_query', { collection?: string | undefined; reason: string }> =
  defineError('invalid_query', d => {
    const where = d.collection === undefined ? 'The query' : `The query of collection "${d.collection}"`
    return `${where} cannot be run: ${d.reason}.`
  })
export const InvalidFilter: ErrorKind<'invalid_filter', { path: string; reason: string }> = defineError(
  'invalid_filter',
  d => `The filter is not one at ${d.path}: ${d.reason}.`,
)
export const InvalidCursor: ErrorKind<'invalid_cursor', { reason: string }> = defineError(
  'invalid_cursor',
  d => `The cursor ${d.reason}. Pass on the cursor of the page before, as it is, to the same query; or none to begin.`,
)
export const UnknownLanguage: ErrorKind<'unknown_language', { language: string; known: readonly string[] }> =
  defineError(
    'unknown_language',
    d => `There is no full-text language ${JSON.stringify(d.language)}. There are: ${d.known.join(', ')}.`,
  )
export const NotOne: ErrorKind<'not_one', { collection: string; found: 'none' | 'several' }> = defineError(
  'not_one',
  d =>
    `The query of collection "${d.collection}" was to find one document and found ${d.found}. Use first() or optional(),
or ask more precisely.`.replace('\n', ' '),
)
