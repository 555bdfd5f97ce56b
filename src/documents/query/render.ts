/**
 * Conditions as SQL. A field with an index is compared by the very expression of the index.
 *
 * The SQL of a test may be null where the test is not met. Through `and` and `or` that is the same as false, and `not` is
 * written `is not true`.
 */

import { identifier } from '../../database/sql.ts'
import { InvalidQuery } from '../errors.ts'
import type { Comparison, Condition, Test } from './condition.ts'
import { isIndex, jsonAt, lowered, short, shortLength, typedAt } from './expression.ts'
import { documentScope, type FoundWords, type Place, type Scope, type SearchOptions } from './field.ts'
import { columnFor, columnOf, type FoundColumn, hasContaining, isOrdered, type Layout } from './layout.ts'
import type { Binder } from './operand.ts'
import { dateText, filled, isOpen, jsonText, type Kind, kindOf, kindsIn, numberText, textOf } from './operand.ts'
import { checkLanguage, configuration, type SearchFields, vectorOf } from './search.ts'

/** The statement that a condition is written for: the SQL of each scope's JSON, and its parameters. */
export interface Writing {
  readonly binder: Binder
  readonly layout: Layout
  readonly collection: string
  /** The prefix of the columns: `d.`, or nothing in an index. */
  readonly prefix: string
  readonly scopes: ReadonlyMap<Scope, string>
  /** How many conditions are around this one. */
  readonly depth: number
  readonly written: { tests: number }
}

export function startWriting(binder: Binder, layout: Layout, collection: string, prefix: string): Writing {
  const scopes = new Map([[documentScope, `${prefix}body`]])
  return { binder, layout, collection, prefix, scopes, depth: 0, written: { tests: 0 } }
}

export function renderCondition(condition: Condition, outer: Writing): string {
  const { test } = condition
  const writing = { ...outer, depth: outer.depth + 1 }
  refuseLarge(writing)
  if (condition.budgetMs !== undefined) writing.binder.limit?.(condition.budgetMs)
  switch (test.op) {
    case 'all':
      return joined(test.of, ' and ', 'true', writing)
    case 'some':
      return joined(test.of, ' or ', 'false', writing)
    case 'not':
      return test.of.test.op === 'isNull'
        ? renderIsNull(test.of.test.place, writing, true)
        : `(${renderCondition(test.of, writing)}) is not true`
    case 'compare':
      return renderCompare(test, writing)
    case 'in':
      return renderIn(test, writing)
    case 'isNull':
      return renderIsNull(test.place, writing, false)
    case 'contains':
      return renderContains(test.place, test.operand, writing)
    case 'elemMatch':
      return renderElemMatch(test, writing)
    case 'search':
      return renderSearch(test, writing)
    default:
      return renderTextTest(test, writing)
  }
}

/** A query of more is hardly meant, and would fill the stack of the database: the embedded one overflows at a few hundred. */
const limits = { depth: 50, tests: 2_000, pattern: 1_000, searched: 10_000, words: 500 }

function refuseLarge({ depth, written, collection }: Writing): void {
  if (depth > limits.depth)
    throw new InvalidQuery({ collection, reason: `conditions are nested deeper than ${limits.depth} levels` })
  if (++written.tests > limits.tests)
    throw new InvalidQuery({ collection, reason: `it has more than ${limits.tests} conditions` })
}

function joined(conditions: readonly Condition[], by: string, none: string, writing: Writing): string {
  if (conditions.length === 0) return none
  return `(${conditions.map(each => renderCondition(each, writing)).join(by)})`
}

/** The SQL of a place read as `kind`; undefined if it is in a column of another kind. */
export function readAs(place: Place, kind: Kind, writing: Writing): string | undefined {
  const value = valueAs(place, kind, writing)
  return value !== undefined && place.isLower === true && kind === 'text' ? lowered(value) : value
}

