/** The types of events: those that are defined with a schema, and those of the newest 10 000 events. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { numeral, sql } from '../../database/sql.ts'
import type { Log } from '../log.ts'

export interface EventTypeDescription {
  readonly type: string
  /** Whether the store was opened with a schema for it. */
  readonly hasSchema: boolean
  /** Its schema as JSON Schema, where the library of the schema offers that. */
  readonly jsonSchema: object | undefined
  /** How many of the newest 10 000 events have it. */
  readonly recent: number
  /** The position of the last of these. */
  readonly lastPosition: number | undefined
}

const recentEvents = numeral(10_000)

export async function readEventTypes(log: Log): Promise<EventTypeDescription[]> {
  const rows = await log.database.run<{ type: string; recent: number; last: number }>(sql`/* events.types */
    select type, count(*) as recent, max(position) as last
    from (
      select type, position
      from ${log.names.events}
      order by position desc
      limit ${recentEvents}) as newest
    group by type`)
  const seen = new Map(rows.map(row => [row.type, row]))
  const names = [...new Set([...log.schemas.keys(), ...seen.keys()])].sort()
  return names.map(type => ({
    type,
    hasSchema: log.schemas.has(type),
    jsonSchema: jsonSchemaOf(log.schemas.get(type)),
    recent: Number(seen.get(type)?.recent ?? 0),
    lastPosition: seen.get(type)?.last,
  }))
}

/** Standard JSON Schema, an addition to Standard Schema. A schema that cannot be written so is left out. */
interface WithJsonSchema {
  readonly jsonSchema?: { input(options: { target: string }): object } | undefined
}

function jsonSchemaOf(schema: StandardSchemaV1 | undefined): object | undefined {
  const offered = (schema?.['~standard'] as WithJsonSchema | undefined)?.jsonSchema
  try {
    return offered?.input({ target: 'draft-2020-12' })
  } catch {
    return undefined
  }
}
