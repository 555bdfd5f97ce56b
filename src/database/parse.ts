/**
 * How values come back, on both engines: PostgreSQL's text form in, JavaScript out. Keyed by type oid and passed
 * with each query, because changing the driver's global parsers would change the user's other queries.
 */
export const parsers: Readonly<Record<number, (text: string) => unknown>> = {
  16: text => text === 't' || text === 'true',
  20: BigInt,
  21: Number,
  23: Number,
  26: Number,
  114: JSON.parse,
  700: Number,
  701: Number,
  1016: parseBigints,
  1184: parseTimestamp,
  3802: JSON.parse,
}

/** `2026-11-15 21:01:53.123456+00` as a Date: put into ISO form, which the engine reads several times faster. */
export function parseTimestamp(text: string): Date {
  const iso = text.replace(' ', 'T')
  const date = new Date(/[+-]\d\d$/.test(iso) ? `${iso}:00` : iso)
  return Number.isNaN(date.getTime()) ? parseLocalMeanTime(iso) : date
}

/** Before there were time zones, offsets had seconds (`+05:41:16`), which ISO does not know. */
function parseLocalMeanTime(iso: string): Date {
  const [, local, sign, ...offset] = /^(.+)([+-])(\d\d):(\d\d):(\d\d)$/.exec(iso) ?? []
  const [hours, minutes, seconds] = offset.map(Number) as [number, number, number]
  const aheadMs = ((hours * 60 + minutes) * 60 + seconds) * 1000
  return new Date(new Date(`${local}Z`).getTime() - (sign === '-' ? -aheadMs : aheadMs))
}

function parseBigints(text: string): (bigint | null)[] {
  const items = text === '{}' ? [] : text.slice(1, -1).split(',')
  return items.map(item => (item === 'NULL' ? null : BigInt(item)))
}
