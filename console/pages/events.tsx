/** The log, newest first: live, filtered, with an inspector that has its own address. */
import { useCallback, useEffect, useMemo, useRef } from 'preact/hooks'
import { refusedFor, request } from '../api/api.ts'
import { useReading } from '../api/reading.ts'
import { Command } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { FilterLine, timeOf } from '../parts/filter.tsx'
import { plural, relative, time } from '../parts/format.ts'
import { Icon, Shape } from '../parts/icon.tsx'
import { Button } from '../parts/parts.tsx'
import { Bones, Empty } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { useKeys } from '../shell/keys.ts'
import { say } from '../shell/said.tsx'
import { type Address, useAddress, useWhere } from '../shell/where.ts'
import { Compose } from './compose.tsx'
import { eventColumns } from './event-columns.tsx'
import { EventInspector } from './event-inspector.tsx'
import { type EventList, useEventList } from './event-list.ts'
import { Histogram } from './histogram.tsx'

const keys = ['type', 'stream', 'category', 'workflow', 'user', 'header', 'since', 'until'] as const
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

export function EventsPage() {
  useWhere({ label: 'Events' })
  const address = useAddress()
  const { type, stream, category, workflow, user, header, since, until, open, do: composing } = address.query
  const query = useMemo(
    () => ({
      ...{ types: type, stream, category, correlationId: workflow, userId: user },
      ...{ headers: headersOf(header), since: timeOf(since), until: timeOf(until) },
    }),
    [type, stream, category, workflow, user, header, since, until],
  )
  const list = useEventList(query)
  const types = useReading('GET /events/types')
  const suggestions = useMemo(() => ({ type: types.data?.items.map(each => each.type) ?? [] }), [types.data])
  const step = useRows(list, address)
  return (
    <div
      class={
        open === undefined && composing === undefined ? '' : `split ${address.query.tab === 'why' ? 'split-wide' : ''}`
      }
    >
      <div class="page-events">
        <h1 class="sr" tabIndex={-1}>
          Events
        </h1>
        <div class="filters">
          <FilterLine
            keys={keys}
            values={address.query}
            suggestions={suggestions}
            placeholder="type: stream: user: header.name: since: #position"
            onChange={change => address.push(change)}
            onText={text => void find(text, address, suggestions.type)}
          />
          <Button
            icon="plus"
            refused={refusedFor('operate')}
            onClick={() => address.push({ do: 'publish', open: undefined })}
          >
            New event…
          </Button>
        </div>
        <Histogram events={list.events} />
        {list.error !== undefined && <Stale list={list} />}
        {list.fresh > 0 && (
          <button type="button" class="fresh" onClick={list.takeFresh}>
            <Icon name="up" />
            {plural(list.fresh, 'new event')}
          </button>
        )}
        <Rows list={list} address={address} />
        <div class="page-foot">
          <Cost of={[{ ...list, data: list.events }]} />
        </div>
        <span class="sr" aria-live="polite">
          {list.fresh > 0 ? plural(list.fresh - (list.fresh % 5), 'new event') : ''}
        </span>
      </div>
      {open !== undefined && composing === undefined && <EventInspector id={open} address={address} onStep={step} />}
      {composing !== undefined && types.data !== undefined && <Compose address={address} types={types.data.items} />}
    </div>
  )
}

