/** Streams by name, by category or prefix. */
import { useMemo } from 'preact/hooks'
import { refusedFor } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Cost } from '../parts/cost.tsx'
import { FilterLine } from '../parts/filter.tsx'
import { quantity } from '../parts/format.ts'
import { Ago, At, Head, LinkChoice, State, Tag } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { useAddress, useWhere } from '../shell/where.ts'
import { RecentStreams } from './recent-streams.tsx'

type Stream = AnswerOf<'GET /streams'>['items'][number]

export function StreamsPage() {
  useWhere({ label: 'Streams' })
  const address = useAddress()
  const { category, prefix, state = 'open', after } = address.query
  const isRecent = state === 'recent'
  const streams = useReading('GET /streams', {
    query: { category, prefix, state, after, limit: 100 },
    everyMs: 10_000,
    when: !isRecent,
  })
  const categories = useReading('GET /streams/categories')
  const columns = useMemo(() => streamColumns(), [])
  return (
    <div class="page">
      <Head title="Streams" sub="the events of one thing each, by name">
        <LinkChoice
          label="State"
          value={state}
          choices={[
            { value: 'open', label: 'Open' },
            { value: 'recent', label: 'Recently active' },
            { value: 'archived', label: 'Archived' },
            { value: 'all', label: 'All' },
          ]}
          href={value => address.with({ state: value === 'open' ? undefined : value, after: undefined })}
        />
      </Head>
      <FilterLine
        keys={['category', 'prefix']}
        values={address.query}
        suggestions={{ category: categories.data?.items.map(each => each.category) ?? [] }}
        placeholder="the beginning of a name, or category:"
        onChange={change => address.push({ ...change, after: undefined })}
        onText={text => address.push({ prefix: text, after: undefined })}
      />
      {categories.data !== undefined && categories.data.items.length > 0 && (
        <div class="chips">
          {categories.data.items.slice(0, 24).map(each => (
            <a
              key={each.category}
              class="chip"
              href={address.with({ category: each.category, prefix: undefined, after: undefined })}
              aria-current={category === each.category ? 'true' : undefined}
            >
              {each.category}
            </a>
          ))}
        </div>
      )}
      {isRecent && <RecentStreams category={category} />}
      <section class="panel" hidden={isRecent}>
        <Show of={streams} rows={12}>
          {({ items, next }) =>
            items.length === 0 ? (
              <Empty
                title={category !== undefined || prefix !== undefined ? 'No stream matches' : 'There is no stream yet'}
              >
                <p>
                  {refusedFor('operate') === undefined
                    ? 'An append makes its stream: '
                    : 'A program makes them by appending: '}
                  <span class="mono">rillflow events append order-1 OrderPlaced '{'{}'}'</span>
                </p>
              </Empty>
            ) : (
              <>
                <Table
                  label="Streams"
                  rows={items}
                  keyOf={stream => stream.stream}
                  columns={columns}
                  onOpen={stream => address.go(pageUrl(`/streams/${encodeURIComponent(stream.stream)}`))}
                />
                {(next !== null || after !== undefined) && (
                  <footer>
                    {after !== undefined && (
                      <a class="link" href={address.with({ after: undefined })}>
                        First page
                      </a>
                    )}
                    {next !== null && (
                      <a class="link push" href={address.with({ after: next })}>
                        Next page
                      </a>
                    )}
                  </footer>
                )}
              </>
            )
          }
        </Show>
      </section>
      <Cost of={[streams, categories]} />
    </div>
  )
}

function streamColumns(): Column<Stream>[] {
  return [
    {
      head: 'Stream',
      cellClass: 'mono',
      cell: each => <a href={pageUrl(`/streams/${encodeURIComponent(each.stream)}`)}>{each.stream}</a>,
      title: each => each.stream,
    },
    {
      head: 'Category',
      class: 'w-120 hide-phone',
      cellClass: 'hide-phone',
      cell: each => (each.category === undefined ? <span class="faint">none</span> : <Tag>{each.category}</Tag>),
    },
    { head: 'Events', class: 'w-80 num', cell: each => quantity(each.version) },
    {
      head: 'Last position',
      class: 'w-112 hide-phone',
      cellClass: 'mono dim hide-phone',
      cell: each => `#${each.lastPosition}`,
    },
    { head: 'Last event', class: 'w-112', cellClass: 'dim', cell: each => <Ago at={each.lastEventAt} /> },
    {
      head: 'Began',
      class: 'w-148 hide-phone',
      cellClass: 'mono dim hide-phone',
      cell: each => <At at={each.createdAt} />,
    },
    { head: 'State', class: 'w-120 hide-phone', cellClass: 'hide-phone', cell: each => streamState(each.state) },
  ]
}

export function streamState(state: Stream['state']) {
  if (state === 'open') return <span class="dim">Open</span>
  return state === 'archived' ? (
    <State shape="paused" tone="rest" word="Archived" />
  ) : (
    <State shape="none" tone="rest" word="Tombstoned" />
  )
}
