/** The naive append: begin, select the version, insert, commit; prepared, on a table with the shape of ours. */
import type pg from 'pg'
import { openPool } from '../harness/pool.ts'
import { type Appender, Conflict } from '../rigs/appender.ts'
import { eventId, type OrderEvent } from '../workloads/orders.ts'

/** Our schema must exist: the table is made like its events table, indexes included. */
export async function openRoundTrips(url: string, poolSize: number): Promise<Appender> {
  const pool = openPool(url, poolSize)
  await pool.query('create schema if not exists naive')
  await pool.query('create sequence if not exists naive.events_position')
  await pool.query('create table if not exists naive.events (like rillflow.events including all)')
  return {
    tables: ['naive.events'],
    async append(stream, version, events) {
      const client = await pool.connect()
      try {
        await client.query('begin')
        const { rows } = await client.query({
          name: 'version',
          text: 'select coalesce(max(version), 0) as version from naive.events where stream = $1',
          values: [stream],
        })
        const current = Number(rows[0].version)
        if (version !== 'any' && current !== version) throw new Conflict(current)
        await client.query(insertion(stream, current, events))
        await client.query('commit')
      } catch (error) {
        await client.query('rollback')
        throw error
      } finally {
        client.release()
      }
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}

function insertion(stream: string, version: number, events: readonly OrderEvent[]): pg.QueryConfig {
  const rows = events.map((_, at) => {
    const [one, two, three, four, five] = [1, 2, 3, 4, 5].map(n => `$${at * 5 + 1 + n}`)
    return `(nextval('naive.events_position'), $1, ${one}, ${two}::uuid, ${three}, 1, ${four}, ${five}, ${two}::uuid::text, now())`
  })
  return {
    name: `insert ${events.length}`,
    text: `insert into naive.events
      (position, stream, version, event_id, type, schema_version, data, headers, correlation_id, created_at)
      values ${rows.join(', ')}`,
    values: [
      stream,
      ...events.flatMap(({ type, data, headers }, at) => [version + at + 1, eventId(), type, data, headers]),
    ],
  }
}
