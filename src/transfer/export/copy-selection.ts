/**
 * Copies the selected streams and documents, page by page. Each page is one transaction on the target, which also stores
 * how far the copy is.
 *
 *     copyStreams     per page of streams: the events of the selected ones, then their rows
 *     copyRelated     aliases and idempotency keys of the streams that were copied
 *     copyDocuments   the selected documents of a collection, then their histories
 */
import { InvalidOption } from '../../core/errors.ts'
import { category } from '../../core/name.ts'
import { maxPageBytes } from '../../core/page.ts'
import { Identifier, numeral, type Statement, sql } from '../../database/sql.ts'
import { historyName } from '../../documents/table.ts'
import { logNames } from '../../events/log.ts'
import type { Shapes, TableShape } from '../table-shape.ts'
import type { StoreLocation } from '../transfer.ts'
import { firstKey, insertRows, jsonArray, type PageRow, readPage, readRows, rowsWhere } from './rows.ts'
import type { OnStep, SelectionCopy } from './selection.ts'

/** A stream that may be selected. */
export interface SelectedStream {
  readonly id: string
  readonly category: string | undefined
  readonly version: number
  readonly createdAt: Date
  readonly isArchived: boolean
  /** Its first event, which often says to whom the stream belongs. */
  readonly first: { readonly type: string; readonly data: unknown; readonly headers: unknown }
}

/** A document that may be selected. */
export interface SelectedDocument {
  readonly id: string
  readonly version: number
  readonly data: unknown
  readonly isDeleted: boolean
}

const streamsPerPage = 500
const documentsPerPage = 100

export async function copyStreams(
  copy: SelectionCopy,
  shapes: Shapes,
  isSelected: (stream: SelectedStream) => boolean,
  onStep: OnStep,
): Promise<void> {
  while (!copy.state.done.includes('streams')) {
    onStep('copying', 'events')
    const found = await readStreams(copy)
    const names = found.filter(isSelected).map(stream => stream.id)
    if (names.length > 0) await copyEvents(copy, shapes.get('events')!, names, onStep)
    const rows = names.length === 0 ? [] : await readStreamRows(copy, names)
    const last = found.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, 'streams'], after: '' } : { after: last.id }
    await copy.write({ ...change, afterEvent: firstKey, streams: copy.state.streams + rows.length }, async tx => {
      if (rows.length > 0) await tx.run(insertRows(copy.target.schema, shapes.get('streams')!, jsonArray(rows)))
    })
  }
}

/**
 * The next streams that had events when the copy began, so that a call that resumes it sees the same streams. A page of them
 * ends with the first event that reaches `maxPageBytes`.
 */
async function readStreams({ source, state }: SelectionCopy): Promise<SelectedStream[]> {
  const names = logNames(source.schema)
  const rows = await source.database.run<{
    stream: string
    version: number
    created_at: Date
    is_archived: boolean
    type: string
    data: unknown
    headers: unknown
  }>(sql`/* selection.streams */
    select stream, version, created_at, is_archived, type, data, headers
    from (
      select found.*, sum(bytes) over (order by stream rows unbounded preceding) as total
      from (
        select s.stream, l.version, s.created_at, s.archived_at is not null as is_archived, f.*
        from ${names.streams} as s
        cross join lateral (
          select e.type, e.data, e.headers, e.bytes
          from ${names.events} as e
          where e.stream = s.stream
            and e.position <= ${state.position}::bigint
          order by e.version
          limit 1) as f
        cross join lateral (${lastVersion(source, state.position)}) as l
        where s.stream > ${state.after}::text
        order by s.stream
        limit ${streamsPerPage}::integer) as found) as page
    where total - bytes < ${numeral(maxPageBytes)}
    order by stream`)
  return rows.map(row => ({
    id: row.stream,
    category: category(row.stream),
    version: Number(row.version),
    createdAt: row.created_at,
    isArchived: row.is_archived,
    first: { type: row.type, data: row.data, headers: row.headers },
  }))
}

/** The version of a stream `s` at the position up to which events are copied. */
function lastVersion(source: StoreLocation, position: number): Identifier {
  const { events } = logNames(source.schema)
  return new Identifier(`select e.version
      from ${events} as e
      where e.stream = s.stream
        and e.position <= ${numeral(position)}
      order by e.version desc
      limit 1`)
}

async function copyEvents(
  copy: SelectionCopy,
  table: TableShape,
  names: readonly string[],
  onStep: OnStep,
): Promise<void> {
  for (;;) {
    const request = { name: 'stream', after: copy.state.afterEvent, among: names, where: upToPosition(copy) }
    const limit = copy.source.database.batch.readEvents
    const { rows: page } = await readPage(copy.source, table, { ...request, limit })
    const last = page.at(-1)
    if (last === undefined) return
    await copy.write({ afterEvent: last.key, events: copy.state.events + page.length }, async tx => {
      await tx.run(insertRows(copy.target.schema, table, jsonArray(page)))
    })
    onStep('copying', 'events')
  }
}

/** The condition that an event is copied at all. */
export function upToPosition({ state }: SelectionCopy): Identifier {
  return new Identifier(`position <= ${numeral(state.position)}`)
}

