/**
 * Several saves in one statement, each with its own outcome: what is only events, and documents that are made or replaced.
 *
 * It is written for the ordinary case, where every document is as its save expects it. If one is not, the statement fails,
 * names the saves it was for, and nothing is stored: those then go alone, to be told exactly what was wrong.
 *
 * The documents are written by CTEs between `save_check`, which they read, and `save_store`, which reads what they wrote;
 * so the order is that of every save. Saves that write the same kinds of changes to the same collections share a text.
 */
import type { Database } from '../database/database.ts'
import type { Statement } from '../database/sql.ts'
import type { CollectionBase } from '../documents/collection.ts'
import type { Change } from '../documents/write-many.ts'
import { expectedVersion, expectedWord } from '../events/append/prepare.ts'
import { type Append, byBytes, columnsOf, kindsOf, numbersOf, type Outcome, outcomesOf } from '../events/append/send.ts'
import type { Log } from '../events/log.ts'

/** A save that can go together with others. */
export interface Joint {
  readonly append: Append
  readonly places: readonly Place[]
  /** In the order of the places. */
  readonly changes: readonly (readonly Change[])[]
  readonly userId: string | undefined
}

/** One kind of change to one collection. */
export interface Place {
  readonly collection: CollectionBase
  readonly kind: 'insert' | 'put' | 'replace'
}

export interface JointOutcome {
  readonly outcome: Outcome
  /** Of its documents, in their order. */
  readonly versions: readonly number[]
}

/** The place of a change; undefined if it cannot go together with others. */
export function kindOf({ historyTable }: CollectionBase, { kind, expected }: Change): Place['kind'] | undefined {
  if (historyTable !== undefined) return undefined
  if (kind === 'insert') return 'insert'
  if (kind === 'put') return expected === undefined ? 'put' : 'replace'
  return undefined
}

/** The same for saves that can share a statement. */
export function shapeOf(places: readonly Place[]): string {
  return places.map(({ collection, kind }) => `${kind} ${collection.tableName}`).join(',')
}

/** Saves of one shape; no document twice among them. */
export async function sendJoint(database: Database, log: Log, saves: readonly Joint[]): Promise<JointOutcome[]> {
  const appends = saves.map(({ append }) => append)
  const documents = saves.flatMap(({ changes }, at) =>
    changes.flatMap((some, place) => some.map(({ id }) => ({ id, save: at + 1, place: place + 1 }))),
  )
  const values = [
    ...eventColumns(appends),
    documents.map(({ place }) => place),
    documents.map(({ id }) => id),
    documents.map(({ save }) => save),
    ...saves[0]!.places.flatMap((place, at) => documentColumns(saves, place, at)),
  ]
  const text = textOf(log, saves[0]!.places)
  const statement: Statement = { label: 'sessions.save', text, values }
  const [row] = await database.runArrays(statement)
  const [kinds, failed, versions, positions, written] = row as [
    string,
    string | null,
    string | null,
    number[] | null,
    (number | null)[] | null,
  ]
  const outcomes = outcomesOf(appends, {
    kinds: kindsOf(kinds),
    failedParts: numbersOf(failed ?? '{}'),
    versions: numbersOf(versions ?? '{}'),
    positions: positions ?? [],
  })
  const bySave = saves.map((): number[] => [])
  for (const [at, { save }] of documents.entries()) bySave[save - 1]!.push(written?.[at] ?? 0)
  return outcomes.map((outcome, at) => ({ outcome, versions: bySave[at]! }))
}

function eventColumns(appends: readonly Append[]): unknown[] {
  const parts = appends.flatMap(append => append.parts)
  const streams = [...new Set(parts.map(part => part.stream))].sort(byBytes)
  const streamIndex = new Map(streams.map((stream, at) => [stream, at + 1]))
  const columns = columnsOf(parts.flatMap(part => part.events))
  return [
    streams,
    appends.flatMap((append, at) => append.parts.map(() => at + 1)),
    parts.map(part => streamIndex.get(part.stream)),
    parts.map(part => expectedWord(part.expected)),
    parts.map(part => expectedVersion(part.expected)),
    parts.map(part => part.events.length),
    appends.map(() => false),
    parts.flatMap((part, at) => part.events.map(() => at + 1)),
    parts.flatMap(part => part.events.map((_, n) => n + 1)),
    columns.ids,
    columns.types,
    columns.schemaVersions,
    columns.data,
    columns.headers,
    columns.correlations,
    columns.causations,
    columns.users,
    parts.map(part => part.stream),
  ]
}

