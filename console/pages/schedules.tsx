/** Schedules: when each is due, how its last run ended, and running one now. */
import { useMemo } from 'preact/hooks'
import { useReading } from '../api/reading.ts'
import { Cost } from '../parts/cost.tsx'
import { relative, time } from '../parts/format.ts'
import { At, Head, State, type StateLook } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { type Address, useAddress, useWhere } from '../shell/where.ts'
import { OutcomeState, PauseSchedule, type Schedule, ScheduleInspector, timesText } from './schedule-inspector.tsx'

export function SchedulesPage() {
  useWhere({ label: 'Schedules' })
  const address = useAddress()
  const schedules = useReading('GET /schedules', { query: { limit: 500 }, everyMs: 3000 })
  const { open } = address.query
  const chosen = schedules.data?.items.find(each => each.name === open)
  const columns = useMemo(() => scheduleColumns(schedules.reload, address), [schedules.reload, address.query.open])
  return (
    <div class={chosen === undefined ? '' : 'split'}>
      <div class="page">
        <Head title="Schedules" sub="events that are published at certain times" />
        <section class="panel">
          <Show of={schedules} rows={4}>
            {({ items }) =>
              items.length === 0 ? (
                <Empty title="No schedule is stored">
                  <p>
                    <span class="mono">defineSchedule('nightly-report', {"{ cron: '0 3 * * *', … }"})</span> in your
                    configuration publishes events at its times.
                  </p>
                </Empty>
              ) : (
                <Table
                  label="Schedules"
                  class="stackable"
                  rows={items}
                  keyOf={each => each.name}
                  columns={chosen === undefined ? columns : columns.slice(0, 4)}
                  chosen={open}
                  onOpen={each => address.push({ open: each.name })}
                />
              )
            }
          </Show>
        </section>
        <Cost of={[schedules]} />
      </div>
      {chosen !== undefined && <ScheduleInspector schedule={chosen} address={address} onChange={schedules.reload} />}
    </div>
  )
}

function scheduleLook(each: Schedule): StateLook {
  if (each.state === 'paused') return { shape: 'paused', tone: 'rest', word: 'Paused' }
  if (each.state === 'done') return { shape: 'done', tone: 'rest', word: 'Done' }
  if (each.isRunning) return { shape: 'running', tone: 'run', word: 'Running' }
  if (each.nextAt !== undefined && Date.parse(each.nextAt) < Date.now() - 60_000)
    return { shape: 'behind', tone: 'bad', word: 'No runner has run it' }
  return { shape: 'waiting', tone: 'good', word: 'Active' }
}

function scheduleColumns(reload: () => void, address: Address): Column<Schedule>[] {
  return [
    {
      head: 'Schedule',
      cellClass: 'medium c-name',
      cell: each => <a href={address.with({ open: each.name })}>{each.name}</a>,
    },
    { head: 'When', cellClass: 'dim c-msg', cell: each => timesText(each.definition) },
    { head: 'State', class: 'w-148', cellClass: 'c-now', cell: each => <State {...scheduleLook(each)} /> },
    {
      head: 'Next',
      class: 'w-148',
      cellClass: 'mono dim',
      cell: each =>
        each.nextAt === undefined ? (
          <span class="faint">never</span>
        ) : (
          <span title={time(each.nextAt)}>{relative(each.nextAt)}</span>
        ),
    },
    { head: 'Last', class: 'w-148', cellClass: 'mono dim', cell: each => <At at={each.lastAt} /> },
    { head: 'Ended as', class: 'w-120', cell: each => <OutcomeState outcome={each.lastOutcome} /> },
    { head: '', class: 'w-96 num', cell: each => <PauseSchedule schedule={each} onChange={reload} /> },
  ]
}
