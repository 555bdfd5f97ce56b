/** The chosen streams of a copy: their events first, a page each, then their rows; then what hangs on them. */
import { category } from '../../core/name.ts'
import { Identifier, numeral, type Statement, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import type { Place } from '../place.ts'
import type { TableShape } from '../table-shape.ts'
import { type Copy, firstKey, type Step } from './copy.ts'
import { inserting } from './load.ts'
import { listOfLines, type PageLine, readLines, readPage } from './pages.ts'

/** A stream to be chosen, or not. */
export interface SelectedStream {
  readonly id: string
  readonly category: string | undefined
  readonly version: number
  readonly createdAt: Date
  readonly isArchived: boolean
  /** Its first event, which often says whose it is. */
  readonly first: { readonly type: string; readonly data: unknown; readonly headers: unknown }
}

export type Shapes = ReadonlyMap<string, TableShape>

export async function copyStreams(
  copy: Copy,
  shapes: Shapes,
  isChosen: (stream: SelectedStream) => boolean,
  onStep: Step,
): Promise<void> {
  while (!copy.state.done.includes('streams')) {
    onStep('copy', 'events')
    const found = await readStreams(copy)
    const names = found.filter(isChosen).map(stream => stream.id)
    if (names.length > 0) await copyEvents(copy, shapes.get('events')!, names, onStep)
    const rows = names.length === 0 ? [] : await streamLines(copy, names)
    const last = found.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, 'streams'], after: '' } : { after: last.id }
    await copy.write({ ...change, afterEvent: firstKey, streams: copy.state.streams + rows.length }, async tx => {
      if (rows.length > 0) await tx.run(inserting(copy.target.schema, shapes.get('streams')!, listOfLines(rows)))
    })
  }
}

const streamsAtOnce = 500

/** The next ones that had events when the copy began, so that a run that goes on sees the same. */
async function readStreams({ source, state }: Copy): Promise<SelectedStream[]> {
  const names = logNames(source.schema)
  const rows = await source.database.run<{
    stream: string
    version: number
    created_at: Date
    is_archived: boolean
    type: string
    data: unknown
    headers: unknown
  }>(sql`/* archive.streams */
    select s.stream, l.version, s.created_at, s.archived_at is not null as is_archived, f.type, f.data, f.headers
    from ${names.streams} as s
    cross join lateral (
      select e.type, e.data, e.headers
      from ${names.events} as e
      where e.stream = s.stream
        and e.position <= ${state.position}::bigint
      order by e.version
      limit 1) as f
    cross join lateral (${lastVersion(source, state.position)}) as l
    where s.stream > ${state.after}::text
    order by s.stream
    limit ${streamsAtOnce}::integer`)
  return rows.map(row => ({
    id: row.stream,
    category: category(row.stream),
    version: Number(row.version),
    createdAt: row.created_at,
    isArchived: row.is_archived,
    first: { type: row.type, data: row.data, headers: row.headers },
  }))
}

function lastVersion(source: Place, position: string): Identifier {
  const { events } = logNames(source.schema)
  return new Identifier(`select e.version
      from ${events} as e
      where e.stream = s.stream
        and e.position <= ${numeral(Number(position))}
      order by e.version desc
      limit 1`)
}

async function copyEvents(copy: Copy, table: TableShape, names: readonly string[], onStep: Step): Promise<void> {
  for (;;) {
    const request = { name: 'stream', after: copy.state.afterEvent, among: names, where: settledIn(copy) }
    const page = await readPage(copy.source, table, { ...request, limit: copy.source.database.batch.readEvents })
    const last = page.at(-1)
    if (last === undefined) return
    await copy.write({ afterEvent: last.key, events: copy.state.events + page.length }, async tx => {
      await tx.run(inserting(copy.target.schema, table, listOfLines(page)))
    })
    onStep('copy', 'events')
  }
}

/** The events that are copied at all. */
export function settledIn({ state }: Copy): Identifier {
  return new Identifier(`position <= ${numeral(Number(state.position))}`)
}

/** The rows of streams as the target has them: at the version of the last event that is copied. */
export function streamLines({ source, state }: Copy, names: readonly string[]): Promise<PageLine[]> {
  return readLines(source, rowsOfStreams(source, state.position, names))
}

function rowsOfStreams(source: Place, position: string, names: readonly string[]): Statement {
  return sql`/* archive.stream_rows */
    select r.stream, r.version, row_to_json(r)::text
    from (
      select l.version, s.created_at, s.archived_at, s.tombstoned_at, s.stream, s.reason
      from ${logNames(source.schema).streams} as s
      cross join lateral (${lastVersion(source, position)}) as l
      where s.stream = any(${names}::text[])
      order by s.stream) as r`
}

/** Aliases of streams, and keys of appends, that came along. */
export async function copyRelated(copy: Copy, shapes: Shapes, onStep: Step): Promise<void> {
  const { streams, events } = logNames(copy.target.schema)
  const ofAlias = `exists (select from ${streams} as s where s.stream = r.stream)`
  const ofKey = `cardinality(r.event_ids) > 0 and not exists (
      select
      from unnest(r.event_ids) as u(id)
      where not exists (select from ${events} as e where e.event_id = u.id))`
  await copyWhere(copy, shapes.get('stream_aliases')!, 'alias', new Identifier(ofAlias), onStep)
  await copyWhere(copy, shapes.get('idempotency_keys')!, 'key', new Identifier(ofKey), onStep)
}

async function copyWhere(
  copy: Copy,
  table: TableShape,
  name: string,
  condition: Identifier,
  onStep: Step,
): Promise<void> {
  while (!copy.state.done.includes(table.name)) {
    onStep('copy', table.name)
    const limit = copy.source.database.batch.readEvents
    const page = await readPage(copy.source, table, { name, after: [copy.state.after, '0'], limit })
    const last = page.at(-1)
    const change = last === undefined ? { done: [...copy.state.done, table.name], after: '' } : { after: last.key[0] }
    await copy.write(change, async tx => {
      if (page.length > 0) await tx.run(inserting(copy.target.schema, table, listOfLines(page), condition))
    })
  }
}
