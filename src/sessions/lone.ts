/** One save to one stream or to none, the shortest way: as several in one statement, without what several need. */
import type { Database } from '../database/database.ts'
import { expectedNumber, type Part } from '../events/append/prepare.ts'
import { columnsOf } from '../events/append/send.ts'
import type { Log } from '../events/log.ts'
import { documentColumns, type Joint, type JointOutcome, type Place, remembered, writing } from './joint.ts'

export async function sendLone(database: Database, log: Log, save: Joint): Promise<JointOutcome> {
  const { append, places, changes } = save
  const { stream, expected, events } = append.parts[0] ?? noPart
  const columns = columnsOf(events)
  const values = [
    stream,
    expectedNumber(expected),
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
  const [code, version, positions, written] = row as [number, number | null, number[] | null, Written[] | null]
  const versionOf = new Map((written ?? []).map(([place, id, made]) => [`${place} ${id}`, made]))
  const versions = changes.flatMap((some, at) => some.map(({ id }) => versionOf.get(`${at + 1} ${id}`) ?? 0))
  const last = positions?.at(-1)
  const outcome = { code, failedPart: 0, versions: [Number(version ?? 0)], positions: last === undefined ? [] : [last] }
  return { outcome, versions }
}

const noPart: Part = { stream: '', expected: 'any', events: [] }

/** Place, id, version. */
type Written = [number, string, number]

const eventsText = remembered((log, places) =>
  renderText(
    log,
    places,
    `select outcome, at_version
      from ${log.names.save_one_check}($1::text, $2::bigint, $3::integer, $5::text[])`,
  ),
)

/** Nothing to check; and no stream, so no version. */
const documentsText = remembered((log, places) =>
  renderText(
    log,
    places,
    `select 0 as outcome, nullif($2::bigint, $2::bigint) as at_version
      from set_config('lock_timeout', '50ms', true)`,
  ),
)

function renderText({ names }: Log, places: readonly Place[], check: string): string {
  let parameter = 14
  const ctes = places.map((place, at) => {
    const first = parameter + 1
    parameter += place.kind === 'replace' ? 5 : 4
    return `, place_${at + 1} as (
      ${writing(place, first, 'checked.outcome = 0')}
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
    select checked.outcome, checked.at_version, stored.positions, written.documents
    from checked
    cross join written
    cross join lateral ${names.save_store}(
      case when checked.outcome = 0 and written.count < $12::integer then '1' end,
      array[$1::text],
      case when checked.outcome = 0 then array[checked.at_version - $3::integer] end,
      $13::integer[], $14::integer[], $4::uuid[], $5::text[],
      $6::integer[], $7::jsonb, $8::jsonb, $9::text[], $10::text[], $11::text[]) as stored`
}
