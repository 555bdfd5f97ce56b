/**
 * An event exactly as it is stored: its JSON as text, because a number that JavaScript would round stays what it is; and
 * the shapes it goes through until readers see it.
 */
import { canonicalUuid } from '../../core/id.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../log.ts'
import type { Shape } from './upcast.ts'

export interface StoredEvent {
  readonly id: string
  readonly type: string
  readonly schemaVersion: number
  readonly position: number
  /** The JSON of its data. */
  readonly data: string
  /** The JSON of its headers; undefined if it has none. */
  readonly headers: string | undefined
  /** The shapes that it goes through until readers see it, the stored one first. */
  readonly shapes: readonly Shape[]
}

export async function readStoredEvent(log: Log, eventId: string): Promise<StoredEvent | undefined> {
  const id = canonicalUuid(eventId)
  if (id === undefined) return undefined
  const [row] = await log.database.run<StoredRow>(sql`/* events.stored */
    select event_id, type, schema_version, position, data::text as data, headers::text as headers
    from ${log.names.events}
    where event_id = ${id}::uuid`)
  if (row === undefined) return undefined
  return {
    id: row.event_id,
    type: row.type,
    schemaVersion: row.schema_version,
    position: row.position,
    data: row.data,
    headers: row.headers ?? undefined,
    shapes: log.upcasters.path(row.type, row.schema_version),
  }
}

interface StoredRow {
  readonly event_id: string
  readonly type: string
  readonly schema_version: number
  readonly position: number
  readonly data: string
  readonly headers: string | null
}
