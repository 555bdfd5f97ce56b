/** Our `append_one` function, called directly through `pg`: one prepared call per append, without the store. */
import { openPool } from '../harness/pool.ts'
import { type Appender, Conflict } from '../rigs/appender.ts'
import { eventId, type OrderEvent } from '../workloads/orders.ts'
import { storeTables } from './rillflow-append.ts'

export const appendOne = `
  select outcome, version, last_position
  from rillflow.append_one(
    p_stream => $1::text,
    p_expected => $2::text,
    p_version => $3::bigint,
    p_allow_archived => false,
    p_ids => $4::uuid[],
    p_types => $5::text[],
    p_schema_versions => null,
    p_data => $6::jsonb,
    p_headers => $7::jsonb,
    p_correlations => null,
    p_causations => null,
    p_users => null)`

/** Parameters of `appendOne`: schema version 1, and each event with a correlation of its own, by default. */
export function appendOneValues(stream: string, version: number | 'any', events: readonly OrderEvent[]): unknown[] {
  return [
    stream,
    version === 'any' ? 'any' : 'exact',
    version === 'any' ? null : version,
    events.map(eventId),
    events.map(event => event.type),
    JSON.stringify(events.map(event => event.data)),
    JSON.stringify(events.map(event => event.headers)),
  ]
}

/** The schema must exist. */
export function openAppendCall(url: string, poolSize: number): Appender {
  const pool = openPool(url, poolSize)
  return {
    tables: storeTables,
    async append(stream, version, events) {
      const values = appendOneValues(stream, version, events)
      const { rows } = await pool.query({ name: 'append_one', text: appendOne, values })
      if (rows[0].outcome !== 'appended') throw new Conflict(Number(rows[0].version))
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}
