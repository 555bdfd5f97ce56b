/** The consumers of the log: projections, processors, snapshotters and the dispatcher of workflows. */
import { useMemo } from 'preact/hooks'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import { Cost } from '../parts/cost.tsx'
import { plural } from '../parts/format.ts'
import { Ago, Head, State } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Spark } from '../parts/spark.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { recent } from '../shell/figures.ts'
import { useAddress, useWhere } from '../shell/where.ts'
import { type Consumer, consumerLook, lagText, PauseButton } from './consumer-look.tsx'

const kinds: Record<string, string> = {
  ...{ projection: 'projection', processor: 'processor', snapshotter: 'snapshots', dispatcher: 'dispatcher' },
  subscription: 'subscription',
}

export function ProjectionsPage() {
  useWhere({ label: 'Projections' })
  const address = useAddress()
  const consumers = useReading('GET /consumers', { query: { limit: 500 }, everyMs: 3000 })
  const all = (consumers.data?.items ?? []).filter(each => each.kind !== 'subscription')
  const late = all.filter(each => consumerLook(each).tone === 'warn' || consumerLook(each).tone === 'bad')
  const columns = useMemo(() => consumerColumns(consumers.reload), [consumers.reload])
  return (
    <div class="page">
      <Head
        title={
          consumers.data === undefined
            ? 'Projections'
            : late.length === 0
              ? 'All readers are up to date'
              : `${plural(late.length, 'reader')} ${late.length === 1 ? 'needs' : 'need'} a look`
        }
        sub="projections, processors, and the dispatcher of workflows"
      />
      <section class="panel">
        <Show of={consumers} rows={6}>
          {() =>
            all.length === 0 ? (
              <Empty title="Nothing follows the log yet">
                <p>
                  A projection keeps a read model from events:{' '}
                  <span class="mono">defineDocumentProjection('orders', {'{ … }'})</span> in your configuration, then{' '}
                  <span class="mono">rillflow run</span>.
                </p>
              </Empty>
            ) : (
              <Table
                label="Consumers"
                class="stackable"
                rows={all}
                keyOf={each => each.name}
                columns={columns}
                onOpen={each => address.go(pageUrl(`/projections/${encodeURIComponent(each.name)}`))}
              />
            )
          }
        </Show>
      </section>
      <Cost of={[consumers]} />
    </div>
  )
}

export function consumerColumns(reload: () => void): Column<Consumer>[] {
  return [
    {
      head: 'Name',
      class: 'w-180',
      cellClass: 'medium c-name',
      cell: each => <a href={pageUrl(`/projections/${encodeURIComponent(each.name)}`)}>{each.name}</a>,
      title: each => each.name,
    },
    { head: 'Kind', class: 'w-120', cellClass: 'dim', cell: each => kinds[each.kind] ?? each.kind },
    { head: 'State', class: 'w-148', cellClass: 'c-now', cell: each => <State {...consumerLook(each)} /> },
    { head: 'Checkpoint', class: 'w-96', cellClass: 'mono dim', cell: each => `#${each.checkpoint}` },
    {
      head: 'Lag',
      class: 'w-148 num',
      cell: each => <span class={each.lagSeconds > 60 ? 'tone-warn' : ''}>{lagText(each)}</span>,
    },
    {
      head: 'Five minutes',
      class: 'w-120 hide-narrow',
      cellClass: 'hide-narrow c-spark',
      cell: each => (
        <Spark values={(recent.value.get(`lagSeconds:${each.name}`) ?? []).map(([, value]) => value)} tone="4" />
      ),
    },
    {
      head: 'Dead letters',
      class: 'w-96 num',
      cell: each =>
        each.deadLetters === 0 ? (
          <span class="faint">0</span>
        ) : (
          <a class="tone-bad strong" href={pageUrl('/dead-letters', { of: each.name })}>
            {each.deadLetters}
          </a>
        ),
    },
    { head: 'Moved', class: 'w-96', cellClass: 'dim', cell: each => <Ago at={each.progressedAt} /> },
    {
      head: 'Last error',
      cellClass: 'c-msg dim',
      cell: each => each.lastError?.message ?? '',
      title: each => each.lastError?.message,
    },
    { head: '', class: 'w-96 num', cell: each => <PauseButton small consumer={each} onChange={reload} /> },
  ]
}
