/** Collections of documents, and read models of document projections. */
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { Cost } from '../parts/cost.tsx'
import { bytes, estimate, plural } from '../parts/format.ts'
import { Head, Panel, Tag } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import { useAddress, useWhere } from '../shell/where.ts'

type Collection = AnswerOf<'GET /collections'>['items'][number]

export function DocumentsPage() {
  useWhere({ label: 'Documents' })
  const address = useAddress()
  const collections = useReading('GET /collections', { query: { limit: 500 } })
  const advice = collections.data?.items.flatMap(each => each.advice.map(one => ({ ...one, of: each.name }))) ?? []
  return (
    <div class="page">
      <Head title="Documents" sub="collections, and the read models of document projections" />
      <section class="panel">
        <Show of={collections} rows={5}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="There is no collection yet">
                <p>
                  <span class="mono">defineCollection('customers')</span> in your configuration, then{' '}
                  <span class="mono">store.documents(customers).put('c-1', ada)</span>
                </p>
              </Empty>
            ) : (
              <Table
                label="Collections"
                class="stackable"
                rows={items}
                keyOf={each => each.name}
                columns={columns}
                onOpen={each => address.go(collectionUrl(each.name))}
              />
            )
          }
        </Show>
      </section>
      {advice.length > 0 && (
        <Panel title="Advice" sub="indexes that queries of this process would have used">
          <ul class="rows">
            {advice.map(each => (
              <li key={JSON.stringify(each)} class="row">
                <span>
                  <b class="medium">{each.of}</b> <span class="mono dim">{JSON.stringify(each)}</span>
                </span>
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Cost of={[collections]} />
    </div>
  )
}

export function collectionUrl(name: string): string {
  return pageUrl(`/documents/${encodeURIComponent(name)}`)
}

const columns = [
  {
    head: 'Collection',
    cellClass: 'medium c-name',
    cell: (each: Collection) => <a href={collectionUrl(each.name)}>{each.name}</a>,
  },
  {
    head: 'Kind',
    class: 'w-148',
    cell: (each: Collection) => <Tag>{each.isProjection ? 'read model' : 'collection'}</Tag>,
  },
  {
    head: 'Documents',
    class: 'w-112 num',
    cellClass: 'c-now',
    cell: (each: Collection) =>
      each.estimate === undefined ? <span class="faint">not counted</span> : estimate(each.estimate),
  },
  { head: 'Size', class: 'w-96 num', cellClass: 'dim', cell: (each: Collection) => bytes(each.bytes) },
  {
    head: 'Indexes',
    cellClass: 'dim c-msg',
    cell: (each: Collection) => (each.indexes.length === 0 ? <span class="faint">none</span> : each.indexes.join(', ')),
    title: (each: Collection) => each.indexes.join(', '),
  },
  {
    head: 'History',
    class: 'w-96',
    cellClass: 'dim',
    cell: (each: Collection) => (each.hasHistory ? 'kept' : 'not kept'),
  },
  {
    head: 'Advice',
    class: 'w-120',
    cellClass: 'dim',
    cell: (each: Collection) => (each.advice.length === 0 ? '' : plural(each.advice.length, 'index', 'indexes')),
  },
]
