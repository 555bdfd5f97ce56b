/**
 * A sample of the log for checks: a few stored events of each type and version of its shape, from places all over the log.
 * Its cost does not depend on the length of the log. A type that is rare and old may be missed.
 */
import { numeral, sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../definition.ts'
import type { Log } from '../log.ts'
import { eventColumns, eventsOfRows, rawEventOfRow } from './rows.ts'

export interface SampledEvent {
  /** As it is stored. */
  readonly stored: RecordedEvent
  /** As readers get it; undefined if it cannot be read. */
  readonly read: RecordedEvent | undefined
  /** Why it cannot be read. */
  readonly error: unknown
}

const places = numeral(100)
const eventsInPlace = numeral(100)
const newest = numeral(2_000)
const ofEachShape = numeral(10)
/** Each can have a megabyte. */
const pageSize = 20

export async function* sampleEvents(log: Log): AsyncGenerator<SampledEvent> {
  const positions = await samplePositions(log)
  for (let at = 0; at < positions.length; at += pageSize) {
    const rows = await log.database.runArrays(sql`/* events.sampled */
      select ${eventColumns}
      from ${log.names.events}
      where position = any(${positions.slice(at, at + pageSize)}::bigint[])
      order by position`)
    for (const row of rows) yield await sampledOf(log, row)
  }
}

async function samplePositions(log: Log): Promise<number[]> {
  const rows = await log.database.runArrays(sql`/* events.sample */
    with log as materialized (
      select min(position) as first, max(position) as last
      from ${log.names.events}),
    picked as (
      select e.position, e.type, e.schema_version
      from log
      cross join generate_series(0, ${places} - 1) as place(number)
      cross join lateral (
        select position, type, schema_version
        from ${log.names.events}
        where position >= log.first + (log.last - log.first) / ${places} * place.number
        order by position
        limit ${eventsInPlace}) as e
      union
      select e.position, e.type, e.schema_version
      from (
        select position, type, schema_version
        from ${log.names.events}
        order by position desc
        limit ${newest}) as e),
    numbered as (
      select position, row_number() over (partition by type, schema_version order by position desc) as number
      from picked)
    select position
    from numbered
    where number <= ${ofEachShape}
    order by position`)
  return rows.map(([position]) => Number(position))
}

async function sampledOf(log: Log, row: readonly unknown[]): Promise<SampledEvent> {
  const stored = rawEventOfRow(row)
  try {
    return { stored, read: (await eventsOfRows(log, [row]))[0]!, error: undefined }
  } catch (error) {
    return { stored, read: undefined, error }
  }
}
