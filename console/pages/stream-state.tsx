/** A stream at a version: the state that its events fold to, what the version changed, and the event behind each field. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import { JsonView } from '../json/view.tsx'
import { exactTime } from '../parts/format.ts'
import { Button, Head, LinkChoice, Panel } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { useKeys } from '../shell/keys.ts'
import type { Address } from '../shell/where.ts'
import { BlameTable } from './blame.tsx'
import { Proof } from './proof.tsx'
import type { StreamEvent } from './stream-event.ts'
import { SeenBy } from './stream-readers.tsx'

interface StreamStateProps {
  stream: string
  events: readonly StreamEvent[]
  version: number
  address: Address
}

const playMs = 700

export function StreamState({ stream, events, version, address }: StreamStateProps) {
  const folds = useReading('GET /states')
  const event = events.find(each => each.version === version)
  const [isPlaying, setPlaying] = useState(false)
  const last = events.at(-1)?.version ?? 1
  const first = events[0]?.version ?? 1
  const go = (to: number): void => address.replace({ version: Math.min(last, Math.max(first, to)) })
  useEffect(() => {
    if (!isPlaying) return
    if (version >= last) return setPlaying(false)
    const timer = setTimeout(() => go(version + 1), playMs)
    return () => clearTimeout(timer)
  }, [isPlaying, version, last])
  const names = folds.data?.items ?? []
  const category = stream.split('-')[0]
  const of = address.query.of ?? names.find(each => each.name === category)?.name ?? names[0]?.name
  if (event === undefined) return null
  return (
    <section class="stateview" aria-label="Version">
      <Head
        title={of === undefined ? `Version ${version}` : `State at version ${version}`}
        sub={`after ${event.type}, ${exactTime(event.createdAt)}`}
      >
        {names.length > 1 && (
          <select
            class="input pick"
            aria-label="Folded by"
            value={of}
            onChange={change => address.replace({ of: change.currentTarget.value })}
          >
            {names.map(each => (
              <option key={each.name} value={each.name}>
                {each.name}, {each.kind}
              </option>
            ))}
          </select>
        )}
      </Head>
      <div class="scrub">
        <span class="actions">
          <Button
            icon="left"
            label="Version before"
            refused={version <= first ? 'it is the first' : undefined}
            onClick={() => go(version - 1)}
          />
          <Button
            icon={isPlaying ? 'pause' : 'play'}
            label={isPlaying ? 'Pause' : 'Play'}
            onClick={() => {
              if (version >= last) go(first)
              setPlaying(!isPlaying)
            }}
          />
          <Button
            icon="right"
            label="Next version"
            refused={version >= last ? 'it is the last' : undefined}
            onClick={() => go(version + 1)}
          />
        </span>
        <input
          type="range"
          min={first}
          max={last}
          value={version}
          aria-label="Version"
          onInput={input => go(Number(input.currentTarget.value))}
        />
        <span class="keys-2 hide-phone">
          <kbd>[</kbd>
          <kbd>]</kbd>
        </span>
      </div>
      {of !== undefined && <StatePanel stream={stream} of={of} version={version} versions={events} address={address} />}
      <Panel
        title={event.type}
        sub={`#${event.position}`}
        end={
          <a class="link" href={pageUrl('/events', { open: event.id })}>
            Open the event
          </a>
        }
      >
        <div class="pad">
          <JsonView value={event.data} flat />
        </div>
      </Panel>
      <div class="side-2">
        <Panel title={`Consumers that have seen version ${version}`}>
          <SeenBy position={event.position} />
        </Panel>
        {names
          .filter(each => each.kind === 'projection')
          .sort((a, b) => Number(b.name === of) - Number(a.name === of))
          .slice(0, 1)
          .map(each => (
            <Proof key={each.name} stream={stream} projection={each.name} />
          ))}
      </div>
    </section>
  )
}

function StatePanel({
  stream,
  of,
  version,
  versions,
  address,
}: {
  stream: string
  of: string
  version: number
  versions: readonly StreamEvent[]
  address: Address
}) {
  const parameters = { stream }
  const blamed = useReading('GET /streams/:stream/states/blame', { parameters, query: { of, version } })
  const view = address.query.view ?? 'diff'
  const against = Number(address.query.against ?? version - 1)
  const before = useReading('GET /streams/:stream/states', {
    parameters,
    query: { of, version: against },
    when: view === 'diff',
  })
  useKeys(
    useMemo(() => ({ d: () => address.replace({ view: view === 'diff' ? 'plain' : undefined }) }), [view, version, of]),
  )
  return (
    <Panel
      title={of}
      end={
        <span class="actions">
          {view === 'diff' && versions.length > 2 && (
            <select
              class="input pick"
              aria-label="Compare with"
              value={against}
              onChange={change => {
                const to = Number(change.currentTarget.value)
                address.replace({ against: to === version - 1 ? undefined : to })
              }}
            >
              {[(versions[0]?.version ?? 1) - 1, ...versions.map(each => each.version)]
                .filter(each => each !== version)
                .map(each => (
                  <option key={each} value={each}>
                    version {each}
                  </option>
                ))}
            </select>
          )}
          <LinkChoice
            label="View"
            value={view}
            choices={[
              { value: 'diff', label: `Diff to ${against}` },
              { value: 'plain', label: 'Plain' },
            ]}
            href={value => address.with({ view: value === 'diff' ? undefined : value })}
          />
        </span>
      }
      foot="Each field names the event that made it. A click goes there."
    >
      <Show of={blamed} rows={8}>
        {({ state, blame }) => (
          <BlameTable
            state={state}
            blame={blame}
            before={view === 'diff' && before.data !== undefined ? before.data.state : undefined}
            version={version}
            href={to => address.with({ version: to })}
          />
        )}
      </Show>
    </Panel>
  )
}
