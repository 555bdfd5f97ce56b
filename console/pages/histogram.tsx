/** The events of the list by time, oldest at the left. */
import { useMemo } from 'preact/hooks'
import { clockTime, plural } from '../parts/format.ts'
import type { ListedEvent } from './event-list.ts'

const bins = 96

export function Histogram({ events }: { events: readonly ListedEvent[] }) {
  const counted = useMemo(() => count(events), [events])
  if (counted === undefined) return <figure class="strip strip-empty" />
  const { from, to, counts } = counted
  const high = Math.max(...counts)
  return (
    <figure class="strip">
      <svg
        viewBox="0 0 768 40"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${plural(events.length, 'event')} from ${clockTime(from)} to ${clockTime(to)}, the newest at the right`}
      >
        {counts.map((value, index) => {
          const height = value === 0 ? 1 : Math.max(3, (value / high) * 40)
          return (
            <rect
              key={index}
              class={value === 0 ? 'br-faint' : 'br-soft'}
              x={index * 8}
              y={40 - height}
              width={6.5}
              height={height}
            />
          )
        })}
      </svg>
      <div class="strip-times">
        <span>{clockTime(from)}</span>
        <span>{clockTime((from + to) / 2)}</span>
        <span>{clockTime(to)}</span>
      </div>
    </figure>
  )
}

function count(events: readonly ListedEvent[]): { from: number; to: number; counts: number[] } | undefined {
  const newest = events[0]
  const oldest = events.at(-1)
  if (newest === undefined || oldest === undefined) return undefined
  const from = Date.parse(oldest.createdAt)
  const to = Math.max(Date.parse(newest.createdAt), from + 1)
  const counts = new Array<number>(bins).fill(0)
  for (const event of events) {
    const bin = Math.floor(((Date.parse(event.createdAt) - from) / (to - from)) * (bins - 1))
    counts[Math.min(bins - 1, Math.max(0, bin))]!++
  }
  return { from, to, counts }
}
