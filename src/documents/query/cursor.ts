/**
 * Cursors: the end of a page, as text that goes back as `after`. A cursor holds the values that the results are ordered by, and
 * a checksum over them and the order, so that one that was changed, or belongs to another query, is refused.
 */
import { createHash } from 'node:crypto'
import { textFault } from '../../core/name.ts'
import { InvalidCursor } from '../errors.ts'
import type { ParameterType } from './operand.ts'
import { type Bookmark, fitsType, type OrderKey } from './order.ts'

export function encodeCursor(collection: string, keys: readonly OrderKey[], mark: Bookmark): string {
  const head = Buffer.from(JSON.stringify([mark.key, ...mark.values])).toString('base64url')
  return `${head}.${checksum(collection, keys, head)}`
}

export function decodeCursor(
  collection: string,
  keys: readonly OrderKey[],
  types: BookmarkTypes,
  cursor: unknown,
): Bookmark {
  if (typeof cursor !== 'string') throw new InvalidCursor({ reason: `is not a string but ${typeof cursor}` })
  const [head = '', sum, ...more] = cursor.slice(0, maxLength + 1).split('.')
  if (sum === undefined || more.length > 0 || cursor.length > maxLength || !/^[\w-]+$/.test(head))
    throw new InvalidCursor({ reason: 'is not a cursor of a query' })
  if (checksum(collection, keys, head) !== sum)
    throw new InvalidCursor({ reason: 'was changed, or belongs to another query' })
  const [key, ...values] = parsed(Buffer.from(head, 'base64url').toString())
  const isFitting = (value: unknown, type: ParameterType | undefined): value is string =>
    typeof value === 'string' && type !== undefined && textFault(value) === undefined && fitsType(type, value)
  const fits =
    Array.isArray(key) &&
    key.length === types.key.length &&
    key.every((value, i) => isFitting(value, types.key[i])) &&
    values.length === types.values.length &&
    values.every((value, i) => value === null || isFitting(value, types.values[i]))
  if (!fits) throw new InvalidCursor({ reason: 'does not fit the order of the query' })
  return { key: key as string[], values: values as (string | null)[] }
}

export interface BookmarkTypes {
  readonly key: readonly ParameterType[]
  readonly values: readonly ParameterType[]
}

/** Far more than a URL takes: the values of an order may be long texts. */
const maxLength = 1024 * 1024

function parsed(payload: string): unknown[] {
  try {
    const value: unknown = JSON.parse(payload)
    return Array.isArray(value) ? value : []
  } catch {
    return []
  }
}

function checksum(collection: string, keys: readonly OrderKey[], head: string): string {
  const order = keys.map(({ place, as, direction, nulls }) => [
    ...[place.path, place.meta ?? '', place.isLower === true, as, direction, nulls],
  ])
  return createHash('sha256')
    .update(JSON.stringify([collection, order, head]))
    .digest('base64url')
    .slice(0, 16)
}
