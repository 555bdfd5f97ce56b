/** The event at a version of a stream. */
import { pageUrl } from '../api/place.ts'
import { JsonView } from '../json/view.tsx'
import { exactTime } from '../parts/format.ts'
import { Button, Head, Panel } from '../parts/parts.tsx'
import type { Address } from '../shell/where.ts'
import type { StreamEvent } from './stream.tsx'

interface StreamStateProps {
  stream: string
  events: readonly StreamEvent[]
  version: number
  address: Address
}

export function StreamState({ events, version, address }: StreamStateProps) {
  const event = events.find(each => each.version === version)
  if (event === undefined) return null
  const first = events[0]?.version ?? 1
  const last = events.at(-1)?.version ?? 1
  return (
    <section class="stateview" aria-label="Version">
      <Head title={`Version ${version}`} sub={`${event.type}, ${exactTime(event.createdAt)}`}>
        <Button
          icon="left"
          label="Version before"
          refused={version <= first ? 'it is the first' : undefined}
          onClick={() => address.replace({ version: version - 1 })}
        />
        <Button
          icon="right"
          label="Next version"
          refused={version >= last ? 'it is the last' : undefined}
          onClick={() => address.replace({ version: version + 1 })}
        />
      </Head>
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
    </section>
  )
}