function valueAs(place: Place, kind: Kind, writing: Writing): string | undefined {
  const { layout, prefix } = writing
  const column = columnIn(place, writing)
  if (column?.kind === 'json') return typedAt(column.sql, column.path, kind)
  if (column !== undefined) {
    if (column.kind !== kind) return undefined
    if (kind === 'text')
      return column.type === 'uuid' ? `(${column.sql}::text collate "C")` : `(${column.sql} collate "C")`
    return kind === 'number' && column.type !== 'double precision' ? `${column.sql}::numeric` : column.sql
  }
  const generated = place.scope === documentScope ? columnFor(layout, place, kind) : undefined
  return generated === undefined
    ? typedAt(baseOf(place, writing), place.path, kind)
    : `${prefix}${identifier(generated)}`
}

export function columnIn(place: Place, { layout, prefix, collection }: Writing): FoundColumn | undefined {
  return columnOf(place, layout, prefix, collection)
}

/** The time in a column, as precise as a Date is. */
export function timeOf(place: Place, writing: Writing): string | undefined {
  const column = columnIn(place, writing)
  return column?.kind === 'time' ? `date_trunc('milliseconds', ${column.sql})` : undefined
}

/** The JSON of a place; undefined if it is in a column that holds something else. */
function jsonOf(place: Place, writing: Writing): string | undefined {
  const column = columnIn(place, writing)
  if (column === undefined) return jsonAt(baseOf(place, writing), place.path)
  return column.kind === 'json' ? jsonAt(column.sql, column.path) : undefined
}

/** Whether there is an index on this value, or on its beginning if it is text. */
export function isIndexed(place: Place, kind: Kind, { layout }: Writing): boolean {
  if (layout.row !== undefined) return false
  return place.meta === undefined && place.scope === documentScope && isOrdered(layout, place, kind)
}

function baseOf(place: Place, { scopes, collection }: Writing): string {
  const base = scopes.get(place.scope)
  if (base !== undefined) return base
  throw new InvalidQuery({ collection, reason: 'a field was used outside of the function that got it' })
}

function renderCompare({ by, place, operand }: Test & { op: 'compare' }, writing: Writing): string {
  const { collection, binder } = writing
  const kind = kindOf(filled(operand))
  if (kind === 'null' && by === '=') return renderIsNull(place, writing, false)
  const column = columnIn(place, writing)
  if (column?.kind === 'time' && kind === 'text')
    return `${timeOf(place, writing)} ${by} ${binder.bind(operand, 'timestamptz', timeText)}`
  if (kind === 'json' && by === '=') {
    const json = jsonOf(place, writing)
    return json === undefined ? 'false' : `${json} = ${binder.bind(operand, 'jsonb', jsonText)}`
  }
  if (kind === 'null' || kind === 'json')
    throw new InvalidQuery({ collection, reason: `an operand of ${by} is ${kind}` })
  if (by === '=' && isFoundByContaining(place, kind, writing)) return renderContains(place, operand, writing)
  const own = writing.layout.row === undefined ? undefined : compareColumn(column, place, by, kind, operand, writing)
  if (own !== undefined) return own
  const value = readAs(place, kind, writing)
  if (value === undefined) return 'false'
  if (kind !== 'text') return `${value} ${by} ${bindAs(kind, operand, writing)}`
  return compareText(value, by, bindText(place, operand, writing), isIndexed(place, kind, writing))
}

/**
 * A column of a row, compared in its own type, so that an index on it serves. Undefined where the operand may be one that
 * the type does not have: a number that is not whole, a text that is not a UUID, an argument of a compiled query.
 */
