/** One save to one stream or to none, the shortest way: as several in one statement, without what several need. */
import type { Database } from '../database/database.ts'
import { expectedVersion, expectedWord, type Part } from '../events/append/prepare.ts'
import { columnsOf, type OutcomeKind } from '../events/append/send.ts'
import type { Log } from '../events/log.ts'
import { documentColumns, type Joint, type JointOutcome, type Place, remembered, writing } from './joint.ts'

export async function sendLone(database: Database, log: Log, save: Joint): Promise<JointOutcome> {
  const { append, places, changes } = save
  const { stream, expected, events } = append.parts[0] ?? noPart
  const columns = columnsOf(events)
  const values = [
    stream,
    expectedWord(expected),
    expectedVersion(expected),
    events.length,
    columns.ids,
    columns.types,
    columns.schemaVersions,
    columns.data,
    columns.headers,
    columns.correlations,
    columns.causations,
    columns.users,
    changes.reduce((sum, some) => sum + some.length, 0),
    events.map(() => 1),
    events.map((_, n) => n + 1),
    ...places.flatMap((place, at) => documentColumns([save], place, at)),
  ]
  const text = (append.parts.length === 0 ? documentsText : eventsText)(log, places)
  const [row] = await database.runArrays({ label: 'sessions.save_one', text, values })
  const [kind, version, positions, written] = row as [OutcomeKind, number | null, number[] | null, Written[] | null]
  const versionOf = new Map((written ?? []).map(([place, id, made]) => [`${place} ${id}`, made]))
  const versions = changes.flatMap((some, at) => some.map(({ id }) => versionOf.get(`${at + 1} ${id}`) ?? 0))
  const last = positions?.at(-1)
  const outcome = { kind, failedPart: 0, versions: [Number(version ?? 0)], positions: last === undefined ? [] : [last] }
  return { outcome, versions }
}

const noPart: Part = { stream: '', expected: 'any', events: [] }

/** Place, id, version. */
type Written = [number, string, number]

const eventsText = remembered((log, places) =>
  renderText(
    log,
    places,
    `select outcome, version
      from ${log.names.save_one_check}(
        p_stream => $1::text,
        p_expected => $2::text,
        p_version => $3::bigint,
        p_count => $4::integer,
        p_types => $6::text[])`,
  ),
)

/** Nothing to check; and no stream, so no version. */
const documentsText = remembered((log, places) =>
  renderText(
    log,
    places,
    `select 'appended' as outcome, null::bigint as version
      from set_config('lock_timeout', '50ms', true)
      where $2::text is not null
        and $3::bigint is null`,
  ),
)

function renderText({ names }: Log, places: readonly Place[], check: string): string {
  let parameter = 15
  const ctes = places.map((place, at) => {
    const first = parameter + 1
    parameter += place.kind === 'replace' ? 5 : 4
    return `, place_${at + 1} as (
      ${writing(place, first, "checked.outcome = 'appended'")}
      returning d.id, d.version
    )`
  })
  const written = places.map((_, at) => `select ${at + 1} as place, id, version from place_${at + 1}`)
  return `/* sessions.save_one */
    with checked as materialized (
      ${check}
    )${ctes.join('')}, written as materialized (
      select count(*) as count, jsonb_agg(jsonb_build_array(w.place, w.id, w.version)) as documents
      from (
        ${written.join('\n        union all\n        ')}) as w
    )
    select checked.outcome, checked.version, stored.positions, written.documents
    from checked
    cross join written
    cross join lateral ${names.save_store}(
      p_refused => case when checked.outcome = 'appended' and written.count < $13::integer then '1' end,
      p_streams => array[$1::text],
      p_base => case when checked.outcome = 'appended' then array[checked.version - $4::integer] end,
      p_event_parts => $14::integer[],
      p_event_numbers => $15::integer[],
      p_ids => $5::uuid[],
      p_types => $6::text[],
      p_schema_versions => $7::integer[],
      p_data => $8::jsonb,
      p_headers => $9::jsonb,
      p_correlations => $10::text[],
      p_causations => $11::text[],
      p_users => $12::text[]) as stored`
}
