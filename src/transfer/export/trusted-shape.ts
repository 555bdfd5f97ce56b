/**
 * Which tables an import makes from the text of a manifest. A manifest comes from a file that anyone may have written, and
 * types, defaults, generated columns and indexes are SQL. So that SQL is read word by word before it is sent, and only this
 * is let through: the columns of the table, literals, operators, types and functions of the lists below. All of them are
 * PostgreSQL's own and change nothing.
 *
 *     name        quoted by `identifier`                            type      one of the list, with a length or a collation
 *     default     a literal, or a function of the list              index     method (expressions) include (…) where …
 *     generated   an expression                                     storage   fillfactor=70, autovacuum_…
 *
 * The export applies the same rules, so that it never writes a folder that an import refuses.
 */
import { identifier } from '../../database/sql.ts'
import { expected } from '../../schema/expected.ts'
import type { ColumnShape, IndexShape, TableShape } from '../table-shape.ts'

/** Why a table cannot be made from this shape, as the end of a sentence; undefined if it can. */
export function faultOfShape(table: TableShape): string | undefined {
  const names = table.columns.map(({ name }) => name)
  const known = new Set(names)
  if (names.length === 0 || known.size < names.length) return 'has no columns, or two of one name'
  for (const name of [table.name, table.primaryKey.name, ...names])
    if (!isName(name)) return `has the name ${show(name)}`
  if (table.primaryKey.columns.length === 0 || !table.primaryKey.columns.every(name => known.has(name)))
    return 'has a primary key of other columns'
  for (const column of table.columns) {
    const fault = faultOfColumn(column, known)
    if (fault !== undefined) return `has a column ${show(column.name)} ${fault}`
  }
  for (const index of table.indexes) {
    const fault = faultOfIndex(index, known)
    if (fault !== undefined) return `has an index ${show(index.name)} ${fault}`
  }
  const odd = table.storage.find(option => !storageOption.test(option))
  return odd === undefined ? undefined : `has the storage option ${show(odd)}`
}

/** The mark that a sync leaves in the comment of an index that it has made. */
export const indexMark: RegExp = /^rillflow [0-9a-f]{16}$/

const storageOption =
  /^(?:toast\.)?(?:fillfactor|toast_tuple_target|autovacuum_\w+|parallel_workers)=(?:[0-9.]+|true|false|on|off)$/

function faultOfColumn(
  { type, default: text, generated }: ColumnShape,
  columns: ReadonlySet<string>,
): string | undefined {
  if (!isType(type)) return `of type ${show(type)}`
  if (text === null) return generated ? 'that is generated from nothing' : undefined
  if (isExpression(text, generated ? columns : new Set())) return undefined
  return `${generated ? 'generated from' : 'with the default'} ${show(text)}`
}