function compareColumn(
  column: FoundColumn | undefined,
  place: Place,
  by: Comparison,
  kind: Kind,
  operand: unknown,
  { binder }: Writing,
): string | undefined {
  if (column === undefined || place.isLower === true) return undefined
  const { sql, type } = column
  if (type === 'numeric' && kind === 'text') return `${sql} ${by} ${binder.bind(operand, type, decimalText)}`
  if (column.kind !== kind) return undefined
  if (type === 'bigint')
    return !isOpen(operand) && isWholeNumber(operand)
      ? `${sql} ${by} ${binder.bind(operand, type, numberText)}`
      : undefined
  if (type === 'numeric' || type === 'double precision') return `${sql} ${by} ${binder.bind(operand, type, numberText)}`
  if (type === 'uuid')
    return !isOpen(operand) && by === '=' && isUuid(operand)
      ? `${sql} = ${binder.bind(operand, type, textOf)}`
      : undefined
  // Two texts that are equal are equal in every collation; less and greater go by code points here.
  if (type === 'text' && (by === '=' || column.isBytewise)) return `${sql} ${by} ${binder.bind(operand, type, textOf)}`
  return undefined
}

function isWholeNumber(operand: unknown): boolean {
  return typeof operand === 'bigint' ? operand === BigInt.asIntN(64, operand) : Number.isSafeInteger(operand)
}

/** A `numeric` is read as text, so it is compared with text, too. */
function decimalText(operand: unknown): string {
  if (typeof operand === 'string' && /^[+-]?\d+(\.\d+)?$/.test(operand)) return operand
  throw new InvalidQuery({ reason: `an operand is ${JSON.stringify(operand)}, and the column holds decimal numbers` })
}

function isUuid(operand: unknown): boolean {
  return typeof operand === 'string' && /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i.test(operand)
}

function compareText(value: string, by: Comparison, operand: string, isIndexed: boolean): string {
  if (!isIndexed) return `${value} ${by} ${operand}`
  // A text is less than another only if its beginning is less than the other's, or the same.
  const about = by === '=' ? '=' : by.startsWith('<') ? '<=' : '>='
  return `(${short(value)} ${about} ${short(operand)} and ${value} ${by} ${operand})`
}

function bindText(place: Place, operand: unknown, { binder }: Writing): string {
  const text = binder.bind(operand, 'text', textOf)
  return place.isLower === true ? lowered(text) : text
}

function bindAs(kind: 'number' | 'boolean', operand: unknown, { binder }: Writing): string {
  return kind === 'number' ? binder.bind(operand, 'numeric', numberText) : binder.bind(operand, 'boolean', String)
}

function timeText(operand: unknown): string {
  return dateText(operand instanceof Date ? operand : new Date(operand as string))
}

/** A scalar at a path of names is equal exactly if the body contains it, and that is indexed. */
function isFoundByContaining(place: Place, kind: Kind, writing: Writing): boolean {
  if (writing.layout.row !== undefined || place.meta !== undefined) return false
  if (place.isLower === true || place.scope !== documentScope) return false
  if (isIndexed(place, kind, writing) || columnFor(writing.layout, place, kind) !== undefined) return false
  return hasContaining(writing.layout, []) && place.path.length > 0 && !place.path.some(isIndex)
}

function renderIn({ place, operands }: Test & { op: 'in' }, writing: Writing): string {
  const list = filled(operands)
  if (!Array.isArray(list)) throw new InvalidQuery({ collection: writing.collection, reason: 'isIn takes an array' })
  const kinds = kindsIn(list)
  const of = (kind: string) => (given: unknown) => (given as unknown[]).filter(each => kindOf(each) === kind)
  const tests: string[] = []
  if (kinds.has('null')) tests.push(renderIsNull(place, writing, false))
  if (kinds.has('text')) tests.push(renderTextIn(place, operands, given => of('text')(given), writing))
  for (const kind of ['number', 'boolean'] as const) {
    const value = kinds.has(kind) ? readAs(place, kind, writing) : undefined
    if (value === undefined) continue
    // Booleans are compared as text, 'true' and 'false': there is no parameter type for lists of them.
    const make = (given: unknown): string[] => of(kind)(given).map(kind === 'number' ? numberText : String)
    const type = kind === 'number' ? 'numeric[]' : 'text[]'
    tests.push(`${kind === 'number' ? value : `${value}::text`} = any(${writing.binder.bind(operands, type, make)})`)
  }
  if (kinds.has('json'))
    throw new InvalidQuery({
      collection: writing.collection,
      reason: 'isIn does not take arrays or objects; use or(eq(…), …)',
    })
  return tests.length === 0 ? 'false' : `(${tests.join(' or ')})`
}

