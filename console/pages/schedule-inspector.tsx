/** One schedule: its next times, its runs, and running it now. */
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { ask } from '../parts/dialog.tsx'
import { duration, relative, time } from '../parts/format.ts'
import { Button, State } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { act } from '../shell/act.ts'
import { say } from '../shell/said.tsx'
import type { Address } from '../shell/where.ts'

export type Schedule = AnswerOf<'GET /schedules'>['items'][number]

const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday']

/** The common patterns in words; others as they are. */
function cronWords(cron: string): string {
  const [minute = '', hour = '', day, month, weekday = ''] = cron.trim().split(/\s+/)
  const at = `${hour.padStart(2, '0')}:${minute.padStart(2, '0')}`
  const isTime = /^\d+$/.test(minute) && /^\d+$/.test(hour)
  if (day !== '*' || month !== '*') return cron
  if (isTime && weekday === '*') return `every day at ${at}`
  if (isTime && weekday === '1-5') return `on weekdays at ${at}`
  if (isTime && /^[0-7]$/.test(weekday)) return `every ${days[Number(weekday) % 7]} at ${at}`
  if (hour !== '*' || weekday !== '*') return cron
  if (minute === '*') return 'every minute'
  const every = /^\*\/(\d+)$/.exec(minute)?.[1]
  if (every !== undefined) return `every ${every} minutes`
  return /^\d+$/.test(minute) ? `every hour at :${minute.padStart(2, '0')}` : cron
}

/** `every 1 s`, `every day at 03:00 in Europe/Berlin`, `once at …`. */
export function timesText(definition: object): string {
  const times = definition as { everyMs?: number; cron?: string; timeZone?: string; at?: string }
  if (times.everyMs !== undefined) return `every ${duration(times.everyMs)}`
  if (times.cron !== undefined)
    return `${cronWords(times.cron)}${times.timeZone === undefined ? '' : ` in ${times.timeZone}`}`
  return times.at === undefined ? '' : `once, at ${time(times.at)}`
}

export function OutcomeState({ outcome }: { outcome: string | undefined }) {
  if (outcome === undefined) return <span class="faint">none</span>
  if (outcome === 'completed') return <State shape="done" tone="good" word="Done" />
  if (outcome === 'failed') return <State shape="failed" tone="bad" word="Failed" />
  return <State shape="none" tone="rest" word={`${outcome[0]?.toUpperCase()}${outcome.slice(1)}`} />
}

/** Its latest runs, the newest at the right. */
function HistoryStrip({ outcomes }: { outcomes: readonly string[] }) {
  const failed = outcomes.filter(outcome => outcome === 'failed').length
  return (
    <svg
      class="slots"
      viewBox={`0 0 ${Math.max(1, outcomes.length) * 9} 10`}
      width={outcomes.length * 9}
      height="10"
      role="img"
      aria-label={`${failed} of the latest ${outcomes.length} runs failed`}
    >
      {outcomes.map((outcome, index) => {
        const look = outcome === 'completed' ? 'done' : outcome === 'failed' ? 'fail' : 'miss'
        return <rect key={index} class={`slot ${look}`} x={index * 9 + 0.5} y="0.5" width="7" height="9" rx="1.5" />
      })}
    </svg>
  )
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
      <section class="flush">
        <h2>Runs</h2>
        <Show of={history} rows={5}>
          {({ items }) => (
            <>
              <HistoryStrip outcomes={items.map(each => each.outcome).reverse()} />
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
            </>
          )}
        </Show>
      </section>
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