/** By id, the order everybody locks in. */
export function documentColumns(saves: readonly Joint[], { kind }: Place, at: number): unknown[] {
  const items = saves.flatMap(({ changes, userId }, save) =>
    changes[at]!.map(change => ({ ...change, save: save + 1, userId: userId ?? null })),
  )
  if (items.length > 1) items.sort((a, b) => byBytes(a.id, b.id))
  const columns: unknown[] = [
    items.map(item => item.save),
    items.map(item => item.id),
    items.map(item => item.userId),
    `[${items.map(item => item.body).join(',')}]`,
  ]
  if (kind === 'replace') columns.push(items.map(item => item.expected))
  return columns
}

const textOf = remembered(renderText)

/** Texts by shape, of each store for itself. */
export function remembered(render: (log: Log, places: readonly Place[]) => string): typeof render {
  const texts = new WeakMap<Log, Map<string, string>>()
  return (log, places) => {
    const known = texts.get(log) ?? new Map<string, string>()
    texts.set(log, known)
    const shape = shapeOf(places)
    let text = known.get(shape)
    if (text === undefined) {
      text = render(log, places)
      if (known.size >= 1000) known.clear()
      known.set(shape, text)
    }
    return text
  }
}

const eventArguments = `p_event_parts => $8::integer[],
        p_event_numbers => $9::integer[],
        p_ids => $10::uuid[],
        p_types => $11::text[],
        p_schema_versions => $12::integer[],
        p_data => $13::jsonb,
        p_headers => $14::jsonb,
        p_correlations => $15::text[],
        p_causations => $16::text[],
        p_users => $17::text[]`

function renderText({ names }: Log, places: readonly Place[]): string {
  let parameter = 21
  const ctes = places.map((place, at) => {
    const first = parameter + 1
    parameter += place.kind === 'replace' ? 5 : 4
    return `, place_${at + 1} as (
      ${writing(place, first, "checked.outcomes[item.save] = 'appended'")}
      returning d.id, d.version
    )`
  })
  const written = places.map((_, at) => `select ${at + 1} as place, id, version from place_${at + 1}`)
  return `/* sessions.save */
    with checked as materialized (
      select outcomes, failed_parts, versions, base
      from ${names.save_check}(
        p_streams => $1::text[],
        p_part_appends => $2::integer[],
        p_part_streams => $3::integer[],
        p_part_expected => $4::text[],
        p_part_versions => $5::bigint[],
        p_part_counts => $6::integer[],
        p_allow_archived => $7::boolean[],
        p_check_ids => null,
        p_keys => null,
        p_digests => null,
        p_is_simple => false,
        p_waits => false,
        ${eventArguments})
    )${ctes.join('')}, written as materialized (
      ${written.join('\n      union all\n      ')}
    ), refused as materialized (
      select string_agg(distinct item.save::text, ',') as saves
      from checked
      cross join unnest($19::integer[], $20::text[], $21::integer[]) as item(place, id, save)
      where checked.outcomes[item.save] = 'appended'
        and not exists (
          select
          from written
          where written.place = item.place
            and written.id = item.id)
    )
    select checked.outcomes::text, checked.failed_parts::text, checked.versions::text, stored.positions, (
        select jsonb_agg(written.version order by item.n)
        from unnest($19::integer[], $20::text[]) with ordinality as item(place, id, n)
        left join written
          on written.place = item.place
          and written.id = item.id)
    from checked
    cross join refused
    cross join lateral ${names.save_store}(
        p_refused => refused.saves,
        p_streams => $18::text[],
        p_base => checked.base,
        ${eventArguments}) as stored`
}

/** `condition` says whether a change is to be made, by what was checked. */
export function writing({ collection: { table }, kind }: Place, first: number, condition: string): string {
  const [save, id, by, body, expected] = [0, 1, 2, 3, 4].map(n => `$${first + n}`)
  if (kind === 'replace')
    return `update ${table} as d
      set version = d.version + 1,
        updated_at = now(),
        updated_by = item.by,
        body = item.body
      from checked
      cross join rows from (
        unnest(${save}::integer[], ${id}::text[], ${by}::text[], ${expected}::bigint[]),
        jsonb_array_elements(${body}::jsonb)) as item(save, id, by, expected, body)
      where d.id = item.id
        and d.version = item.expected
        and d.deleted_at is null
        and ${condition}`
  const conflict =
    kind === 'insert'
      ? 'do nothing'
      : `do update
      set version = d.version + 1,
        updated_at = now(),
        deleted_at = null,
        updated_by = excluded.updated_by,
        body = excluded.body`
  return `insert into ${table} as d (version, created_at, updated_at, id, created_by, updated_by, body)
      select 1, now(), now(), item.id, item.by, item.by, item.body
      from checked
      cross join rows from (
        unnest(${save}::integer[], ${id}::text[], ${by}::text[]),
        jsonb_array_elements(${body}::jsonb)) as item(save, id, by, body)
      where ${condition}
      order by item.id collate "C"
      on conflict (id) ${conflict}`
}