function renderTextIn(
  place: Place,
  operands: unknown,
  textsIn: (given: unknown) => unknown[],
  writing: Writing,
): string {
  const { binder } = writing
  const column = columnIn(place, writing)
  if (column?.type === 'numeric')
    return `${column.sql} = any(${binder.bind(operands, 'numeric[]', given => textsIn(given).map(decimalText))})`
  const time = timeOf(place, writing)
  if (time !== undefined)
    return `${time} = any(${binder.bind(operands, 'text[]', given => textsIn(given).map(timeText))}::timestamptz[])`
  const value = plainText(place, writing) ?? readAs(place, 'text', writing)
  if (value === undefined) return 'false'
  const list = binder.bind(operands, 'text[]', given => textsIn(given).map(textOf))
  const texts = place.isLower === true ? `array(select ${lowered('each')} from unnest(${list}) as each)` : list
  if (!isIndexed(place, 'text', writing)) return `${value} = any(${texts})`
  const beginnings =
    place.isLower === true
      ? `array(select ${short(lowered('each'))} from unnest(${list}) as each)`
      : binder.bind(operands, 'text[]', given => textsIn(given).map(each => shortened(textOf(each))))
  return `(${short(value)} = any(${beginnings}) and ${value} = any(${texts}))`
}

/** The text column of a row as it is: whether texts are equal does not depend on the collation, and an index may serve. */
function plainText(place: Place, writing: Writing): string | undefined {
  if (writing.layout.row === undefined || place.isLower === true) return undefined
  const column = columnIn(place, writing)
  return column?.type === 'text' ? column.sql : undefined
}

function shortened(text: string): string {
  return text.length <= shortLength ? text : [...text].slice(0, shortLength).join('')
}

function renderIsNull(place: Place, writing: Writing, isNegated: boolean): string {
  const column = columnIn(place, writing)
  if (column !== undefined && column.kind !== 'json') return `${column.sql} is ${isNegated ? 'not ' : ''}null`
  const type = `coalesce(jsonb_typeof(${jsonOf(place, writing)}), 'null')`
  return `${type} ${isNegated ? '<>' : '='} 'null'`
}

/** Where a path has no index of its own, the whole body is asked for a nested object. */
function renderContains(place: Place, operand: unknown, writing: Writing): string {
  const json = jsonOf(place, writing)
  if (json === undefined) return 'false'
  const { path, scope } = place
  const kind = kindOf(filled(operand))
  const encode = kind === 'number' ? numberText : jsonText
  const isOwn = path.length > 0 && (hasContaining(writing.layout, path) || path.some(isIndex))
  if (writing.layout.row !== undefined || scope !== documentScope || isOwn || path.length === 0)
    return `${json} @> ${writing.binder.bind(operand, 'jsonb', encode)}`
  const opening = path.map(step => `{${JSON.stringify(step)}:`).join('')
  const nest = (given: unknown): string => opening + encode(given) + '}'.repeat(path.length)
  return `${baseOf(place, writing)} @> ${writing.binder.bind(operand, 'jsonb', nest)}`
}

function renderTextTest(test: Test & { op: 'startsWith' | 'like' | 'regex' }, writing: Writing): string {
  const { op, place } = test
  const { collection } = writing
  if (kindOf(filled(test.operand)) !== 'text') throw new InvalidQuery({ collection, reason: `${op} takes text` })
  const value = readAs(place, 'text', writing)
  if (value === undefined) return 'false'
  if (op === 'startsWith') {
    const prefix = bindText(place, test.operand, writing)
    if (!isIndexed(place, 'text', writing)) return `starts_with(${value}, ${prefix})`
    // Texts with this beginning are between the prefix, and the prefix followed by the last character of Unicode.
    const last = short(`${prefix} || repeat(chr(1114111), ${shortLength})`)
    return `(${short(value)} >= ${short(prefix)} and ${short(value)} <= ${last} and starts_with(${value}, ${prefix}))`
  }
  if (op === 'regex') return `${value} ~ ${writing.binder.bind(test.operand, 'text', patternOf)}`
  return `${value} like ${writing.binder.bind(test.operand, 'text', given => checkedPattern(patternOf(given)))}`
}

