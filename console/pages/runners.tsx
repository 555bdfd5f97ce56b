/** The runners of all processes: what each holds, and the workers that run handlers. */
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Cost } from '../parts/cost.tsx'
import { duration, plural, quantity, shortId } from '../parts/format.ts'
import { Ago, Button, Head, Panel, State, type StateLook } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { act } from '../shell/act.ts'
import { useWhere } from '../shell/where.ts'
import { Holders } from './holders.tsx'
import { ProcessPanel } from './process-panel.tsx'

type Runner = AnswerOf<'GET /runners'>['items'][number]

export function RunnersPage() {
  useWhere({ label: 'Runners' })
  const runners = useReading('GET /runners', { query: { limit: 500 }, everyMs: 3000 })
  const workers = useReading('GET /workers', { query: { limit: 500 }, everyMs: 3000 })
  const alive = runners.data?.items.filter(each => each.isAlive) ?? []
  return (
    <div class="page">
      <Head
        title={
          runners.data === undefined
            ? 'Runners'
            : alive.length === 0
              ? 'No runner runs'
              : `${plural(alive.length, 'runner')} ${alive.length === 1 ? 'does' : 'do'} the work`
        }
        sub="processes that run projections, subscriptions, handlers and schedules"
      />
      <Panel title="Runners">
        <Show of={runners} rows={4}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="Nothing runs the definitions of this store">
                <p>
                  Call <span class="mono">store.start()</span> in your program, or:{' '}
                  <span class="mono">rillflow run</span>
                </p>
              </Empty>
            ) : (
              <Table
                label="Runners"
                class="stackable"
                rows={items}
                keyOf={each => each.id}
                columns={runnerColumns(runners.reload)}
              />
            )
          }
        </Show>
      </Panel>
      <Panel title="Workers" sub="of the runners that run handlers">
        <Show of={workers} rows={4}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="No worker runs handlers">
                <p>Executions queue until a runner with the code of their handler starts.</p>
              </Empty>
            ) : (
              <Table
                label="Workers"
                class="stackable"
                rows={items}
                keyOf={each => each.id}
                columns={[
                  {
                    head: 'Worker',
                    class: 'w-180',
                    cellClass: 'medium c-name',
                    cell: each => each.name ?? <span class="mono">{shortId(each.id)}</span>,
                  },
                  { head: 'Started', class: 'w-112', cellClass: 'dim', cell: each => <Ago at={each.startedAt} /> },
                  {
                    head: 'Heartbeat',
                    class: 'w-112',
                    cellClass: 'dim c-now',
                    cell: each => `${duration(each.heartbeatAgeMs)} ago`,
                  },
                  {
                    head: 'Running',
                    class: 'w-96 num',
                    cell: each => `${quantity(each.running)} of ${quantity(each.concurrency)}`,
                  },
                  { head: 'Held', class: 'w-72 num', cellClass: 'dim', cell: each => quantity(each.held) },
                  {
                    head: 'Handlers',
                    cellClass: 'dim c-msg',
                    cell: each => each.handlers.map(({ handler }) => handler).join(', '),
                  },
                ]}
              />
            )
          }
        </Show>
      </Panel>
      <Holders runners={runners.data?.items ?? []} />
      <ProcessPanel />
      <Cost of={[runners, workers]} />
    </div>
  )
}

function runnerLook({ isAlive, role }: Runner): StateLook {
  if (!isAlive) return { shape: 'behind', tone: 'bad', word: 'Silent' }
  if (role === 'active') return { shape: 'running', tone: 'good', word: 'Active' }
  return { shape: 'paused', tone: 'rest', word: role === 'standby' ? 'Standby' : 'Paused' }
}

function runnerColumns(reload: () => void) {
  const change = (runner: Runner): void => {
    const { name = '', role } = runner
    const toStandby = role === 'active'
    void act(toStandby ? 'POST /runners/:name/demote' : 'POST /runners/:name/promote', {
      parameters: { name },
      done: toStandby ? `${name} is a standby now.` : `${name} is active now.`,
      after: reload,
    })
  }
  const drain = (runner: Runner): void => {
    const isPaused = runner.role === 'paused'
    const name = runner.name ?? shortId(runner.id)
    void act(isPaused ? 'POST /runners/:name/resume' : 'POST /runners/:name/pause', {
      parameters: { name: runner.name ?? runner.id },
      done: isPaused ? `${name} runs again.` : `${name} completes what runs, and begins nothing.`,
      undo: {
        label: isPaused ? 'Drain' : 'Resume',
        run: () => drain({ ...runner, role: isPaused ? 'active' : 'paused' }),
      },
      after: reload,
    })
  }
  return [
    {
      head: 'Runner',
      class: 'w-180',
      cellClass: 'medium c-name',
      cell: (each: Runner) => each.name ?? <span class="mono">{shortId(each.id)}</span>,
      title: (each: Runner) => each.id,
    },
    { head: 'Role', class: 'w-120', cellClass: 'c-now', cell: (each: Runner) => <State {...runnerLook(each)} /> },
    { head: 'Started', class: 'w-112', cellClass: 'dim', cell: (each: Runner) => <Ago at={each.startedAt} /> },
    {
      head: 'Heartbeat',
      class: 'w-112',
      cellClass: 'dim',
      cell: (each: Runner) => `${duration(each.heartbeatAgeMs)} ago`,
    },
    {
      head: 'Process',
      class: 'w-180',
      cellClass: 'mono dim',
      cell: ({ process }: Runner) => (process === undefined ? '' : `${process.pid} on ${process.host}`),
      title: ({ process }: Runner) =>
        process === undefined ? '' : `rillflow ${process.version} on Node ${process.node}`,
    },
    {
      head: 'Busy',
      class: 'w-72 num',
      cell: ({ process }: Runner) => process !== undefined && <Busy share={process.busy} />,
    },
    {
      head: 'Holds',
      cellClass: 'c-msg',
      cell: (each: Runner) => <Holds names={each.holds} />,
      title: (each: Runner) => each.holds.join(', '),
    },
    {
      head: '',
      class: 'w-180 num',
      cell: (each: Runner) => (
        <span class="actions row-actions">
          <Button small refused={each.isAlive ? refusedFor('admin') : 'it is silent'} onClick={() => drain(each)}>
            {each.role === 'paused' ? 'Resume' : 'Drain'}
          </Button>
          <Button
            small
            refused={each.name === undefined ? 'only a runner with a name changes its role' : refusedFor('admin')}
            onClick={() => change(each)}
          >
            {each.role === 'active' ? 'Demote' : 'Promote'}
          </Button>
        </span>
      ),
    },
  ]
}

/** Above nine tenths the timers of its thread are late. */
function Busy({ share }: { share: number }) {
  return <span class={share > 0.9 ? 'tone-warn strong' : 'dim'}>{Math.round(share * 100)} %</span>
}

function Holds({ names }: { names: readonly string[] }) {
  if (names.length === 0) return <span class="faint">nothing</span>
  return (
    <>
      {names.map((name, index) => (
        <span key={name}>
          {index > 0 && ', '}
          <a href={pageUrl(`/projections/${encodeURIComponent(name)}`)}>{name}</a>
        </span>
      ))}
    </>
  )
}
