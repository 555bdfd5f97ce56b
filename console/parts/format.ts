/** Numbers, times and durations as the console writes them. */
import { computed, signal } from '@preact/signals'
import { taste } from '../shell/taste.ts'

const whole = new Intl.NumberFormat('en-GB')
const finer = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 2 })
const fine = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 1 })

/** 17,009 */
export function quantity(value: number): string {
  return whole.format(Math.round(value))
}

/** 0.25, 4.2, or 1,840 from 100 on. */
export function rate(value: number): string {
  if (value < 1) return finer.format(value)
  return value < 100 ? fine.format(value) : whole.format(Math.round(value))
}

/** A count that ended at its limit: 10,000+ */
export function capped(value: number, limit = 10_000): string {
  return value >= limit ? `${whole.format(limit)}+` : whole.format(value)
}

/** ~1,840 */
export function estimate(value: number): string {
  return `~${whole.format(Math.max(0, Math.round(value)))}`
}

export function bytes(value: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let left = value
  let unit = 0
  while (left >= 1000 && unit < units.length - 1) {
    left /= 1000
    unit++
  }
  return `${left < 10 && unit > 0 ? fine.format(left) : whole.format(Math.round(left))} ${units[unit]}`
}

/** Two units at most: 4 min 9 s. */
export function duration(ms: number): string {
  if (ms < 1) return '0 ms'
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1000).toFixed(2).replace(/\.?0+$/, '')} s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 60) return `${seconds} s`
  return two([
    Math.floor(seconds / 86_400),
    'd',
    Math.floor(seconds / 3600) % 24,
    'h',
    Math.floor(seconds / 60) % 60,
    'min',
    seconds % 60,
    's',
  ])
}

function two(parts: readonly (number | string)[]): string {
  const pairs: string[] = []
  for (let i = 0; i < parts.length; i += 2) {
    if (parts[i] === 0 && pairs.length === 0) continue
    if (parts[i] !== 0) pairs.push(`${parts[i]} ${parts[i + 1]}`)
    if (pairs.length === 2 || (pairs.length === 1 && parts[i] === 0)) break
  }
  return pairs.join(' ')
}

/** The present, once a second: texts such as "14 s ago" follow it. */
export const now = signal(Date.now())

const zone = computed(() => (taste.value.zone === 'utc' ? 'UTC' : undefined))

const clock = computed(
  () =>
    new Intl.DateTimeFormat('en-GB', { timeZone: zone.value, hour: '2-digit', minute: '2-digit', second: '2-digit' }),
)
const day = computed(
  () => new Intl.DateTimeFormat('en-GB', { timeZone: zone.value, day: 'numeric', month: 'short', year: 'numeric' }),
)

/** 02:23:26, with the day in front of it unless it is today's. */
export function time(at: string | number | Date): string {
  const date = new Date(at)
  const text = clock.value.format(date)
  return day.value.format(date) === day.value.format(now.peek())
    ? text
    : `${day.value.format(date).slice(0, -5)}, ${text}`
}

export function clockTime(at: string | number | Date): string {
  return clock.value.format(new Date(at))
}

/** .112 */
export function milliseconds(at: string | number | Date): string {
  return `.${String(new Date(at).getMilliseconds()).padStart(3, '0')}`
}

/** 17 Nov 2026, 02:23:39.102 UTC */
export function exactTime(at: string | number | Date): string {
  const date = new Date(at)
  const suffix = zone.value === 'UTC' ? ' UTC' : ''
  return `${day.value.format(date)}, ${clock.value.format(date)}${milliseconds(date)}${suffix}`
}

/** "14 s ago", "41 min ago", "in 3 s", "now". */
export function relative(at: string | number | Date): string {
  const ms = now.value - new Date(at).getTime()
  const size = Math.abs(ms)
  // The clock of a page moves on once a second, and is not that of the server.
  if (size < 1500) return 'now'
  const text =
    size < 60_000
      ? `${Math.round(size / 1000)} s`
      : size < 3_600_000
        ? `${Math.round(size / 60_000)} min`
        : size < 86_400_000
          ? `${Math.round(size / 3_600_000)} h`
          : `${Math.round(size / 86_400_000)} d`
  return ms >= 0 ? `${text} ago` : `in ${text}`
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${quantity(count)} ${count === 1 ? one : many}`
}

/** An id that is too long for a column: its first and last characters. */
export function shortId(id: string): string {
  return id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id
}
