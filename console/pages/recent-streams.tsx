/** The streams of the newest 500 events, the latest first: one page of the log tells them, however many streams there are. */
import { useMemo } from 'preact/hooks'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import { Cost } from '../parts/cost.tsx'
import { Ago } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { useAddress } from '../shell/where.ts'
import type { ListedEvent } from './event-list.ts'

interface Recent {
  readonly newest: ListedEvent
  readonly count: number
}

export function RecentStreams({ category }: { category: string | undefined }) {
  const address = useAddress()
  const events = useReading('GET /events', { query: { limit: 500, category }, everyMs: 5000 })
  const streams = useMemo(() => byStream(events.data?.items ?? []), [events.data])
  const url = (stream: string): string => pageUrl(`/streams/${encodeURIComponent(stream)}`)
  return (
    <section class="panel">
      <Show of={events} rows={12}>
        {() =>
          streams.length === 0 ? (
            <Empty title="No event was appended lately" />
          ) : (
            <Table
              label="Recently active streams"
              rows={streams}
              keyOf={each => each.newest.stream}
              onOpen={each => address.go(url(each.newest.stream))}
              columns={[
                {
                  head: 'Stream',
                  cellClass: 'mono',
                  cell: ({ newest: { stream } }) => <a href={url(stream)}>{stream}</a>,
                  title: ({ newest }) => newest.stream,
                },
                { head: 'Last event', class: 'w-180', cellClass: 'medium', cell: each => each.newest.type },
                { head: 'Version', class: 'w-80 num', cell: each => each.newest.version },
                { head: 'Of the newest', class: 'w-112 num', cellClass: 'dim', cell: each => each.count },
                { head: 'When', class: 'w-112', cellClass: 'dim', cell: each => <Ago at={each.newest.createdAt} /> },
              ]}
            />
          )
        }
      </Show>
      <div class="pad">
        <Cost of={[events]} />
      </div>
    </section>
  )
}

function byStream(events: readonly ListedEvent[]): Recent[] {
  const found = new Map<string, Recent>()
  for (const event of events) {
    const known = found.get(event.stream)
    found.set(event.stream, { newest: known?.newest ?? event, count: (known?.count ?? 0) + 1 })
  }
  return [...found.values()]
}
