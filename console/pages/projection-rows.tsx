/** The rows of a read model by primary key, and a rehearsal: the rows that the code of this process would change. */
import { useState } from 'preact/hooks'
import { useReading } from '../api/reading.ts'
import type { AnswerOf } from '../api/routes.ts'
import { diffLines } from '../json/diff.ts'
import { nodeOf } from '../json/json.ts'
import { DiffView, OneLine } from '../json/view.tsx'
import { plural, quantity, relative } from '../parts/format.ts'
import { Shape } from '../parts/icon.tsx'
import { Button, Choose, Panel } from '../parts/parts.tsx'
import { Empty, Show } from '../parts/reading.tsx'
import { Table } from '../parts/table.tsx'
import type { Operation } from './operation-lines.tsx'

type RowPage = AnswerOf<'GET /projections/:name/rows'>

export function RowsPanel({ name }: { name: string }) {
  const [table, setTable] = useState<string | undefined>(undefined)
  const [after, setAfter] = useState<string | undefined>(undefined)
  const rows = useReading('GET /projections/:name/rows', { parameters: { name }, query: { table, after, limit: 50 } })
  const tables = rows.data?.tables ?? []
  return (
    <Panel
      title="Rows"
      sub="by primary key"
      end={
        tables.length > 1 ? (
          <Choose
            label="Table"
            value={table ?? tables[0]!}
            onChoose={value => {
              setTable(value)
              setAfter(undefined)
            }}
            choices={tables.map(value => ({ value, label: value }))}
          />
        ) : undefined
      }
    >
      <Show of={rows} rows={4}>
        {page =>
          page.items.length === 0 ? (
            <Empty title="It has no rows">
              <p>They appear when an event of its types is applied.</p>
            </Empty>
          ) : (
            <>
              <Table
                label={`Rows of ${name}`}
                rows={page.items.map((row, at) => ({
                  row,
                  key: `${at} ${page.primaryKey.map(key => row[key]).join(' ')}`,
                }))}
                keyOf={each => each.key}
                columns={columnsOf(page)}
              />
              {(page.next !== null || after !== undefined) && (
                <footer>
                  {after !== undefined && (
                    <Button small kind="bare" onClick={() => setAfter(undefined)}>
                      First page
                    </Button>
                  )}
                  {page.next !== null && (
                    <span class="push">
                      <Button small kind="bare" onClick={() => setAfter(page.next ?? undefined)}>
                        Next page
                      </Button>
                    </span>
                  )}
                </footer>
              )}
            </>
          )
        }
      </Show>
    </Panel>
  )
}

const maxColumns = 5

/** The key first, then values; a document is one line. */
function columnsOf({ items, primaryKey }: RowPage) {
  const names = Object.keys(items[0] ?? {})
  const ordered = [...primaryKey, ...names.filter(name => !primaryKey.includes(name) && !hidden.has(name))]
  return ordered.slice(0, maxColumns).map((name, at) => ({
    head: name,
    class: at === 0 ? 'w-180' : isNumber(items, name) ? 'w-112 num' : name === 'body' ? '' : 'w-148',
    cellClass: at === 0 ? 'mono medium' : 'mono dim oneline',
    cell: ({ row }: { row: RowPage['items'][number] }) => shownValue(row[name]),
  }))
}

const hidden = new Set(['created_at', 'updated_at', 'deleted_at', 'created_by', 'updated_by'])

function isNumber(items: RowPage['items'], name: string): boolean {
  return typeof items[0]?.[name] === 'number'
}

function shownValue(value: unknown) {
  if (value === null || value === undefined) return <span class="faint">null</span>
  if (typeof value === 'number') return quantity(value)
  return typeof value === 'object' ? <OneLine value={value} /> : String(value)
}

interface Rehearsed {
  readonly isExact: boolean
  readonly position: number
  readonly tables: readonly {
    readonly table: string
    readonly same: number
    readonly added: number
    readonly removed: number
    readonly changed: number
    readonly examples: readonly { readonly before?: object; readonly after?: object }[]
  }[]
}

const shownExamples = 20

/** The newest rehearsal of a projection, if this process has one. */
export function RehearsalPanel({ name }: { name: string }) {
  const operations = useReading('GET /operations', { everyMs: 2000 })
  const found = operations.data?.items.find(
    (each: Operation) => each.kind === 'rehearse' && each.target === name && each.state === 'done',
  )
  if (found === undefined) return null
  const { tables, isExact, position } = found.result as Rehearsed
  const different = tables.reduce((sum, each) => sum + each.added + each.removed + each.changed, 0)
  return (
    <Panel
      title="Rehearsal"
      sub={`at #${position}${found.endedAt === undefined ? '' : `, ${relative(found.endedAt)}`}`}
    >
      <div class="pad stack-2">
        <p>
          <Shape name={different === 0 ? 'done' : 'retrying'} tone={different === 0 ? 'tone-good' : 'tone-warn'} />{' '}
          <b class="medium">
            {different === 0
              ? 'A rebuild would change nothing.'
              : `A rebuild would change ${plural(different, 'row')}.`}
          </b>{' '}
          {!isExact && (
            <span class="dim">The projection was behind, so rows of the newest events may be among them.</span>
          )}
        </p>
        {tables.map(({ table, same, added, removed, changed, examples }) => (
          <div class="stack-2" key={table}>
            <p class="dim">
              <span class="mono">{table}</span>: {quantity(changed)} changed, {quantity(added)} added,{' '}
              {quantity(removed)} removed, {quantity(same)} the same
            </p>
            {examples.slice(0, shownExamples).map(({ before, after }, at) => (
              <DiffView key={`${table} ${at}`} lines={diffLines(nodeOf(before ?? null), nodeOf(after ?? null)).lines} />
            ))}
          </div>
        ))}
      </div>
    </Panel>
  )
}