function patternOf(operand: unknown): string {
  const pattern = textOf(operand)
  if (pattern.length <= limits.pattern) return pattern
  throw new InvalidQuery({ reason: `a pattern has more than ${limits.pattern} characters` })
}

export function checkedPattern(pattern: string): string {
  const trailing = /\\+$/.exec(pattern)?.[0].length ?? 0
  if (trailing % 2 === 0) return pattern
  throw new InvalidQuery({ reason: 'the pattern of like ends with a single \\, which needs a character after it' })
}

function renderElemMatch({ place, scope, of }: Test & { op: 'elemMatch' }, writing: Writing): string {
  const array = jsonOf(place, writing)
  if (array === undefined) return 'false'
  const alias = `e${writing.scopes.size}`
  const inside = { ...writing, scopes: new Map([...writing.scopes, [scope, `${alias}.value`]]) }
  return `exists (
      select
      from jsonb_array_elements(case when jsonb_typeof(${array}) = 'array' then ${array} else '[]' end) as ${alias}(value)
      where ${renderCondition(of, inside)})`
}

function renderSearch({ place, operand, options }: Test & { op: 'search' }, writing: Writing): string {
  const { texts, language, query } = searchIn(place, operand, options, writing)
  return `${vectorOf(texts, language)} @@ ${query}`
}

/** The rank of a document for some words, or the part of a text that has them. */
export function renderFound(place: Place, { as, words, mark, ...options }: FoundWords, writing: Writing): string {
  const { texts, language, query } = searchIn(place, words, options, writing)
  if (as === 'rank') return `ts_rank_cd(${vectorOf(texts, language)}, ${query})::double precision`
  const [start, stop] = mark ?? ['<b>', '</b>']
  if (`${start}${stop}`.includes('"'))
    throw new InvalidQuery({ collection: writing.collection, reason: 'the mark of a headline has a quote in it' })
  const marks = writing.binder.bind(`StartSel="${start}", StopSel="${stop}"`, 'text', textOf)
  return `ts_headline(${configuration(language)}, concat_ws(' ', ${texts.join(', ')}), ${query}, ${marks})`
}

function searchIn(
  place: Place,
  words: unknown,
  { language: given, prefix = false }: SearchOptions,
  writing: Writing,
): { readonly texts: readonly string[]; readonly language: string; readonly query: string } {
  const { search, row } = writing.layout
  const language = checkLanguage(given ?? search.language)
  const texts =
    row === undefined ? searchedTexts(place, search.fields, writing) : [readAs(place, 'text', writing) ?? 'null']
  const parsed = `websearch_to_tsquery(${configuration(language)}, ${writing.binder.bind(words, 'text', wordsOf)})`
  // Words that are too common leave nothing to look for, and nothing that could be the beginning of a word.
  const begun = `(select case when numnode(q) = 0 then q else (q::text || ':*')::tsquery end from ${parsed} as q)`
  return { texts, language, query: prefix ? begun : parsed }
}

/** The words of a search are nested in one another by the database. */
function wordsOf(operand: unknown): string {
  const text = textOf(operand)
  const { searched, words } = limits
  if (text.length <= searched && (text.match(/[\p{L}\p{N}]+/gu)?.length ?? 0) <= words) return text
  throw new InvalidQuery({ reason: `a search has more than ${words} words or ${searched} characters` })
}

function searchedTexts(place: Place, fields: SearchFields['fields'], writing: Writing): string[] {
  const searched = place.path.length === 0 && place.scope === documentScope ? fields : [place.path]
  return searched.map(path => typedAt(baseOf(place, writing), path, 'text'))
}
