/** One save to one stream, the shortest way: as several in one statement, without what several need. */
import type { Database } from '../database/database.ts'
import type { Log } from '../events/log.ts'
import { expectedNumber } from '../events/prepare.ts'
import { columnsOf } from '../events/send.ts'
import { documentColumns, type Joint, type JointOutcome, type Place, remembered, writing } from './joint.ts'

export async function sendLone(database: Database, log: Log, save: Joint): Promise<JointOutcome> {
  const { append, places, changes } = save
  const { stream, expected, events } = append.parts[0]!
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
  const [row] = await database.runArrays({ label: 'sessions.save_one', text: textOf(log, places), values })
  const [code, version, positions, written] = row as [
    number,
    bigint,
    bigint[] | null,
    [number, string, number][] | null,
  ]
  const versionOf = new Map((written ?? []).map(([place, id, made]) => [`${place} ${id}`, made]))
  const versions = changes.flatMap((some, at) => some.map(({ id }) => versionOf.get(`${at + 1} ${id}`) ?? 0))
  const last = positions?.at(-1)
  const outcome = { code, failedPart: 0, versions: [Number(version)], positions: last === undefined ? [] : [last] }
  return { outcome, versions }
}

const textOf = remembered(renderText)

function renderText({ names }: Log, places: readonly Place[]): string {
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
      select outcome, at_version
      from ${names.save_one_check}($1::text, $2::bigint, $3::integer, $5::text[])
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