/** The rows of streams as the target has them: at the version of the last event that is copied. */
export function readStreamRows({ source, state }: SelectionCopy, names: readonly string[]): Promise<PageRow[]> {
  return readRows(source, streamRows(source, state.position, names))
}

function streamRows(source: StoreLocation, position: number, names: readonly string[]): Statement {
  return sql`/* selection.stream_rows */
    select r.stream, r.version, row_to_json(r)::text
    from (
      select l.version, s.created_at, s.archived_at, s.tombstoned_at, s.stream, s.reason
      from ${logNames(source.schema).streams} as s
      cross join lateral (${lastVersion(source, position)}) as l
      where s.stream = any(${names}::text[])
      order by s.stream) as r`
}

/** Copies the aliases of the streams that were copied, and the idempotency keys of appends that were copied whole. */
export async function copyRelated(copy: SelectionCopy, shapes: Shapes, onStep: OnStep): Promise<void> {
  const { streams, events } = logNames(copy.target.schema)
  const hasStream = `exists (select from ${streams} as s where s.stream = r.stream)`
  const hasAllEvents = `cardinality(r.event_ids) > 0 and not exists (
      select
      from unnest(r.event_ids) as u(id)
      where not exists (select from ${events} as e where e.event_id = u.id))`
  await copyWhere(copy, shapes.get('stream_aliases')!, 'alias', new Identifier(hasStream), onStep)
  await copyWhere(copy, shapes.get('idempotency_keys')!, 'key', new Identifier(hasAllEvents), onStep)
}

async function copyWhere(
  copy: SelectionCopy,
  table: TableShape,
  name: string,
  condition: Identifier,
  onStep: OnStep,
): Promise<void> {
  while (!copy.state.done.includes(table.name)) {
    onStep('copying', table.name)
    const limit = copy.source.database.batch.readEvents
    const { rows: page } = await readPage(copy.source, table, { name, after: [copy.state.after, '0'], limit })
    const last = page.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, table.name], after: '' } : { after: last.key[0] }
    await copy.write(change, async tx => {
      const rows = page.length === 0 ? [] : await rowsWhere(tx, copy.target.schema, table, page, condition)
      if (rows.length > 0) await tx.run(insertRows(copy.target.schema, table, jsonArray(rows)))
    })
  }
}

/** The table of a collection, and that of its history if it has one. */
export function documentTables(shapes: Shapes, collection: string): TableShape[] {
  const table = shapes.get(collection)
  const isCollection = ['id', 'version', 'deleted_at', 'body'].every(
    name => table?.columns.some(column => column.name === name) === true,
  )
  if (table === undefined || !isCollection)
    throw new InvalidOption({
      option: 'select.collections',
      reason: `The option "select.collections" names "${collection}", which is not a collection of the source. Check the name.`,
    })
  const history = shapes.get(historyName(collection))
  return history === undefined ? [table] : [table, history]
}

export async function copyDocuments(
  copy: SelectionCopy,
  shapes: Shapes,
  collection: string,
  isSelected: (document: SelectedDocument) => boolean,
  onStep: OnStep,
): Promise<void> {
  const part = `documents ${collection}`
  const [table, history] = documentTables(shapes, collection)
  while (!copy.state.done.includes(part)) {
    onStep('copying', collection)
    const after = [copy.state.after, maxVersion] as const
    const { rows: page } = await readPage(copy.source, table!, { name: 'id', after, limit: documentsPerPage })
    const selected = page.filter(({ line }) => isSelected(documentOf(line)))
    const last = page.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, part], after: '' } : { after: last.key[0] }
    await copy.write({ ...change, documents: copy.state.documents + selected.length }, async tx => {
      if (selected.length > 0) await tx.run(insertRows(copy.target.schema, table!, jsonArray(selected)))
    })
  }
  if (history !== undefined) await copyHistory(copy, table!, history, onStep)
}

/** After a name with this version come only other names. */
const maxVersion = `${Number.MAX_SAFE_INTEGER}`

function documentOf(line: string): SelectedDocument {
  const { id, version, body, deleted_at: deletedAt } = JSON.parse(line)
  return { id, version, data: body, isDeleted: deletedAt !== null }
}

/** Copies the earlier versions of the documents that are in the target by now. */
async function copyHistory(copy: SelectionCopy, table: TableShape, history: TableShape, onStep: OnStep): Promise<void> {
  while (!copy.state.done.includes(history.name)) {
    const after = [copy.state.after, maxVersion] as const
    const { rows } = await readPage(copy.target, table, { name: 'id', after, limit: documentsPerPage })
    const ids = rows.map(({ key }) => key[0])
    while (ids.length > 0) {
      onStep('copying', history.name)
      const request = { name: 'id', after: copy.state.afterEvent, among: ids, limit: documentsPerPage }
      const { rows: page } = await readPage(copy.source, history, request)
      const last = page.at(-1)
      if (last === undefined) break
      await copy.write({ afterEvent: last.key }, async tx => {
        await tx.run(insertRows(copy.target.schema, history, jsonArray(page)))
      })
    }
    const last = ids.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, history.name], after: '' } : { after: last }
    await copy.write({ ...change, afterEvent: firstKey }, async () => {})
  }
}
