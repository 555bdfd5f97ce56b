/** Workflows, the newest first, by state. */
import { useMemo } from 'preact/hooks'
import type { WorkflowState } from '../../src/workflows/status.ts'
import { useFeed } from '../api/live.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Cost } from '../parts/cost.tsx'
import { FilterLine, timeOf } from '../parts/filter.tsx'
import { duration, quantity } from '../parts/format.ts'
import { Icon } from '../parts/icon.tsx'
import { At, Head, LinkChoice, State } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { useThrottled } from '../parts/throttle.ts'
import { figures } from '../shell/figures.ts'
import { useAddress, useWhere } from '../shell/where.ts'
import { CancelAll } from './cancel-all.tsx'
import { RunningOperations } from './operation-lines.tsx'
import { workflowLook } from './workflow-look.tsx'

type Workflow = AnswerOf<'GET /workflows'>['items'][number]

const views = ['all', 'running', 'waiting', 'parked', 'failed', 'compensating', 'cancelled', 'settled'] as const
const labels: Record<(typeof views)[number], string> = {
  ...{
    all: 'All',
    running: 'Running',
    waiting: 'Waiting',
    parked: 'Parked',
    failed: 'Failed',
    compensating: 'Compensating',
  },
  ...{ cancelled: 'Cancelled', settled: 'Settled' },
}

export function WorkflowsPage() {
  useWhere({ label: 'Workflows' })
  const address = useAddress()
  const { state = 'all', after, parent, since, until } = address.query
  const query = {
    state:
      state === 'all' ? undefined : state === 'compensating' ? 'compensating,compensated,compensationFailed' : state,
    ...{ after, parent, since: timeOf(since), until: timeOf(until), limit: 50 },
  }
  const workflows = useReading('GET /workflows', { query })
  const stats = useReading('GET /workflows/stats', { everyMs: 10_000 })
  const refresh = useThrottled(workflows.reload, 2000)
  useFeed(['activity'], () => {
    if (after === undefined) refresh()
  })
  const columns = useMemo(workflowColumns, [])
  const all = stats.data?.workflows
  return (
    <div class="page">
      <Head
        title="Workflows"
        sub={
          all === undefined
            ? undefined
            : `${quantity(figures.value?.workflowsActive ?? all.active)} active, ${quantity(all.settled)} settled`
        }
      >
        <CancelAll state={state} since={since} until={until} parent={parent} onBegun={workflows.reload} />
        <a class="btn" href={pageUrl('/events', { do: 'publish' })}>
          <Icon name="plus" />
          Publish…
        </a>
      </Head>
      <RunningOperations />
      <FilterLine
        keys={['since', 'until', 'parent']}
        values={address.query}
        placeholder="since: 2h   until:   parent:   or the id of a workflow"
        onChange={change => address.push({ ...change, after: undefined })}
        onText={text => address.go(workflowUrl(text))}
      />
      <LinkChoice
        label="State"
        value={state as (typeof views)[number]}
        choices={views.map(value => ({ value, label: labels[value] }))}
        href={value => address.with({ state: value === 'all' ? undefined : value, after: undefined })}
      />
      <section class="panel">
        <Show of={workflows} rows={12}>
          {({ items, next }) =>
            items.length === 0 ? (
              <Empty
                title={
                  state === 'all'
                    ? 'There is no workflow yet'
                    : `No workflow is ${labels[state as (typeof views)[number]]?.toLowerCase()}`
                }
              >
                <p>
                  {state === 'all' ? (
                    <>
                      A workflow is all events with one correlation id. Define a handler, start a runner, then:{' '}
                      <span class="mono">rillflow workflows publish OrderPlaced '{'{…}'}'</span>
                    </>
                  ) : (
                    <a
                      class="link"
                      href={address.with({ state: undefined, since: undefined, until: undefined, parent: undefined })}
                    >
                      Show all workflows
                    </a>
                  )}
                </p>
              </Empty>
            ) : (
              <>
                <Table
                  label="Workflows"
                  class="stackable"
                  rows={items}
                  keyOf={each => each.correlationId}
                  columns={columns}
                  onOpen={each => address.go(workflowUrl(each.correlationId))}
                />
                {(next !== null || after !== undefined) && (
                  <footer>
                    {after !== undefined && (
                      <a class="link" href={address.with({ after: undefined })}>
                        Newest
                      </a>
                    )}
                    {next !== null && (
                      <a class="link push" href={address.with({ after: next })}>
                        Older
                      </a>
                    )}
                  </footer>
                )}
              </>
            )
          }
        </Show>
      </section>
      <Cost of={[workflows, stats]} />
    </div>
  )
}

export function workflowUrl(id: string): string {
  return pageUrl(`/workflows/${encodeURIComponent(id)}`)
}

function workflowColumns(): Column<Workflow>[] {
  return [
    { head: 'Started', class: 'w-112', cellClass: 'mono dim', cell: each => <At at={each.startedAt} /> },
    {
      head: 'Workflow',
      class: 'w-300',
      cellClass: 'mono c-name',
      cell: each => <a href={workflowUrl(each.correlationId)}>{each.correlationId}</a>,
      title: each => each.correlationId,
    },
    {
      head: 'State',
      class: 'w-148',
      cellClass: 'c-now',
      cell: each => <State {...workflowLook(each.state as WorkflowState)} />,
    },
    {
      head: 'Last event',
      cellClass: 'c-msg',
      cell: each => <LastOf workflow={each} />,
      title: each => each.lastFailure?.error.message ?? each.lastType,
    },
    {
      head: 'Took',
      class: 'w-96 num',
      cellClass: 'dim',
      cell: each =>
        each.startedAt === undefined || each.updatedAt === undefined
          ? ''
          : duration(Date.parse(each.updatedAt) - Date.parse(each.startedAt)),
    },
    {
      head: 'Open',
      class: 'w-60 num',
      cell: each => (each.pending === 0 ? <span class="faint">0</span> : quantity(each.pending)),
    },
    {
      head: 'Dead letters',
      class: 'w-96 num',
      cell: each =>
        each.deadLetters === 0 ? <span class="faint">0</span> : <span class="tone-bad strong">{each.deadLetters}</span>,
    },
  ]
}

function LastOf({ workflow }: { workflow: Workflow }) {
  const { lastFailure, lastType } = workflow
  if (lastFailure === undefined) return <span class="medium">{lastType}</span>
  return (
    <>
      <span class="medium">{lastFailure.handler}</span> <span class="dim">{lastFailure.error.message}</span>
    </>
  )
}
