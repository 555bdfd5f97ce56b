/** One stream: its events as a thread with the gaps in time, and its state at the version that is chosen. */
import { useMemo, useRef } from 'preact/hooks'
import { useRoute } from 'preact-iso'
import { refusedFor } from '../api/api.ts'
import { useFeed } from '../api/live.ts'
import { pageUrl } from '../api/place.ts'
import { type Reading, useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { OneLine } from '../json/view.tsx'
import { copyText } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { ask } from '../parts/dialog.tsx'
import { timeOf } from '../parts/filter.tsx'
import { clockTime, duration, exactTime, plural } from '../parts/format.ts'
import { Icon } from '../parts/icon.tsx'
import { Button } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { act } from '../shell/act.ts'
import { useKeys } from '../shell/keys.ts'
import { say } from '../shell/said.tsx'
import { type Address, useAddress, useWhere } from '../shell/where.ts'
import type { StreamEvent } from './stream-event.ts'
import { asLines, asTest, download } from './stream-export.ts'
import { StreamState } from './stream-state.tsx'

const gapMs = 60_000

export function StreamPage() {
  const stream = useRoute().params.stream ?? ''
  useWhere({ label: 'Streams', path: '/streams' }, { label: stream, isMono: true })
  const address = useAddress()
  const described = useReading('GET /streams/:stream', { parameters: { stream } })
  const { after } = address.query
  const snapshots = useReading('GET /streams/:stream/snapshots', { parameters: { stream } })
  const events = useReading('GET /streams/:stream/events', { parameters: { stream }, query: { limit: 200, after } })
  useFeed(
    ['events'],
    topic => {
      if (topic !== 'events' || after !== undefined) return
      events.reload()
      described.reload()
    },
    { stream },
  )
  const list = events.data?.items ?? []
  const version = Number(address.query.version ?? list.at(-1)?.version ?? 0)
  useSteps(list, version, address)
  return (
    <div class="travel">
      <section class="thread" aria-label="Events of the stream">
        <header>
          <h1 class="mono-title cut" tabIndex={-1} title={stream}>
            {stream}
          </h1>
          <Summary of={described} snapshot={snapshots.data?.items[0]?.version} />
          <StreamActions stream={stream} described={described} />
          <StreamTexts stream={stream} events={list} of={address.query.of} address={address} />
        </header>
        <Show of={events} rows={10}>
          {({ items, next }) =>
            items.length === 0 ? (
              <Empty title="It has no events" />
            ) : (
              <>
                <ol>{items.flatMap((event, index) => threadOf(event, items[index - 1], version, address))}</ol>
                {next !== null && (
                  <p class="pad">
                    <a class="link" href={address.with({ after: next, version: undefined })}>
                      Later events
                    </a>
                  </p>
                )}
              </>
            )
          }
        </Show>
        <Cost of={[described, events]} />
      </section>
      {list.length > 0 && <StreamState stream={stream} events={list} version={version} address={address} />}
    </div>
  )
}

function Summary({ of, snapshot }: { of: Reading<AnswerOf<'GET /streams/:stream'>>; snapshot: number | undefined }) {
  const found = of.data
  if (found === undefined) return <p class="dim">{of.error === undefined ? ' ' : of.error.message}</p>
  const states = { open: 'Open', archived: 'Archived', tombstoned: 'Tombstoned' }
  const life = Date.parse(found.lastEventAt) - Date.parse(found.createdAt)
  return (
    <p class="dim">
      {states[found.state]} · version {found.version}
      {life > 0 && ` · over ${duration(life)}`}
      {snapshot !== undefined && ` · snapshot at ${snapshot}`}
      {found.reason !== undefined && ` · ${found.reason}`}
    </p>
  )
}

function threadOf(event: StreamEvent, before: StreamEvent | undefined, version: number, address: Address) {
  const gap = before === undefined ? 0 : Date.parse(event.createdAt) - Date.parse(before.createdAt)
  const when = event.version < version ? 'past' : event.version === version ? 'now' : 'later'
  return [
    ...(gap > gapMs
      ? [
          <li class="gap" key={`gap ${event.version}`}>
            {duration(gap)} nothing
          </li>,
        ]
      : []),
    <li class={when} key={event.version} id={`v${event.version}`}>
      <a
        href={address.with({ version: event.version })}
        aria-current={when === 'now' ? 'step' : undefined}
        title={exactTime(event.createdAt)}
      >
        <span class="knot" />
        <span class="mono faint num">{event.version}</span>
        <span class="ev">
          <b class="cut">{event.type}</b>
          <span class="mono">
            <OneLine value={event.data} />
          </span>
        </span>
        <span class="mono faint t-end">{clockTime(event.createdAt)}</span>
      </a>
    </li>,
  ]
}

/** `[` and `]` step through the versions. */
function useSteps(events: readonly StreamEvent[], version: number, address: Address): void {
  const state = useRef({ events, version, address })
  state.current = { events, version, address }
  useKeys(
    useMemo(() => {
      const step = (by: number): void => {
        const { events, version, address } = state.current
        const at = events.findIndex(event => event.version === version)
        const next = events[at + by]
        if (next !== undefined) address.replace({ version: next.version })
      }
      return { '[': () => step(-1), ']': () => step(1), k: () => step(-1), j: () => step(1) }
    }, []),
  )
}

function StreamActions({
  stream,
  described,
}: {
  stream: string
  described: Reading<AnswerOf<'GET /streams/:stream'>>
}) {
  const state = described.data?.state
  const run = async (verb: 'archive' | 'restore'): Promise<void> => {
    const isArchived = verb === 'archive'
    await act(`POST /streams/:stream/${verb}`, {
      parameters: { stream },
      done: isArchived ? `${stream} is archived.` : `${stream} is open again.`,
      undo: { label: isArchived ? 'Restore' : 'Archive', run: () => void run(isArchived ? 'restore' : 'archive') },
      after: described.reload,
    })
  }
  const tombstone = async (): Promise<void> => {
    const answer = await ask({
      title: `End ${stream} for good?`,
      body: `It gets a last event that says so, and refuses all appends from then on. Its ${plural(described.data?.version ?? 0, 'event')} stay in the log. This cannot be undone; archiving can.`,
      verb: 'Tombstone it',
      isDanger: true,
      name: stream,
    })
    if (answer === undefined) return
    await act('POST /streams/:stream/tombstone', {
      parameters: { stream },
      body: { confirm: stream },
      done: `${stream} is tombstoned.`,
      after: described.reload,
    })
  }
  if (state === undefined || state === 'tombstoned') return null
  return (
    <div class="actions">
      <Button
        small
        refused={refusedFor('operate')}
        onClick={() => void run(state === 'archived' ? 'restore' : 'archive')}
      >
        {state === 'archived' ? 'Restore' : 'Archive'}
      </Button>
      <Button small kind="danger" refused={refusedFor('admin')} onClick={() => void tombstone()}>
        Tombstone…
      </Button>
      {state === 'open' && (
        <a class="btn btn-small" href={pageUrl('/events', { stream, do: 'append' })}>
          Append…
        </a>
      )}
    </div>
  )
}

/** Its events as text, and the version that it had at a time. */
function StreamTexts(props: {
  stream: string
  events: readonly StreamEvent[]
  of: string | undefined
  address: Address
}) {
  const { stream, events, of, address } = props
  const goTo = async (): Promise<void> => {
    const given = await ask({
      title: `${stream} at which time?`,
      body: 'The page then shows the version that it had: the last event that was appended until then.',
      verb: 'Show it',
      field: {
        label: 'Time',
        hint: 'As 2026-11-19 02:23, or as an age: 10m, 2h, 3d.',
        initial: events.at(-1)?.createdAt ?? '',
      },
    })
    const at = timeOf(given)
    if (given === undefined) return
    if (at === undefined) return say(`${given} is not a time.`, { isBad: true })
    const found = events.findLast(event => event.createdAt <= at)
    if (found === undefined) return say('It had no event then.', { isBad: true })
    address.push({ version: found.version })
  }
  return (
    <div class="actions bare-actions">
      <Button small kind="bare" onClick={() => void goTo()}>
        State at a time…
      </Button>
      <Button small kind="bare" onClick={() => download(`${stream}.ndjson`, asLines(events))}>
        NDJSON
      </Button>
      <Button small kind="bare" onClick={() => copyText(asTest(events, of))}>
        Test
      </Button>
      <a class="btn btn-small btn-bare" href={logOf(stream)}>
        In the log <Icon name="right" />
      </a>
    </div>
  )
}

function logOf(stream: string): string {
  return pageUrl('/events', { stream })
}
