/** One event: its data, ids, what it caused, its headers, and why it is not processed yet. */

import type { ComponentChildren } from 'preact'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { copyJson, JsonView } from '../json/view.tsx'
import { copyText } from '../parts/copy.tsx'
import { exactTime, relative } from '../parts/format.ts'
import { Icon } from '../parts/icon.tsx'
import { later } from '../parts/later.tsx'
import { Button, Facts, Id, Tabs } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import type { Address } from '../shell/where.ts'
import { Effects } from './effects.tsx'
import { SeenBy } from './stream-readers.tsx'

const Why = later(() => import('./why.tsx').then(module => module.WhyPanel))

type Shown = AnswerOf<'GET /events/:id'>
type Tab = 'event' | 'effects' | 'headers' | 'stored' | 'why'

interface InspectorProps {
  id: string
  address: Address
  /** Goes to the event before it in the list, or to the next. */
  onStep: (by: number) => void
}

export function EventInspector({ id, address, onStep }: InspectorProps) {
  const event = useReading('GET /events/:id', { parameters: { id }, query: { raw: 1 } })
  const tab = (address.query.tab ?? 'event') as Tab
  const close = (): void => address.replace({ open: undefined, tab: undefined })
  const shown = event.data
  return (
    <aside class="inspector" aria-label={shown === undefined ? 'Event' : `Event ${shown.position}`}>
      <header>
        <div class="line">
          <span class="title cut">{shown?.type ?? ''}</span>
          <span class="mono dim">{shown === undefined ? '' : `#${shown.position}`}</span>
          <span class="push actions">
            <Button kind="bare" small icon="up" label="Event above" onClick={() => onStep(-1)} />
            <Button kind="bare" small icon="down" label="Event below" onClick={() => onStep(1)} />
            <Button kind="bare" small icon="close" label="Close" onClick={close} />
          </span>
        </div>
        <div class="line faint">
          {shown === undefined ? ' ' : `${exactTime(shown.createdAt)} · ${relative(shown.createdAt)}`}
        </div>
      </header>
      <Tabs
        label="Parts of the event"
        value={tab}
        href={value => address.with({ tab: value === 'event' ? undefined : value })}
        tabs={[
          { value: 'event', label: 'Event' },
          { value: 'effects', label: 'Effects' },
          { value: 'headers', label: 'Headers', count: Object.keys(shown?.headers ?? {}).length },
          { value: 'stored', label: 'As stored' },
          { value: 'why', label: 'Why?' },
        ]}
      />
      <Show of={event}>{found => <TabOf tab={tab} event={found} />}</Show>
      {shown !== undefined && <Foot event={shown} address={address} />}
    </aside>
  )
}

function TabOf({ tab, event }: { tab: Tab; event: Shown }): ComponentChildren {
  if (tab === 'headers')
    return (
      <section>
        <h2>Headers</h2>
        <JsonView value={event.headers} />
      </section>
    )
  if (tab === 'effects')
    return (
      <section>
        <h2>What it caused</h2>
        <Effects event={event} />
      </section>
    )
  if (tab === 'stored') return <AsStored event={event} />
  if (tab === 'why') return <Why event={event} />
  return (
    <>
      <section>
        <h2>
          Data{' '}
          <span class="faint mini light push">
            schema {event.schemaVersion}
            {event.stored !== undefined && event.stored.shapes.length > 1 ? ', upcast' : ''}
          </span>
        </h2>
        {event.isCut ? (
          <p class="dim">Its data is larger than 64 KiB and left out here.</p>
        ) : (
          <JsonView value={event.data} text={event.stored?.data} />
        )}
      </section>
      <section>
        <EventFacts event={event} />
      </section>
      <section>
        <h2>What it caused</h2>
        <Effects event={event} />
      </section>
      <section class="flush">
        <h2>Seen by</h2>
        <SeenBy position={event.position} />
      </section>
    </>
  )
}

/** Its JSON before it is upcast, and the shapes that it goes through until readers see it. */
function AsStored({ event: { stored, headers } }: { event: Shown }) {
  if (stored === undefined)
    return (
      <section>
        <p class="dim">Some of its data is hidden from this session, so its text is, too.</p>
      </section>
    )
  return (
    <section>
      <h2>
        As it is stored <span class="faint mini light push">schema {stored.schemaVersion}</span>
      </h2>
      <JsonView value={stored.data} text={stored.data} />
      <p class="dim">
        {stored.shapes.length < 2
          ? 'It is read as it is stored.'
          : `Readers see it as ${stored.shapes.map(each => `${each.type}, schema ${each.schemaVersion}`).join(' → ')}.`}
      </p>
      {Object.keys(headers).length > 0 && stored.headers !== undefined && (
        <>
          <h2>Headers</h2>
          <JsonView value={headers} text={stored.headers} />
        </>
      )}
    </section>
  )
}

function EventFacts({ event }: { event: Shown }) {
  const { stream, version, correlationId, causationId, userId } = event
  const around = useReading('GET /streams/:stream/events', {
    parameters: { stream },
    query: { from: Math.max(1, version - 1), to: version + 1 },
  })
  const neighbours = around.data?.items.filter(each => each.version !== version) ?? []
  return (
    <Facts
      facts={[
        [
          'Stream',
          <span>
            <a class="link" href={pageUrl(`/streams/${encodeURIComponent(stream)}`, { version })}>
              {stream}
            </a>{' '}
            at version {version}
          </span>,
          'mono',
        ],
        neighbours.length === 0
          ? undefined
          : [
              'Around it',
              <span class="around">
                {neighbours.map(each => (
                  <a key={each.id} class="link" href={pageUrl('/events', { open: each.id })}>
                    {each.version < version ? '← ' : ''}
                    {each.type}
                    {each.version > version ? ' →' : ''}
                  </a>
                ))}
              </span>,
            ],
        ['Event', <Id id={event.id} label="event id" />, 'mono'],
        [
          'Workflow',
          <Id id={correlationId} label="workflow" href={pageUrl(`/workflows/${encodeURIComponent(correlationId)}`)} />,
          'mono',
        ],
        [
          'Caused by',
          causationId === undefined ? undefined : (
            <Id id={causationId} label="cause" href={pageUrl('/events', { open: causationId })} />
          ),
          'mono',
        ],
        ['User', userId, 'mono'],
      ]}
    />
  )
}

function Foot({ event, address }: { event: Shown; address: Address }) {
  const test = `{ type: ${JSON.stringify(event.type)}, data: ${JSON.stringify(event.data)} }`
  return (
    <footer>
      <a class="btn" href={address.with({ tab: 'why' })}>
        <Icon name="help" />
        Why not processed yet?
      </a>
      <span class="push actions">
        <Button kind="bare" icon="copy" onClick={() => copyJson(event)}>
          JSON
        </Button>
        <Button kind="bare" onClick={() => copyText(`rillflow events show ${event.id}`)}>
          CLI
        </Button>
        <Button kind="bare" onClick={() => copyText(test)}>
          Test
        </Button>
      </span>
    </footer>
  )
}
