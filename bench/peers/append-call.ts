/** Our own `append_one` function, called straight through `pg`: one prepared call per append, no store in between. */
import pg from 'pg'
import { type Appender, Conflict } from '../appender.ts'
import { eventId } from '../workload.ts'
import { storeTables } from './store.ts'

const statement = `
  select outcome, at_version, at_position
  from rillflow.append_one(
    $1::text, $2::bigint, $3::boolean, $4::uuid[], $5::text[], null, $6::jsonb, $7::jsonb, null, null, null)`

/** The schema must be there. */
export function openAppendCall(url: string, poolSize: number): Appender {
  const pool = new pg.Pool({ connectionString: url, max: poolSize, idleTimeoutMillis: 0 })
  return {
    tables: storeTables,
    async append(stream, version, events) {
      const { rows } = await pool.query({
        name: 'append_one',
        text: statement,
        values: [
          stream,
          version === 'any' ? -1 : version,
          false,
          events.map(() => eventId()),
          events.map(event => event.type),
          JSON.stringify(events.map(event => event.data)),
          JSON.stringify(events.map(event => event.headers)),
        ],
      })
      if (rows[0].outcome !== 0) throw new Conflict(Number(rows[0].at_version))
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}
