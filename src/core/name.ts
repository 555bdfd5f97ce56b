/**
 * Names people give: streams, event types, keys, aliases, ids of requests and users.
 *
 * Checked before anything is sent, because the database would refuse a NUL or half a character only at the end of a
 * batch, and take the batch's innocent neighbours down with it. 255 bytes keep every name inside an index entry.
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
  | 'Node'
  | 'Document'
  | 'Category'
  | 'Handler'
  | 'Schedule'
  | 'Step'
  | 'Server'

/** Why this text cannot be a name, ready to follow the name in a sentence; undefined if it can. */
export function nameFault(name: string): string | undefined {
  if (name === '') return 'is empty'
  // A UTF-16 unit takes at most three bytes, so most names are never measured.
  if (name.length > maxNameBytes || (name.length * 3 > maxNameBytes && Buffer.byteLength(name) > maxNameBytes)) {
    return `is longer than ${maxNameBytes} bytes`
  }
  return textFault(name)
}

/** Why PostgreSQL cannot hold this text, in a `text` as little as in a `jsonb`; undefined if it can. */
export function textFault(text: string): string | undefined {
  if (!unstorable.test(text)) return undefined
  return text.includes('\0') ? 'contains a NUL character' : 'contains a lone surrogate, half of a character'
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

const maxNameBytes = 255
// With the u flag a surrogate that is half of a pair is no code point of its own, so only lone ones match.
const unstorable = /[\0\p{Surrogate}]/u

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value)
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

/** An id that says what it is of and sorts by time, so that neighbours in an index were made together. */
export function newId(category: string, ids: Ids): string {
  return checkName('Stream', `${checkName('Category', category)}-${ids.next()}`)
}
