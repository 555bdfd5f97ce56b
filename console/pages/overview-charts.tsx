/** The charts of the overview: of the range that is chosen, live at their end. */
import { useMemo } from 'preact/hooks'
import { useReading } from '../api/reading.ts'
import { Chart, type Series } from '../parts/chart.tsx'
import { type FiguresNow, recent } from '../shell/figures.ts'
import type { Taste } from '../shell/taste.ts'

const rangeMs = { '5m': 300_000, '1h': 3_600_000, '24h': 86_400_000 }
const tones = ['1', '2', '3', '4'] as const

export function OverviewCharts({ range }: { range: Taste['range'] }) {
  const history = useReading('GET /history', { query: { range }, everyMs: range === '5m' ? undefined : 30_000 })
  const live = recent.value
  const points = useMemo(() => merge(history.data?.points ?? [], live, rangeMs[range]), [history.data, live, range])
  const times = useMemo(() => points.map(each => Date.parse(each.at)), [points])
  const rates = useMemo(() => [line('events', '1', points, each => each.eventsPerSecond)], [points])
  const runs = useMemo(
    () => [
      line('done', '1', points, each => each.executionsPerSecond),
      line('failed for good', 'bad', points, each => each.failuresPerSecond),
    ],
    [points],
  )
  const lags = useMemo(() => lagSeries(points), [points])
  const work = useMemo(
    () => [
      line('ready', '1', points, each => each.executions.ready),
      line('running', '2', points, each => each.executions.running),
      line('waiting', '3', points, each => each.executions.suspended + each.executions.delayed),
    ],
    [points],
  )
  return (
    <section class="panel charts" aria-label="Charts">
      <Chart title="Events per second" times={times} series={rates} />
      <Chart title="Executions per second" times={times} series={runs} />
      <Chart title="Lag, seconds" times={times} series={lags} />
      <Chart title="Open executions" times={times} series={work} />
    </section>
  )
}

function line(
  name: string,
  tone: Series['tone'],
  points: readonly FiguresNow[],
  pick: (each: FiguresNow) => number | undefined,
): Series {
  return { name, tone, values: points.map(each => pick(each) ?? null) }
}

/** The three consumers with the largest lag, and the others as one. */
function lagSeries(points: readonly FiguresNow[]): Series[] {
  const peak = new Map<string, number>()
  for (const { consumers } of points)
    for (const { name, lagSeconds } of consumers) peak.set(name, Math.max(peak.get(name) ?? 0, lagSeconds))
  const names = [...peak].sort((a, b) => b[1] - a[1]).map(([name]) => name)
  const shown = names.slice(0, names.length > 4 ? 3 : 4)
  const of = (each: FiguresNow, name: string): number | undefined =>
    each.consumers.find(consumer => consumer.name === name)?.lagSeconds
  const series = shown.map((name, index) => line(name, tones[index]!, points, each => of(each, name)))
  const rest = names.slice(shown.length)
  if (rest.length === 0) return series
  return [...series, line('others', '4', points, each => Math.max(...rest.map(name => of(each, name) ?? 0)))]
}

/** What the server remembers, continued by what this page has seen since. */
function merge(past: readonly FiguresNow[], live: readonly FiguresNow[], range: number): FiguresNow[] {
  const last = past.at(-1)?.at ?? ''
  const all = [...past, ...live.filter(each => each.at > last)]
  const since = Date.now() - range
  return all.filter(each => Date.parse(each.at) >= since)
}
