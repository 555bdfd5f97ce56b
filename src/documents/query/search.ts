/** Full text: the languages, and the vector of the words in some texts. */
import { literal } from '../../database/sql.ts'
import { InvalidQuery, UnknownLanguage } from '../errors.ts'

/** The fields that a collection is searched in. */
export interface SearchFields {
  readonly fields: readonly (readonly string[])[]
  readonly language: string
}

export const defaultLanguage = 'english'

/**
 * The configurations that every server from PostgreSQL 15 on has. One of your own is named with its schema, `public.polish`; if
 * there is none of that name, the database says so.
 */
const languages: readonly string[] = [
  ...['simple', 'arabic', 'armenian', 'basque', 'catalan', 'danish', 'dutch', 'english', 'finnish', 'french'],
  ...['german', 'greek', 'hindi', 'hungarian', 'indonesian', 'irish', 'italian', 'lithuanian', 'nepali'],
  ...['norwegian', 'portuguese', 'romanian', 'russian', 'serbian', 'spanish', 'swedish', 'tamil', 'turkish'],
  'yiddish',
]

export function checkLanguage(language: unknown): string {
  const isKnown =
    typeof language === 'string' && (languages.includes(language) || /^[a-z_]\w*\.[a-z_]\w*$/i.test(language))
  if (!isKnown) throw new UnknownLanguage({ language: String(language), known: languages })
  return language
}

/** PostgreSQL looks up a name that is not in the list. */
export function configuration(language: string): string {
  return `${literal(languages.includes(language) ? `pg_catalog.${language}` : language)}::regconfig`
}

/**
 * The words of some texts. A vector holds a megabyte, and more would be an error: any 100 000 characters fit.
 */
export function vectorOf(texts: readonly string[], language: string): string {
  if (texts.length === 0)
    throw new InvalidQuery({ reason: 'the collection declares no fields for full text; name one: search(c.notes, …)' })
  const words = texts.map(text => `coalesce(${text}, '')`).join(` || ' ' || `)
  return `to_tsvector(${configuration(language)}, left(${words}, 100000))`
}
