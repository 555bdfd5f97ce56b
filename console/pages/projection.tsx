/** One consumer: its lag, its last error with the event, a rebuild with progress, and what can be done. */

import { useMemo } from 'preact/hooks'
import { useRoute } from 'preact-iso'
import { pageUrl } from '../api/place.ts'
import { type Reading, useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Chart } from '../parts/chart.tsx'
import { Command } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { duration, quantity, relative, shortId, time } from '../parts/format.ts'
import { Facts, Head, Panel, Tag } from '../parts/parts.tsx'
import { Empty, Failed, Show } from '../parts/reading.tsx'
import { recent } from '../shell/figures.ts'
import { forecast, useSamples } from '../shell/forecast.ts'
import { useWhere } from '../shell/where.ts'
import { DefinitionPanel } from './consumer-definition.tsx'
import { type Consumer, consumerLook, lagText } from './consumer-look.tsx'
import { ErrorView } from './error-view.tsx'
import { RunningOperations } from './operation-lines.tsx'
import { ProjectionActions } from './projection-actions.tsx'
import { RehearsalPanel, RowsPanel } from './projection-rows.tsx'
import { WaitPanel } from './wait-panel.tsx'

export function ProjectionPage() {
  const name = useRoute().params.name ?? ''
  useWhere({ label: 'Projections', path: '/projections' }, { label: name })
  const consumer = useReading('GET /consumers/:name', { parameters: { name }, everyMs: 2000 })
  const found = consumer.data
  const samples = useSamples(found?.lag, consumer.at)
  if (consumer.error?.status === 404)
    return (
      <div class="page">
        <Head title="No consumer has this name" />
        <Empty title={name}>
          <p>
            It may have another name now, or it has never run.{' '}
            <a class="link" href={pageUrl('/projections')}>
              All readers
            </a>
          </p>
        </Empty>
      </div>
    )
  return (
    <div class="page">
      <Head
        title={name}
        badge={found === undefined ? undefined : consumerLook(found)}
        sub={found === undefined ? undefined : <Tag>{found.kind}</Tag>}
      >
        {found !== undefined && <ProjectionActions consumer={found} onChange={consumer.reload} />}
      </Head>
      {consumer.error !== undefined && <Failed reading={consumer} />}
      <RunningOperations about={name} />
      <div class="side">
        <div class="stack">
          <Lag name={name} />
          {found?.kind === 'projection' && <RehearsalPanel name={name} />}
          {found?.lastError !== undefined && <LastError consumer={found} />}
          {found?.kind === 'projection' && found.isRegistered && found.tables.length > 0 && <RowsPanel name={name} />}
          {found !== undefined && found.lastError === undefined && <LastError consumer={found} />}
        </div>
        <div class="stack">
          <StatePanel of={consumer} outlook={forecast(samples)} />
          {found !== undefined && <DefinitionPanel consumer={found} />}
          <Panel title="In the terminal">
            <div class="pad stack-2">
              <Command line={`rillflow consumers status ${name}`} />
              {found?.kind === 'projection' && <Command line={`rillflow projections rebuild ${name}`} />}
              {found?.kind === 'projection' && <Command line={`rillflow projections rehearse ${name}`} />}
            </div>
          </Panel>
          {found !== undefined && <WaitPanel name={name} head={found.head} />}
        </div>
      </div>
      <Cost of={[consumer]} />
    </div>
  )
}

function Lag({ name }: { name: string }) {
  const points = recent.value.get(`lagSeconds:${name}`) ?? []
  const times = useMemo(() => points.map(([at]) => at), [points])
  const series = useMemo(
    () => [{ name: 'seconds', tone: '1' as const, values: points.map(([, value]) => value) }],
    [points],
  )
  return (
    <section class="panel">
      <Chart title="Lag, seconds" times={times} series={series} height={200} spanMs={300_000} />
    </section>
  )
}

function LastError({ consumer: { lastError, name } }: { consumer: Consumer }) {
  if (lastError === undefined)
    return (
      <Panel title="Last error">
        <Empty title="It has not failed">
          <p>The latest failure of {name} is kept here, with its event.</p>
        </Empty>
      </Panel>
    )
  return (
    <Panel
      title="Last error"
      end={
        lastError.at === undefined ? undefined : (
          <span class="faint">
            {time(lastError.at)}, {relative(lastError.at)}
          </span>
        )
      }
    >
      <div class="pad stack-2">
        <ErrorView error={lastError} />
        {lastError.eventId !== undefined && (
          <p class="dim">
            For the event{' '}
            <a class="link mono" href={pageUrl('/events', { open: lastError.eventId })}>
              #{lastError.position}
            </a>
            , attempt {lastError.attempt ?? 1}.
          </p>
        )}
      </div>
    </Panel>
  )
}

type Described = AnswerOf<'GET /consumers/:name'>

function StatePanel({ of, outlook }: { of: Reading<Described>; outlook: string | undefined }) {
  return (
    <Panel title="State">
      <Show of={of}>
        {each => (
          <div class="pad">
            <Facts
              facts={[
                ['Checkpoint', `#${each.checkpoint}`, 'mono'],
                ['Head', `#${each.head}`, 'mono'],
                ['Lag', lagText(each)],
                each.lag === 0 || outlook === undefined ? undefined : ['Empty', outlook, 'wrap'],
                [
                  'Run by',
                  each.lease === undefined ? undefined : (
                    <a class="link" href={pageUrl('/runners')}>
                      {shortId(each.lease.owner)}
                    </a>
                  ),
                  'mono',
                ],
                ['Lease', each.lease === undefined ? undefined : `${duration(each.lease.expiresInMs)} left`],
                ['Code', each.isRegistered ? 'in this process' : 'not in this process'],
                ['Failures', each.attempts === 0 ? 'none in a row' : `${each.attempts} in a row`],
                each.retryInMs === undefined ? undefined : ['Next try', `in ${duration(each.retryInMs)}`],
                [
                  'Dead letters',
                  each.deadLetters === 0 ? (
                    '0'
                  ) : (
                    <a class="tone-bad strong" href={pageUrl('/dead-letters', { of: each.name })}>
                      {quantity(each.deadLetters)}
                    </a>
                  ),
                ],
              ]}
            />
          </div>
        )}
      </Show>
    </Panel>
  )
}
