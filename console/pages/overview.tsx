/** The first page: what needs a person, the figures of five minutes, what failed last. */
import type { Json } from '../../src/server/api/contract.ts'
import type { Attempt } from '../../src/workflows/insight/activity.ts'
import { pageUrl } from '../api/place.ts'
import { type Reading, useReading } from '../api/reading.ts'
import { Cost } from '../parts/cost.tsx'
import { quantity, rate, relative } from '../parts/format.ts'
import { Icon, Shape } from '../parts/icon.tsx'
import { At, Choose, Head, Panel } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Spark } from '../parts/spark.tsx'
import { Table } from '../parts/table.tsx'
import { type FiguresNow, figures, openExecutions, recent } from '../shell/figures.ts'
import { prefer, taste } from '../shell/taste.ts'
import { useAddress, useWhere } from '../shell/where.ts'
import { FirstSteps } from './first-steps.tsx'
import { type NeedNow, needLook } from './need.ts'
import { OverviewCharts } from './overview-charts.tsx'
import { outcomeLook } from './workflow-look.tsx'

const ranges = [
  { value: '5m', label: '5 min' },
  { value: '1h', label: '1 h' },
  { value: '24h', label: '24 h' },
] as const

export function OverviewPage() {
  useWhere({ label: 'Overview' })
  const overview = useReading('GET /overview', { everyMs: 4000 })
  const now = figures.value ?? overview.data
  if (now !== undefined && now.position === 0) return <FirstSteps />
  const needs = overview.data?.needs ?? []
  return (
    <div class="page">
      <Head
        title={overview.data === undefined ? 'Overview' : verdict(needs.length)}
        sub={
          now === undefined ? undefined : (
            <span class="hide-phone">
              Settled at <span class="mono">#{now.position}</span>, {relative(now.at)}.
            </span>
          )
        }
      >
        <Choose label="Range" value={taste.value.range} choices={ranges} onChoose={range => prefer({ range })} />
      </Head>
      <Tiles now={now} />
      <div class="side even">
        <OverviewCharts range={taste.value.range} />
        <Needs of={overview} />
      </div>
      <Failures of={overview} />
      <Cost of={[overview]} />
    </div>
  )
}

function verdict(needs: number): string {
  if (needs === 0) return 'Everything runs by itself'
  return needs === 1 ? '1 thing needs a person' : `${needs} things need a person`
}

interface TileProps {
  label: string
  value: string | undefined
  unit?: string | undefined
  href: string
  values: readonly number[]
  tone?: '1' | '4' | 'bad'
}

function Tile({ label, value, unit, href, values, tone = '1' }: TileProps) {
  return (
    <a class="tile" href={pageUrl(href)}>
      <span class="label">
        {tone === 'bad' && <Shape name="failed" tone="tone-bad" />}
        {label}
      </span>
      <span class="value">
        {value ?? <span class="faint">–</span>} {unit !== undefined && <small>{unit}</small>}
      </span>
      <Spark values={values} tone={tone} />
    </a>
  )
}

