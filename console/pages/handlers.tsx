/** Handlers: their versions, what is open of each, their lanes, and their attempts. */
import { useMemo } from 'preact/hooks'
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { plural, quantity } from '../parts/format.ts'
import { Button, Head, Panel, State, type StateLook } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { act } from '../shell/act.ts'
import { useAddress, useWhere } from '../shell/where.ts'
import { HandlerInspector } from './handler-inspector.tsx'

export type Handler = AnswerOf<'GET /handlers'>['items'][number]
type Lane = AnswerOf<'GET /lanes'>['items'][number]

export function HandlersPage() {
  useWhere({ label: 'Handlers' })
  const address = useAddress()
  const handlers = useReading('GET /handlers', { query: { limit: 500 }, everyMs: 3000 })
  const lanes = useReading('GET /lanes', { query: { limit: 100 }, everyMs: 5000 })
  const { open } = address.query
  const without = handlers.data?.items.filter(each => each.workers === 0 && openOf(each) > 0) ?? []
  const columns = useMemo(() => handlerColumns(handlers.reload), [handlers.reload])
  const chosen = handlers.data?.items.filter(each => each.handler === open)
  return (
    <div class={open === undefined ? '' : 'split'}>
      <div class="page">
        <Head
          title={
            without.length === 0
              ? 'Handlers'
              : `${plural(without.length, 'handler')} ${without.length === 1 ? 'waits' : 'wait'} for a runner`
          }
          sub="code that runs because of events"
        />
        <section class="panel">
          <Show of={handlers} rows={6}>
            {({ items }) =>
              items.length === 0 ? (
                <Empty title="No handler is stored">
                  <p>
                    A handler reacts to events, durably:{' '}
                    <span class="mono">defineHandler('charge', {'{ on: … , run: … }'})</span> in your configuration.
                  </p>
                </Empty>
              ) : (
                <Table
                  label="Handlers"
                  class="stackable"
                  rows={items}
                  keyOf={keyOf}
                  columns={open === undefined ? columns : columns.slice(0, 6)}
                  onOpen={each => address.push({ open: each.handler })}
                  chosen={chosen?.[0] === undefined ? undefined : keyOf(chosen[0])}
                />
              )
            }
          </Show>
        </section>
        <Lanes reading={lanes} />
        <Cost of={[handlers, lanes]} />
      </div>
      {open !== undefined && <HandlerInspector name={open} versions={chosen ?? []} address={address} />}
    </div>
  )
}

function keyOf(each: Handler): string {
  return `${each.handler} ${each.version}`
}

export function openOf({ open }: Handler): number {
  return Object.values(open).reduce((sum, count) => sum + count, 0)
}

export function handlerLook(each: Handler): StateLook {
  if (each.retiredAt !== undefined) return { shape: 'none', tone: 'rest', word: 'Retired' }
  if (each.pausedAt !== undefined) return { shape: 'paused', tone: 'rest', word: 'Paused' }
  if (each.workers === 0) return { shape: 'behind', tone: openOf(each) > 0 ? 'bad' : 'rest', word: 'No runner' }
  if (each.isBackfilling) return { shape: 'running', tone: 'run', word: 'Reads the past' }
  return { shape: 'done', tone: 'good', word: 'Runs' }
}