function faultOfIndex({ name, definition, comment }: IndexShape, columns: ReadonlySet<string>): string | undefined {
  if (!isName(name) || reservedNames.has(name)) return 'with a name that it cannot have'
  if (comment !== null && !indexMark.test(comment)) return `with the comment ${show(comment)}`
  const [, method, rest] = /^(btree|gin|gist|brin|hash|spgist) (\(.*)$/s.exec(definition) ?? []
  return method !== undefined && isExpression(rest!, columns) ? undefined : `of ${show(definition)}`
}

/** Names of the library's own objects. Its indexes are made by its migrations, never from a manifest. */
const reservedNames: ReadonlySet<string> = new Set([
  ...Object.keys(expected.tables),
  ...Object.keys(expected.sequences),
])

function isName(name: string): boolean {
  try {
    return identifier(name).quoted !== ''
  } catch {
    return false
  }
}

function isType(type: string): boolean {
  const [, name] = /^([a-z0-9 ]+?)(?:\(\d{1,4}(?:,-?\d{1,4})?\))?(\[\])*( collate (\w+|"[^"]+"))?$/.exec(type) ?? []
  const [, timed] = /^(timestamp|time)(?:\(\d\))? with(?:out)? time zone(?:\[\])*$/.exec(type) ?? []
  return timed !== undefined || (name !== undefined && types.has(name))
}

/** Whether a text is made only of words that are let through. */
function isExpression(text: string, columns: ReadonlySet<string>): boolean {
  const found = tokensOf(text)
  if (found === undefined) return false
  let depth = 0
  for (const [at, { kind, text: token }] of found.entries()) {
    const next = found[at + 1]?.text
    if (kind === 'word' && !isWord(token, next, columns)) return false
    if (kind === 'quoted' && !isQuotedName(token, found[at - 1]?.text, next, columns)) return false
    if (token === '(') depth++
    if (token === ')' && --depth < 0) return false
  }
  return depth === 0
}

function isWord(word: string, next: string | undefined, columns: ReadonlySet<string>): boolean {
  const small = word.toLowerCase()
  if (next === '(') return functions.has(small) || keywords.has(small) || types.has(small)
  return columns.has(word) || keywords.has(small) || typeWords.has(small)
}

/** A column, the name of a collation, or a function whose name is also a keyword: `"left"(…)`. */
function isQuotedName(
  quoted: string,
  before: string | undefined,
  next: string | undefined,
  columns: ReadonlySet<string>,
): boolean {
  const name = quoted.slice(1, -1).replaceAll('""', '"')
  if (next === '(') return functions.has(name)
  return before?.toLowerCase() === 'collate' || columns.has(name)
}

interface Token {
  readonly kind: 'word' | 'quoted' | 'other'
  readonly text: string
}

/** Undefined if the text has something else, such as a semicolon, a comment or a dollar quote. */
function tokensOf(text: string): Token[] | undefined {
  const pattern =
    /\s+|'(?:[^']|'')*'|("(?:[^"]|"")+")|\d+(?:\.\d+)?(?:e[+-]?\d+)?|([a-z_][a-z0-9_]*)|::|[(),[\]:]|[-+*/<>=~!@#%^&|?]+/iy
  const tokens: Token[] = []
  while (pattern.lastIndex < text.length) {
    const found = pattern.exec(text)
    if (found === null || /^[^'"]*(?:--|\/\*)/.test(found[0])) return undefined
    const [token, quoted, word] = found
    if (token.trim() === '') continue
    // Two texts in a row are one to PostgreSQL, or a text with a prefix that changes its meaning.
    if (token.startsWith("'") && tokens.at(-1)?.kind === 'word' && !keywords.has(tokens.at(-1)!.text.toLowerCase()))
      return undefined
    tokens.push({ kind: word !== undefined ? 'word' : quoted !== undefined ? 'quoted' : 'other', text: token })
  }
  return tokens
}

function words(...lists: readonly string[]): ReadonlySet<string> {
  return new Set(lists.flatMap(list => list.split(' ')))
}

const types: ReadonlySet<string> = new Set([
  ...words(
    'bigint integer smallint numeric real boolean text json jsonb uuid date interval bytea tsvector tsquery inet',
  ),
  ...words('timestamptz varchar char bpchar regconfig money cidr macaddr'),
  ...['double precision', 'character varying', 'character', 'bit varying'],
])

const typeWords: ReadonlySet<string> = new Set([...types].flatMap(type => type.split(' ')).concat('timestamp', 'time'))

const functions: ReadonlySet<string> = words(
  'coalesce nullif greatest least lower upper left right length octet_length md5 abs date_trunc timezone now clock_timestamp',
  'gen_random_uuid jsonb_typeof jsonb_array_length to_tsvector websearch_to_tsquery plainto_tsquery',
)

const keywords: ReadonlySet<string> = words(
  'case when then else end is not null true false and or in any all array collate asc desc nulls first last include',
  'where with without zone distinct from between like ilike similar',
  'jsonb_path_ops jsonb_ops text_pattern_ops varchar_pattern_ops text_ops gin_trgm_ops',
  'fillfactor fastupdate pages_per_range autosummarize deduplicate_items gin_pending_list_limit',
)

function show(text: unknown): string {
  return JSON.stringify(typeof text === 'string' ? text.slice(0, 80) : text) ?? 'nothing'
}