function Rows({ list, address }: { list: EventList; address: Address }) {
  const { open, type, since } = address.query
  const end = useRef<HTMLDivElement>(null)
  const more = useRef(list.loadMore)
  more.current = list.loadMore
  useEffect(() => {
    const seen = new IntersectionObserver(entries => entries.some(entry => entry.isIntersecting) && more.current(), {
      rootMargin: '600px',
    })
    if (end.current !== null) seen.observe(end.current)
    return () => seen.disconnect()
  }, [])
  const isEmpty = list.events.length === 0 && !list.isLoading
  const isFiltered = keys.some(key => address.query[key] !== undefined)
  return (
    <>
      {list.events.length > 0 && (
        <Table
          label="Events, newest first"
          class={`bleed ${list.error === undefined ? '' : 'is-stale'} ${open === undefined ? '' : 'narrow-list'}`}
          sticks
          rows={list.events}
          keyOf={event => event.id}
          chosen={open}
          onOpen={event => address.push({ open: event.id })}
          columns={
            open === undefined
              ? eventColumns(address)
              : eventColumns(address).filter(({ head }) => head !== 'Workflow' && head !== 'User')
          }
        />
      )}
      {list.isLoading && list.events.length === 0 && <Bones rows={12} />}
      {isEmpty && list.error === undefined && !isFiltered && (
        <Empty title="The log is empty">
          <p>The first append begins it, from a program or here:</p>
          <Command line={`rillflow events append order-1 OrderPlaced '{"cents":1250}'`} />
        </Empty>
      )}
      {isEmpty && list.error === undefined && isFiltered && (
        <Empty title="No event matches">
          <p>
            {list.reached === undefined ? (
              'The log has none.'
            ) : (
              <>
                Looked back to <span class="mono">#{list.reached}</span>.
              </>
            )}{' '}
            {since !== undefined && (
              <a class="link" href={address.with({ since: undefined })}>
                Remove since: {since}
              </a>
            )}
            {type !== undefined && (
              <>
                {' '}
                <a class="link" href={address.with({ type: undefined })}>
                  Remove type: {type}
                </a>
              </>
            )}
          </p>
          {!list.isEnd && <Button onClick={list.loadMore}>Look further back</Button>}
        </Empty>
      )}
      <div ref={end} class="list-end">
        {list.events.length > 0 && list.isEnd && (
          <span class="faint">
            The beginning of {Object.keys(address.query).length > 0 ? 'what matches' : 'the log'}.
          </span>
        )}
      </div>
    </>
  )
}

/** j, k and Esc, in the list and inside the inspector. */
function useRows(list: EventList, address: Address): (by: number) => void {
  const state = useRef({ list, address })
  state.current = { list, address }
  const step = useCallback((by: number): void => {
    const { list, address } = state.current
    const at = list.events.findIndex(event => event.id === address.query.open)
    const next = list.events[Math.max(0, at + by)]
    if (next !== undefined) address.replace({ open: next.id })
  }, [])
  useKeys(
    useMemo(
      () => ({
        j: () => step(1),
        k: () => step(-1),
        Escape: () =>
          state.current.address.query.open !== undefined &&
          state.current.address.replace({ open: undefined, tab: undefined }),
      }),
      [step],
    ),
  )
  return step
}

function Stale({ list }: { list: EventList }) {
  return (
    <div class="stale" role="status">
      <Shape name="failed" tone="tone-bad" />
      <p>
        <b class="medium">{list.error?.message}</b>{' '}
        {list.at !== undefined && (
          <span class="dim">
            These events are from {time(list.at)}, {relative(list.at)}. Nothing is lost: the list continues when the
            server answers.
          </span>
        )}
      </p>
      <span class="mono faint hide-phone">{list.error?.code}</span>
      <Button small onClick={list.reload}>
        Try now
      </Button>
    </div>
  )
}

/** `region=eu, tier=pro` as the parameter of the route. */
function headersOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined
  const pairs = text.split(',').map(each => each.split('='))
  return JSON.stringify(Object.fromEntries(pairs.map(([name = '', ...value]) => [name.trim(), value.join('=').trim()])))
}

/** Text without a key: a position, an id, a time, a type, or the name of a stream. */
async function find(text: string, address: Address, types: readonly string[]): Promise<void> {
  const position = /^#?(\d+)$/.exec(text)?.[1]
  if (uuid.test(text)) return address.push({ open: text })
  if (position !== undefined) {
    try {
      const { data } = await request('GET /events/at/:position', { parameters: { position } })
      address.push({ open: data.id })
    } catch {
      say(`No event has the position #${position}.`, { isBad: true })
    }
    return
  }
  const header = /^header\.([^:\s]+):\s*(.+)$/.exec(text)
  if (header !== null) return address.push({ header: `${header[1]}=${header[2]}` })
  if (/^\d{4}-\d\d-\d\d/.test(text) && timeOf(text) !== undefined) return address.push({ until: text })
  address.push(types.includes(text) ? { type: text } : { stream: text })
}
