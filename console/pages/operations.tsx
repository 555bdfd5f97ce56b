/** The operations that run now, and the audit: actor, action, outcome. */
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { OneLine } from '../json/view.tsx'
import { Cost } from '../parts/cost.tsx'
import { duration } from '../parts/format.ts'
import { At, Head, Panel, State, type StateLook } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { useAddress, useWhere } from '../shell/where.ts'
import { OperationLine, titleOf } from './operation-lines.tsx'

type Entry = AnswerOf<'GET /audit'>['items'][number]

const looks: Record<string, StateLook> = {
  running: { shape: 'running', tone: 'run', word: 'Running' },
  done: { shape: 'done', tone: 'good', word: 'Done' },
  failed: { shape: 'failed', tone: 'bad', word: 'Failed' },
  refused: { shape: 'none', tone: 'warn', word: 'Refused' },
  cancelled: { shape: 'none', tone: 'rest', word: 'Cancelled' },
}

function lookOf(outcome: string): StateLook {
  return looks[outcome] ?? { shape: 'none', tone: 'rest', word: outcome }
}

export function OperationsPage() {
  useWhere({ label: 'Operations' })
  const address = useAddress()
  const { after } = address.query
  const operations = useReading('GET /operations', { everyMs: 2000 })
  const audit = useReading('GET /audit', {
    query: { after, limit: 100 },
    everyMs: after === undefined ? 5000 : undefined,
  })
  const running = operations.data?.items.filter(each => each.state === 'running') ?? []
  const ended = operations.data?.items.filter(each => each.state !== 'running') ?? []
  return (
    <div class="page">
      <Head
        title={
          running.length === 0
            ? 'No operation runs'
            : running.length === 1
              ? '1 operation runs'
              : `${running.length} operations run`
        }
        sub="rebuilds, syncs and other long work of this process"
      />
      {running.map(each => (
        <OperationLine key={each.id} operation={each} onChange={operations.reload} />
      ))}
      {ended.length > 0 && (
        <Panel title="Ended" sub="since this process began">
          <Table
            label="Ended operations"
            class="stackable"
            rows={ended.slice(0, 20)}
            keyOf={each => each.id}
            columns={[
              { head: 'Began', class: 'w-148', cellClass: 'mono dim', cell: each => <At at={each.startedAt} /> },
              { head: 'Operation', cellClass: 'medium c-name', cell: each => titleOf(each) },
              { head: 'By', class: 'w-148', cellClass: 'dim', cell: each => each.startedBy },
              {
                head: 'Took',
                class: 'w-96 num',
                cellClass: 'dim',
                cell: each =>
                  each.endedAt === undefined ? '' : duration(Date.parse(each.endedAt) - Date.parse(each.startedAt)),
              },
              { head: 'Outcome', class: 'w-148', cellClass: 'c-now', cell: each => <State {...lookOf(each.state)} /> },
              {
                head: 'Error',
                cellClass: 'c-msg',
                cell: each => each.error?.message ?? '',
                title: each => each.error?.message,
              },
            ]}
          />
        </Panel>
      )}
      <Panel title="Audit" sub="every action of an operator, also those that were refused">
        <Show of={audit} rows={8}>
          {({ items, next }) =>
            items.length === 0 ? (
              <Empty title="No operator has done anything yet">
                <p>
                  A pause, a retry or a rebuild, from here or from the command line, is written down with its actor and
                  its outcome.
                </p>
              </Empty>
            ) : (
              <>
                <Table label="Audit" class="stackable" rows={items} keyOf={each => each.id} columns={auditColumns} />
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
      </Panel>
      <Cost of={[operations, audit]} />
    </div>
  )
}

const auditColumns = [
  { head: 'Time', class: 'w-148', cellClass: 'mono dim', cell: (each: Entry) => <At at={each.startedAt} /> },
  {
    head: 'Actor',
    class: 'w-148',
    cellClass: 'dim',
    cell: (each: Entry) => each.actor,
    title: (each: Entry) => each.actor,
  },
  { head: 'Action', class: 'w-180', cellClass: 'medium c-name', cell: (each: Entry) => each.action },
  {
    head: 'Of',
    class: 'w-180',
    cellClass: 'mono',
    cell: (each: Entry) => <TargetOf entry={each} />,
    title: (each: Entry) => each.target,
  },
  { head: 'With', cellClass: 'oneline', cell: (each: Entry) => <OneLine value={each.parameters} /> },
  {
    head: 'Outcome',
    class: 'w-148',
    cellClass: 'c-now',
    cell: (each: Entry) => <State {...lookOf(each.outcome)} />,
    title: (each: Entry) => each.error?.message,
  },
]

function TargetOf({ entry: { action, target } }: { entry: Entry }) {
  if (target === undefined) return <span class="faint">–</span>
  if (/^(consumers|projections)\./.test(action))
    return <a href={pageUrl(`/projections/${encodeURIComponent(target)}`)}>{target}</a>
  if (/^streams\./.test(action)) return <a href={pageUrl(`/streams/${encodeURIComponent(target)}`)}>{target}</a>
  if (/^workflows\./.test(action)) return <a href={pageUrl(`/workflows/${encodeURIComponent(target)}`)}>{target}</a>
  return <>{target}</>
}
