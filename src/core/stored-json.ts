/**
 * JSON as the database gives it back. It stores objects with their keys sorted, by length in bytes and then by the bytes:
 * a value that is not read back must look the same, also to code that walks over its keys.
 */

export function parseStored(text: string): unknown {
  return sorted(JSON.parse(text))
}

function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length; at++) value[at] = sorted(value[at])
    return value
  }
  const fields = value as Record<string, unknown>
  const keys = Object.keys(fields)
  let isSorted = true
  for (const [at, key] of keys.entries()) {
    if (at > 0 && byStoredOrder(keys[at - 1]!, key) > 0) isSorted = false
    const field = fields[key]
    if (typeof field === 'object') fields[key] = sorted(field)
  }
  return isSorted ? value : Object.fromEntries(keys.sort(byStoredOrder).map(key => [key, fields[key]]))
}

function byStoredOrder(a: string, b: string): number {
  if (beyondAscii.test(a) || beyondAscii.test(b)) {
    const [one, other] = [Buffer.from(a), Buffer.from(b)]
    return one.length - other.length || Buffer.compare(one, other)
  }
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0)
}

const beyondAscii = /[^\0-\x7f]/
