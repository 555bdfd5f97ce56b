/**
 * The parameters, the result and the error of a call as JSON that can always be stored: short, without values that the
 * database refuses, and without the data of events.
 */
import { isRillflowError } from '../core/errors.ts'

const maxText = 1_000
const maxJsonBytes = 8_192
const maxDepth = 4
const maxItems = 50

/** Options that are not recorded: they hold data of events, or something that lives. */
const leftOut = new Set(['data', 'tx', 'signal', 'url'])

/** The JSON of a value; undefined if there is nothing to record. A value that is too large is recorded as that. */
export function storable(value: unknown): string | undefined {
  const text = JSON.stringify(plain(value, 0))
  if (text === undefined || Buffer.byteLength(text) <= maxJsonBytes) return text
  return JSON.stringify({ isTooLarge: true, bytes: Buffer.byteLength(text) })
}

/** Text that the database can store: without NUL and halves of characters, and not long. */
export function shorten(text: string): string {
  return text.slice(0, maxText).replaceAll(unstorable, '\ufffd')
}

export function errorOf(error: unknown): { code: string | undefined; message: string } {
  if (!(error instanceof Error)) return { code: undefined, message: String(error) }
  return { code: isRillflowError(error) ? error.code : error.name, message: error.message }
}

function plain(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return shorten(value)
  if (typeof value === 'bigint') return String(value)
  if (typeof value !== 'object' || value === null) return typeof value === 'function' ? undefined : value
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString()
  if (isDefinition(value)) return shorten(value.name)
  if (depth === maxDepth) return '…'
  if (Array.isArray(value)) return value.slice(0, maxItems).map(each => plain(each, depth + 1) ?? null)
  const entries = Object.entries(value).filter(([name]) => !leftOut.has(name))
  return Object.fromEntries(entries.slice(0, maxItems).map(([name, each]) => [shorten(name), plain(each, depth + 1)]))
}

function isDefinition(value: object): value is { readonly kind: string; readonly name: string } {
  const { kind, name } = value as { kind?: unknown; name?: unknown }
  return typeof kind === 'string' && typeof name === 'string'
}

// With the u flag only an unpaired surrogate matches: the two of a pair are one code point.
const unstorable = /[\0\p{Surrogate}]/gu