function handlerColumns(reload: () => void): Column<Handler>[] {
  const toggle = (name: string, isPaused: boolean): void => {
    void act(isPaused ? 'POST /handlers/:name/resume' : 'POST /handlers/:name/pause', {
      parameters: { name },
      done: isPaused ? `${name} runs again.` : `${name} is paused. Its events queue.`,
      undo: { label: isPaused ? 'Pause' : 'Resume', run: () => toggle(name, !isPaused) },
      after: reload,
    })
  }
  const count = (value: number, tone = '') =>
    value === 0 ? <span class="faint">0</span> : <span class={tone}>{quantity(value)}</span>
  return [
    {
      head: 'Handler',
      cellClass: 'medium c-name',
      cell: each => (
        <a href={pageUrl('/handlers', { open: each.handler })}>
          {each.handler} <span class="faint light">v{each.version}</span>
        </a>
      ),
    },
    { head: 'State', class: 'w-120', cellClass: 'c-now', cell: each => <State {...handlerLook(each)} /> },
    { head: 'Ready', class: 'w-72 num', cell: each => count(each.open.ready) },
    { head: 'Running', class: 'w-72 num', cell: each => count(each.open.running, 'tone-run') },
    { head: 'Waiting', class: 'w-72 num', cell: each => count(each.open.suspended + each.open.delayed, 'tone-wait') },
    { head: 'Parked', class: 'w-72 num', cell: each => count(each.open.parked, 'tone-warn strong') },
    {
      head: 'On',
      cellClass: 'dim c-msg',
      cell: each => each.types?.join(', ') ?? 'every event',
      title: each => each.types?.join(', '),
    },
    { head: 'Workers', class: 'w-72 num', cellClass: 'dim', cell: each => each.workers },
    {
      head: '',
      class: 'w-96 num',
      cell: each => (
        <Button
          small
          icon={each.pausedAt === undefined ? 'pause' : 'play'}
          refused={each.retiredAt === undefined ? refusedFor('operate') : 'it is retired'}
          onClick={() => toggle(each.handler, each.pausedAt !== undefined)}
        >
          {each.pausedAt === undefined ? 'Pause' : 'Resume'}
        </Button>
      ),
    },
  ]
}

function Lanes({ reading }: { reading: ReturnType<typeof useReading<'GET /lanes'>> }) {
  const unpark = async ({ handler, key, open }: Lane): Promise<void> => {
    const answer = await ask({
      title: `Let lane ${key} of ${handler} continue?`,
      body: `${plural(open, 'execution')} in it run in their order. The dead letter for which it was parked stays as it is: its event is passed over.`,
      verb: 'Unpark the lane',
    })
    if (answer !== undefined)
      await act('POST /lanes/unpark', {
        body: { handler, key },
        done: ({ unparked }) => `${plural(unparked, 'lane')} continued.`,
        after: reading.reload,
      })
  }
  const items = reading.data?.items ?? []
  if (items.length === 0) return null
  const sorted = [...items].sort((a, b) => Number(b.isParked) - Number(a.isParked))
  return (
    <Panel title="Lanes" sub="of ordered handlers: one execution at a time for each key">
      <Table
        label="Lanes"
        class="stackable"
        rows={sorted}
        keyOf={each => `${each.handler} ${each.key}`}
        columns={[
          { head: 'Handler', class: 'w-120', cellClass: 'medium c-name', cell: each => each.handler },
          { head: 'Key', cellClass: 'mono c-msg', cell: each => each.key },
          {
            head: 'State',
            class: 'w-120',
            cellClass: 'c-now',
            cell: each =>
              each.isParked ? (
                <State shape="parked" tone="warn" word="Parked" />
              ) : (
                <State shape="running" tone="run" word="Runs" />
              ),
          },
          { head: 'Open', class: 'w-72 num', cell: each => quantity(each.open) },
          {
            head: 'Parked for',
            class: 'w-120 hide-narrow',
            cellClass: 'mono hide-narrow',
            cell: each =>
              each.parkedFor === undefined ? (
                ''
              ) : (
                <a class="link" href={pageUrl('/dead-letters', { of: each.handler, open: each.parkedFor })}>
                  its dead letter
                </a>
              ),
          },
          {
            head: '',
            class: 'w-96 num',
            cell: each =>
              each.isParked && (
                <Button small refused={refusedFor('operate')} onClick={() => void unpark(each)}>
                  Unpark…
                </Button>
              ),
          },
        ]}
      />
    </Panel>
  )
}
