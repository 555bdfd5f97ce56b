/** One schedule: its next times, its runs, and running it now. */
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { ask } from '../parts/dialog.tsx'
import { duration, relative, time } from '../parts/format.ts'
import { Button, Panel, State } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { act } from '../shell/act.ts'
import { say } from '../shell/said.tsx'
import type { Address } from '../shell/where.ts'

export type Schedule = AnswerOf<'GET /schedules'>['items'][number]

/** `every 1 s`, `0 3 * * * in Europe/Berlin`, `once at …`. */
export function timesText(definition: object): string {
  const times = definition as { everyMs?: number; cron?: string; timeZone?: string; at?: string }
  if (times.everyMs !== undefined) return `every ${duration(times.everyMs)}`
  if (times.cron !== undefined) return `${times.cron}${times.timeZone === undefined ? '' : ` in ${times.timeZone}`}`
  return times.at === undefined ? '' : `once, at ${time(times.at)}`
}

export function OutcomeState({ outcome }: { outcome: string | undefined }) {
  if (outcome === undefined) return <span class="faint">none</span>
  if (outcome === 'completed') return <State shape="done" tone="good" word="Done" />
  if (outcome === 'failed') return <State shape="failed" tone="bad" word="Failed" />
  return <State shape="none" tone="rest" word={`${outcome[0]?.toUpperCase()}${outcome.slice(1)}`} />
}

export function PauseSchedule({ schedule, onChange }: { schedule: Schedule; onChange: () => void }) {
  const { name } = schedule
  const run = (toPause: boolean): void => {
    void act(toPause ? 'POST /schedules/:name/pause' : 'POST /schedules/:name/resume', {
      parameters: { name },
      done: toPause ? `${name} is paused.` : `${name} is active again.`,
      undo: { label: toPause ? 'Resume' : 'Pause', run: () => run(!toPause) },
      after: onChange,
    })
  }
  const isPaused = schedule.state === 'paused'
  return (
    <Button
      small
      icon={isPaused ? 'play' : 'pause'}
      refused={schedule.state === 'done' ? 'it is done' : refusedFor('operate')}
      onClick={() => run(!isPaused)}
    >
      {isPaused ? 'Resume' : 'Pause'}
    </Button>
  )
}

export function ScheduleInspector({
  schedule,
  address,
  onChange,
}: {
  schedule: Schedule
  address: Address
  onChange: () => void
}) {
  const { name } = schedule
  const history = useReading('GET /schedules/:name/history', {
    parameters: { name },
    query: { limit: 30 },
    everyMs: 4000,
  })
  const next = useReading('GET /schedules/:name/next', { parameters: { name }, query: { count: 5 }, everyMs: 10_000 })
  const trigger = async (): Promise<void> => {
    const run = await act('POST /schedules/:name/trigger', {
      parameters: { name },
      done: `${name} is asked for one more run.`,
      after: onChange,
    })
    if (run !== undefined)
      say(`${name} is asked for one more run.`, {
        undo: {
          label: 'Open its workflow',
          run: () => address.go(pageUrl(`/workflows/${encodeURIComponent(run.correlationId)}`)),
        },
      })
  }
  const remove = async (): Promise<void> => {
    const answer = await ask({
      title: `Delete ${name} and its history?`,
      body: 'Where its code still is, it begins anew with the next start. Pausing keeps its history.',
      verb: `Delete ${name}`,
      isDanger: true,
      name,
    })
    if (answer !== undefined)
      await act('DELETE /schedules/:name', {
        parameters: { name },
        body: { confirm: name },
        done: `${name} is deleted.`,
        after: onChange,
      })
  }
  return (
    <aside class="inspector" aria-label={`Schedule ${name}`}>
      <header>
        <div class="line">
          <span class="title cut">{name}</span>
          <span class="push actions">
            <Button kind="bare" small icon="close" label="Close" onClick={() => address.replace({ open: undefined })} />
          </span>
        </div>
        <div class="line dim">
          {timesText(schedule.definition)} ·{' '}
          {schedule.isHere ? 'its code is in this process' : 'its code is not in this process'}
        </div>
      </header>
      <section>
        <h2>Next times</h2>
        <Show of={next} rows={3}>
          {({ items }) =>
            items.length === 0 ? (
              <p class="dim">It has no time left.</p>
            ) : (
              <ul class="effects">
                {items.map(at => (
                  <li key={at}>
                    <i class="dotmark" />
                    <span>{relative(at)}</span>
                    <span class="mono faint">{time(at)}</span>
                  </li>
                ))}
              </ul>
            )
          }
        </Show>
      </section>
      <Panel title="Runs" class="flat-panel">
        <Show of={history} rows={5}>
          {({ items }) => (
            <Table
              label="Runs"
              rows={items}
              keyOf={each => each.dueAt + each.startedAt}
              columns={[
                {
                  head: 'Due',
                  class: 'w-96',
                  cellClass: 'mono dim',
                  cell: each => (
                    <a href={pageUrl(`/workflows/${encodeURIComponent(each.correlationId)}`)}>{time(each.dueAt)}</a>
                  ),
                },
                {
                  head: 'Ended as',
                  cell: each => <OutcomeState outcome={each.outcome} />,
                  title: each => each.error?.message,
                },
                {
                  head: 'Took',
                  class: 'w-80 num',
                  cellClass: 'dim',
                  cell: each => duration(Date.parse(each.endedAt) - Date.parse(each.startedAt)),
                },
              ]}
            />
          )}
        </Show>
      </Panel>
      <footer>
        <Button icon="play" refused={refusedFor('operate')} onClick={() => void trigger()}>
          Run now
        </Button>
        <PauseSchedule schedule={schedule} onChange={onChange} />
        <span class="push">
          <Button kind="danger" refused={refusedFor('admin')} onClick={() => void remove()}>
            Delete…
          </Button>
        </span>
      </footer>
    </aside>
  )
}
