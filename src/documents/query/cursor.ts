/**
 * Cursors: where a page ended, as text to be handed back. It holds the values that the order goes by, and a checksum
 * over them and the order, so that one that was changed, cut off or is of another query is told from a good one.
 */
import { createHash } from 'node:crypto'
import { textFault } from '../../core/name.ts'
import { InvalidCursor } from './errors.ts'
import { type Bookmark, fitsKey, type OrderKey } from './order.ts'

export function encodeCursor(collection: string, keys: readonly OrderKey[], mark: Bookmark): string {
  const payload = JSON.stringify([mark.id, ...mark.values])
  return `${Buffer.from(payload).toString('base64url')}.${checksum(collection, keys, payload)}`
}

export function decodeCursor(collection: string, keys: readonly OrderKey[], cursor: unknown): Bookmark {
  if (typeof cursor !== 'string') throw new InvalidCursor({ reason: `is not a string but ${typeof cursor}` })
  const [head = '', sum, ...more] = cursor.slice(0, maxLength + 1).split('.')
  if (sum === undefined || more.length > 0 || cursor.length > maxLength || !/^[\w-]+$/.test(head))
    throw new InvalidCursor({ reason: 'is not one' })
  const payload = Buffer.from(head, 'base64url').toString()
  if (checksum(collection, keys, payload) !== sum)
    throw new InvalidCursor({ reason: 'was changed, or is of another query' })
  const [id, ...values] = parsed(payload)
  const isFitting = (value: unknown, i: number): boolean =>
    value === null || (typeof value === 'string' && textFault(value) === undefined && fitsKey(keys[i]!, value))
  if (
    typeof id !== 'string' ||
    textFault(id) !== undefined ||
    values.length !== keys.length ||
    !values.every(isFitting)
  )
    throw new InvalidCursor({ reason: 'does not fit the order of the query' })
  return { id, values: values as (string | null)[] }
}

/** Longer ones would not fit into a URL, but the values of an order may be long texts. */
const maxLength = 1024 * 1024

function parsed(payload: string): unknown[] {
  try {
    const value: unknown = JSON.parse(payload)
    return Array.isArray(value) ? value : []
  } catch {
    return []
  }
}

function checksum(collection: string, keys: readonly OrderKey[], payload: string): string {
  const order = keys.map(({ place, as, direction, nulls }) => [
    ...[place.path, place.meta ?? '', place.isLower === true, as, direction, nulls],
  ])
  return createHash('sha256')
    .update(JSON.stringify([collection, order, payload]))
    .digest('base64url')
    .slice(0, 16)
}
