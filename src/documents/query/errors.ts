/** The errors of queries. */
import { defineError, type ErrorKind } from '../../core/errors.ts'

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
