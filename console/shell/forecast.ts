/** When a backlog will be empty, from how it has changed while it was looked at. */
import { useRef } from 'preact/hooks'
import { clockTime, duration, quantity } from '../parts/format.ts'

export interface Sample {
  readonly at: number
  readonly count: number
}

const windowMs = 60_000
/** Less than this tells nothing. */
const minMs = 4_000

/** The last minute of samples; each call with another time adds one. */
export function useSamples(count: number | undefined, at: number | undefined): readonly Sample[] {
  const samples = useRef<Sample[]>([])
  const last = samples.current.at(-1)
  if (count !== undefined && at !== undefined && last?.at !== at)
    samples.current = [...samples.current.filter(each => at - each.at <= windowMs), { at, count }]
  return samples.current
}

/** A sentence; undefined while nothing can be said. */
export function forecast(samples: readonly Sample[]): string | undefined {
  const first = samples[0]
  const last = samples.at(-1)
  if (first === undefined || last === undefined) return undefined
  if (last.count === 0) return 'nothing waits'
  const ms = last.at - first.at
  if (ms < minMs) return undefined
  const perSecond = ((first.count - last.count) * 1000) / ms
  if (Math.abs(perSecond) < 0.05) return 'it stays as it is'
  if (perSecond < 0) return `grows by ${quantity(Math.max(1, Math.round(-perSecond)))} a second`
  const leftMs = (last.count / perSecond) * 1000
  if (leftMs > 7 * 86_400_000) return 'not within a week at this rate'
  return `in about ${duration(leftMs)}, at ${clockTime(last.at + leftMs)}`
}
