/** The charts of the overview: of the range that is chosen, live at their end. */
import { useMemo } from 'preact/hooks'
import { useReading } from '../api/reading.ts'
import { Chart, type Series } from '../parts/chart.tsx'
import { type Point, recent, type SeriesByName } from '../shell/figures.ts'
import type { Taste } from '../shell/taste.ts'

const spans = { '5m': 300_000, '1h': 3_600_000, '24h': 86_400_000 }
const tones = ['1', '2', '3', '4'] as const

export function OverviewCharts({ range }: { range: Taste['range'] }) {
  const history = useReading('GET /history', { query: { range }, everyMs: 10_000, when: range !== '5m' })
  const live = recent.value
  const series = useMemo(
    () =>
      range === '5m'
        ? live
        : new Map(history.data?.series.map(({ name, points }) => [name, points as unknown as Point[]])),
    [range, live, history.data],
  )
  return (
    <section class="panel charts" aria-label="Charts">
      <Lines title="Events per second" span={spans[range]} of={series} names={[['eventsPerSecond', 'events']]} />
      <Lines
        title="Executions per second"
        of={series}
        span={spans[range]}
        names={[
          ['executionsPerSecond', 'done'],
          ['failuresPerSecond', 'failed for good'],
        ]}
      />
      <Lines title="Lag, seconds" span={spans[range]} of={series} names={lagNames(series)} />
      {series.has('ranP95Ms') ? (
        <Lines
          title="Handler time, ms"
          of={series}
          span={spans[range]}
          names={[
            ['queuedP95Ms', 'queued p95'],
            ['ranP95Ms', 'ran p95'],
            ['ranP50Ms', 'ran p50'],
          ]}
        />
      ) : (
        <Lines
          title="Open work"
          of={series}
          span={spans[range]}
          names={[
            ['executionsOpen', 'executions'],
            ['workflowsActive', 'workflows'],
          ]}
        />
      )}
    </section>
  )
}

type Names = readonly (readonly [name: string, label: string])[]

function Lines({ title, of, names, span }: { title: string; of: SeriesByName; names: Names; span: number }) {
  const wanted = JSON.stringify(names)
  const { times, series } = useMemo(() => align(of, JSON.parse(wanted) as Names), [of, wanted])
  return <Chart title={title} times={times} series={series} spanMs={span} />
}

/** One list of times for all lines; a line has no value where it was not measured. */
function align(of: SeriesByName, names: Names): { times: number[]; series: Series[] } {
  const times = [...new Set(names.flatMap(([name]) => (of.get(name) ?? []).map(([at]) => at)))].sort((a, b) => a - b)
  const series = names.map(([name, label], index) => {
    const values = new Map(of.get(name) ?? [])
    const tone = name === 'failuresPerSecond' ? 'bad' : (tones[index] ?? '4')
    return { name: label, tone, values: times.map(at => values.get(at) ?? null) } as const
  })
  return { times, series }
}

/** The four consumers with the largest lag. */
function lagNames(of: SeriesByName): [string, string][] {
  const peaks = [...of]
    .filter(([name]) => name.startsWith('lagSeconds:'))
    .map(([name, points]) => [name, Math.max(0, ...points.map(([, value]) => value))] as const)
  return peaks
    .sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]))
    .slice(0, 4)
    .map(([name]) => [name, name.slice('lagSeconds:'.length)])
}
