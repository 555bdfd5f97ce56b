/** The documents of one collection: a filter in JSON, a page at a time, and the plan of the query. */

import { useState } from 'preact/hooks'
import { useRoute } from 'preact-iso'
import { request } from '../api/api.ts'
import { pageUrl } from '../api/place.ts'
import { refusalOf, useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { OneLine } from '../json/view.tsx'
import { Code, copyText } from '../parts/copy.tsx'
import { Cost } from '../parts/cost.tsx'
import { Icon, Shape } from '../parts/icon.tsx'
import { faultOf } from '../parts/json-field.tsx'
import { Ago, Button, Head, Panel } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { useAddress, useWhere } from '../shell/where.ts'
import { FilterBuilder } from './filter-builder.tsx'
import { download } from './stream-export.ts'

export function CollectionPage() {
  const name = useRoute().params.name ?? ''
  useWhere({ label: 'Documents', path: '/documents' }, { label: name })
  const address = useAddress()
  const { filter, after, paths, deleted } = address.query
  const fault = filter === undefined ? undefined : faultOf(filter)
  const asked = filter === undefined || fault !== undefined ? undefined : (JSON.parse(filter) as unknown)
  const documents = useReading('POST /collections/:name/query', {
    parameters: { name },
    body: {
      ...(asked !== undefined && { filter: asked }),
      ...(after !== undefined && { after }),
      ...(deleted !== undefined && { includeDeleted: true }),
      limit: 100,
    },
  })
  const collections = useReading('GET /collections', { query: { limit: 500 } })
  const isProjection = collections.data?.items.find(each => each.name === name)?.isProjection === true
  const rows = documents.data?.items ?? []
  const url = (id: string): string => pageUrl(`/documents/${encodeURIComponent(name)}/${encodeURIComponent(id)}`)
  return (
    <div class="page">
      <Head title={name} sub="documents by id">
        {isProjection && (
          <a class="btn btn-bare" href={pageUrl(`/projections/${encodeURIComponent(name)}`)}>
            Its projection <Icon name="right" />
          </a>
        )}
        <Button
          refused={rows.length === 0 ? 'there is nothing to export' : undefined}
          onClick={() => exportPage(name, rows)}
        >
          Export the page
        </Button>
      </Head>
      <FilterForm
        name={name}
        initial={filter ?? ''}
        onFilter={text => address.push({ filter: text === '' ? undefined : text, after: undefined })}
      />
      <section class="panel">
        <header class="shown-paths">
          <label for="paths">Columns</label>
          <input
            id="paths"
            class="input mono"
            placeholder="all in one, or paths: name, address.city"
            value={paths ?? ''}
            spellcheck={false}
            onChange={event => address.replace({ paths: event.currentTarget.value.trim() || undefined })}
          />
          <label class="check">
            <input
              type="checkbox"
              checked={deleted !== undefined}
              onChange={event =>
                address.push({ deleted: event.currentTarget.checked ? 1 : undefined, after: undefined })
              }
            />
            Deleted ones, too
          </label>
        </header>
        <Show of={documents} rows={10}>
          {({ items, next }) =>
            items.length === 0 ? (
              <Empty title={filter === undefined ? 'It has no documents' : 'No document matches'}>
                {filter !== undefined && (
                  <p>
                    <a class="link" href={address.with({ filter: undefined })}>
                      Remove the filter
                    </a>
                  </p>
                )}
              </Empty>
            ) : (
              <>
                <Table
                  label={`Documents of ${name}`}
                  class="stackable"
                  rows={items}
                  keyOf={each => each.id}
                  onOpen={each => address.go(url(each.id))}
                  columns={[
                    {
                      head: 'Id',
                      class: 'w-180',
                      cellClass: 'mono c-name',
                      cell: each => <a href={url(each.id)}>{each.id}</a>,
                      title: each => each.id,
                    },
                    { head: 'Version', class: 'w-72 num', cellClass: 'dim c-now', cell: each => each.version },
                    ...dataColumns(paths),
                    { head: 'Changed', class: 'w-96', cellClass: 'dim', cell: each => <Ago at={each.updatedAt} /> },
                  ]}
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
      <Cost of={[documents]} />
    </div>
  )
}

type Shown = AnswerOf<'POST /collections/:name/query'>['items'][number]

/** The paths that the address names, each a column; without any, the document on one line. */
function dataColumns(paths: string | undefined): Column<Shown>[] {
  const chosen = (paths ?? '').split(',').flatMap(path => path.trim() || [])
  if (chosen.length === 0)
    return [
      {
        head: 'Data',
        cellClass: 'oneline c-msg',
        cell: each =>
          each.deletedAt === undefined ? <OneLine value={each.data} /> : <span class="faint">deleted</span>,
      },
    ]
  return chosen.map(path => ({
    head: path,
    cellClass: 'oneline c-msg',
    cell: each => {
      const value = valueAt(each.data, path)
      if (value === undefined) return <span class="faint">–</span>
      return typeof value === 'object' && value !== null ? <OneLine value={value} /> : String(value)
    },
  }))
}

function valueAt(data: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>((value, part) => (value as Record<string, unknown> | null | undefined)?.[part], data)
}

function exportPage(name: string, rows: readonly Shown[]): void {
  download(`${name}.ndjson`, `${rows.map(each => JSON.stringify(each)).join('\n')}\n`)
}

/** The same query in a program. */
function asCode(name: string, filter: string): string {
  const where = filter.trim() === '' ? '' : `\n  .where(filterFrom(${filter.trim()}))`
  return `const page = await store.documents('${name}')\n  .query()${where}\n  .page({ limit: 100 })`
}

function FilterForm({ name, initial, onFilter }: { name: string; initial: string; onFilter: (text: string) => void }) {
  const [text, setText] = useState(initial)
  const [plan, setPlan] = useState<string | undefined>(undefined)
  const fault = text.trim() === '' ? undefined : faultOf(text)
  const explain = async (): Promise<void> => {
    try {
      const { data } = await request('POST /collections/:name/explain', {
        parameters: { name },
        body: text.trim() === '' ? {} : { filter: JSON.parse(text) as unknown },
      })
      setPlan(data.plan)
    } catch (error) {
      setPlan(refusalOf(error).message)
    }
  }
  return (
    <>
      <form
        class="filter"
        role="search"
        onSubmit={event => {
          event.preventDefault()
          if (fault === undefined) onFilter(text.trim())
        }}
      >
        <Icon name="filter" />
        <input
          class="mono"
          aria-label="Filter"
          aria-invalid={fault !== undefined}
          placeholder='{ "status": "shipped", "cents": { "$gt": 1000 } }'
          value={text}
          spellcheck={false}
          onInput={event => setText(event.currentTarget.value)}
        />
        {fault !== undefined && (
          <span class="err-text mini">
            <Shape name="failed" /> {fault}
          </span>
        )}
        <Button small kind="bare" refused={fault} onClick={() => copyText(asCode(name, text))}>
          TypeScript
        </Button>
        <Button small kind="bare" refused={fault} onClick={() => void explain()}>
          Explain
        </Button>
        <Button small type="submit" refused={fault}>
          Filter
        </Button>
      </form>
      <FilterBuilder text={text} onText={setText} />
      {plan !== undefined && (
        <Panel
          title="Plan"
          end={<Button kind="bare" small icon="close" label="Close" onClick={() => setPlan(undefined)} />}
        >
          <div class="pad">
            <Code text={plan} />
          </div>
        </Panel>
      )}
    </>
  )
}