function Tiles({ now }: { now: FiguresNow | undefined }) {
  const series = recent.value
  const of = (name: string): number[] => (series.get(name) ?? []).map(([, value]) => value)
  const heldBack = now === undefined ? 0 : now.head - now.position
  const dead = now?.deadLetters.count ?? 0
  const runners = now?.runners
  return (
    <section class="panel tiles" aria-label="Figures">
      <Tile label="Position" value={now && `#${now.position}`} unit="settled" href="/events" values={of('position')} />
      <Tile
        label="Events per second"
        value={now?.eventsPerSecond === undefined ? undefined : rate(now.eventsPerSecond)}
        href="/events"
        values={of('eventsPerSecond')}
      />
      <Tile
        label="Held back"
        value={now && quantity(heldBack)}
        unit={heldBack === 1 ? 'position' : 'positions'}
        href="/health"
        values={of('heldBack')}
        tone="4"
      />
      <Tile
        label="Oldest ready"
        value={now && rate(now.oldestReadySeconds)}
        unit="s"
        href="/handlers"
        values={of('oldestReadySeconds')}
      />
      <Tile
        label="Active workflows"
        value={now && quantity(now.workflowsActive)}
        href="/workflows?state=running"
        values={of('workflowsActive')}
      />
      <Tile
        label="Open executions"
        value={now && quantity(openExecutions(now))}
        href="/handlers"
        values={of('executionsOpen')}
      />
      <Tile
        label="Dead letters"
        value={now && `${quantity(dead)}${now.deadLetters.isCapped ? '+' : ''}`}
        unit="open"
        href="/dead-letters"
        values={of('deadLetters')}
        tone={dead > 0 ? 'bad' : '4'}
      />
      <Tile
        label="Runners"
        value={runners && quantity(runners.active)}
        unit={runners && (runners.standby > 0 ? `${runners.standby} on standby` : 'active')}
        href="/runners"
        values={of('runners')}
        tone="4"
      />
    </section>
  )
}

function Needs({ of }: { of: Reading<{ needs: NeedNow[]; failures: Json<Attempt>[] }> }) {
  return (
    <Panel
      class="fill first-phone"
      title="Needs a person"
      end={<span class="faint">{of.data?.needs.length ?? ''}</span>}
    >
      <Show of={of} rows={4}>
        {({ needs }) =>
          needs.length === 0 ? (
            <Empty title="Nothing">
              <p>No dead letter is open, and nothing is paused, parked or far behind.</p>
            </Empty>
          ) : (
            <ul class="rows">
              {needs.map(need => {
                const look = needLook(need, of.data?.failures ?? [])
                return (
                  <li key={need.kind + need.name + need.message}>
                    <a class="row row-need" href={pageUrl(look.href)}>
                      <Shape name={look.shape} tone={`tone-${look.tone}`} />
                      <div>
                        <b>{look.title}</b>
                        <p>{look.detail}</p>
                      </div>
                      <span class="faint">
                        <Icon name="right" />
                      </span>
                    </a>
                  </li>
                )
              })}
            </ul>
          )
        }
      </Show>
    </Panel>
  )
}

function Failures({ of }: { of: Reading<{ failures: Json<Attempt>[] }> }) {
  const address = useAddress()
  return (
    <Panel
      title="Newest failures"
      end={
        <a class="link" href={pageUrl('/handlers')}>
          All handlers
        </a>
      }
    >
      <Show of={of} rows={5}>
        {({ failures }) =>
          failures.length === 0 ? (
            <Empty title="No attempt has failed">
              <p>Attempts of handlers that fail are listed here, also those that a retry has mended.</p>
            </Empty>
          ) : (
            <Table
              label="Newest failures"
              class="stackable"
              rows={failures.slice(0, 8)}
              keyOf={row => String(row.position)}
              onOpen={row => address.go(pageUrl(`/workflows/${encodeURIComponent(row.correlationId)}`))}
              columns={[
                { head: 'Time', class: 'w-112', cellClass: 'mono dim', cell: row => <At at={row.at} /> },
                {
                  head: 'Handler',
                  class: 'w-120',
                  cellClass: 'medium c-name',
                  cell: row => (
                    <a href={pageUrl(`/workflows/${encodeURIComponent(row.correlationId)}`)}>{row.handler}</a>
                  ),
                },
                {
                  head: 'Event',
                  class: 'w-180',
                  cell: row => (
                    <>
                      {row.eventType} <span class="mono faint">#{row.eventPosition}</span>
                    </>
                  ),
                },
                { head: 'Attempt', class: 'w-72 num', cellClass: 'dim', cell: row => row.attempt },
                {
                  head: 'Error',
                  cellClass: 'c-msg',
                  cell: row => row.error?.message ?? '',
                  title: row => row.error?.message,
                },
                { head: 'Ended as', class: 'w-148', cellClass: 'c-now', cell: row => outcomeLook(row) },
              ]}
            />
          )
        }
      </Show>
    </Panel>
  )
}
