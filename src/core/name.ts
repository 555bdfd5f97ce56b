/**
 * Names that users give: of streams, event types, keys, aliases, requests and users; and the name that was probably
 * meant.
 *
 * A name is checked before anything is sent, because the database would refuse a NUL or half of a character only at the
 * end of a batch, which would fail the other calls of the batch. 255 bytes keep every name inside an index entry.
 * Nothing is trimmed, folded or replaced: two names that differ stay two names.
 */
import { InvalidName } from './errors.ts'
import { type Ids, isUuid } from './id.ts'

/** Returns the name if it can be stored, and throws `InvalidName` if not. */
export function checkName(what: NameKind, name: unknown): string {
  if (typeof name !== 'string') {
    throw new InvalidName({
      what,
      given: typeof name === 'object' ? '' : String(name),
      reason: `is not a string but ${kindOf(name)}`,
    })
  }
  const reason = nameFault(name)
  if (reason !== undefined) throw new InvalidName({ what, given: name, reason })
  return name
}

export type NameKind =
  | 'Stream'
  | 'Event type'
  | 'Idempotency key'
  | 'Alias'
  | 'Import'
  | 'Correlation id'
  | 'Causation id'
  | 'User id'
  | 'Consumer'
  | 'Group'
  | 'Runner'
  | 'Actor'
  | 'Document'
  | 'Category'
  | 'Handler'
  | 'Schedule'
  | 'Step'
  | 'Server'

/** Why this text cannot be a name, to follow the name in a sentence; undefined if it can. */
export function nameFault(name: string): string | undefined {
  if (name === '') return 'is empty'
  // A UTF-16 unit has at most three bytes, so most names are never measured.
  if (name.length > maxNameBytes || (name.length * 3 > maxNameBytes && Buffer.byteLength(name) > maxNameBytes)) {
    return `is longer than ${maxNameBytes} bytes`
  }
  return textFault(name)
}

/** Why PostgreSQL cannot store this text, as `text` or in a `jsonb`; undefined if it can. */
export function textFault(text: string): string | undefined {
  if (!unstorable.test(text)) return undefined
  return text.includes('\0') ? 'contains a NUL character' : 'contains half of a character (an unpaired surrogate)'
}

/**
 * The part of a stream's name before its first `-`: `order` of `order-42`. A name without one is its own category;
 * a bare UUID, or a name that starts with `-`, has none.
 */
export function category(stream: string): string | undefined {
  const dash = stream.indexOf('-')
  if (dash < 0) return stream
  return dash === 0 || isUuid(stream) ? undefined : stream.slice(0, dash)
}

/** The closest of these names, if it is close enough to be a typing mistake. */
export function nearestName(given: string, names: Iterable<string>): string | undefined {
  let nearest: string | undefined
  let least = Math.max(2, Math.floor(given.length / 3)) + 1
  for (const name of names) {
    const distance = editDistance(given.toLowerCase(), name.toLowerCase(), least)
    if (distance < least) {
      least = distance
      nearest = name
    }
  }
  return nearest
}

/** How many letters have to be inserted, deleted or replaced, by the usual table; `limit` if there are more. */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const replace = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(replace, row[j]! + 1, next[j - 1]! + 1))
    }
    row = next
  }
  return Math.min(row[b.length]!, limit)
}

const maxNameBytes = 255
// With the u flag only an unpaired surrogate matches: the two of a pair are one code point.
const unstorable = /[\0\p{Surrogate}]/u

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value)
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

/** An id with its category in front that sorts by time, so that neighbours in an index were made together. */
export function newId(category: string, ids: Ids): string {
  return checkName('Stream', `${checkName('Category', category)}-${ids.next()}`)
}

/** A word of the database as TypeScript has it: `max_retries` is `maxRetries`. */
export function camelCase(word: string): string {
  return word.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

/** A word of TypeScript as the database has it: `maxRetries` is `max_retries`. */
export function snakeCase(word: string): string {
  return word.replaceAll(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
}
