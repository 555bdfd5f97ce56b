/** Our `append_one` function, called directly through `pg`: one prepared call per append, without the store. */
import pg from 'pg'
import { type Appender, Conflict } from '../rigs/appender.ts'
import { eventId, type OrderEvent } from '../workloads/orders.ts'
import { storeTables } from './rillflow-append.ts'

export const appendOne = `
  select outcome, at_version, at_position
  from rillflow.append_one(
    $1::text, $2::bigint, false, $3::uuid[], $4::text[], null, $5::jsonb, $6::jsonb, null, null, null)`

/** Parameters of `appendOne`: schema version 1, and each event with a correlation of its own, by default. */
export function appendOneValues(stream: string, version: number | 'any', events: readonly OrderEvent[]): unknown[] {
  return [
    stream,
    version === 'any' ? -1 : version,
    events.map(eventId),
    events.map(event => event.type),
    JSON.stringify(events.map(event => event.data)),
    JSON.stringify(events.map(event => event.headers)),
  ]
}

/** The schema must exist. */
export function openAppendCall(url: string, poolSize: number): Appender {
  const pool = new pg.Pool({ connectionString: url, max: poolSize, idleTimeoutMillis: 0 })
  return {
    tables: storeTables,
    async append(stream, version, events) {
      const values = appendOneValues(stream, version, events)
      const { rows } = await pool.query({ name: 'append_one', text: appendOne, values })
      if (rows[0].outcome !== 0) throw new Conflict(Number(rows[0].at_version))
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}
