/** Emmett's PostgreSQL event store, through its public API, with its own pool or one of the given size. */
import { type Event, STREAM_DOES_NOT_EXIST } from '@event-driven-io/emmett'
import { getPostgreSQLEventStore } from '@event-driven-io/emmett-postgresql'
import { openPool } from '../harness/pool.ts'
import type { Appender } from '../rigs/appender.ts'
import { orderEvent } from '../workloads/orders.ts'

export async function openEmmett(url: string, poolSize: 'default' | number): Promise<Appender> {
  const pool = poolSize === 'default' ? undefined : openPool(url, poolSize)
  const store = getPostgreSQLEventStore(url, pool === undefined ? {} : { connectionOptions: { pool } })
  const append: Appender['append'] = (stream, version, events) => {
    const expected = version === 'any' ? undefined : version === 0 ? STREAM_DOES_NOT_EXIST : BigInt(version)
    const messages = events.map(({ type, data, headers }) => ({ type, data, metadata: headers }) as unknown as Event)
    return store.appendToStream(stream, messages, expected === undefined ? {} : { expectedStreamVersion: expected })
  }
  // Emmett makes its tables with the first append.
  await append('first', 'any', [orderEvent(0)])
  return {
    tables: ['emt_messages', 'emt_streams'],
    append,
    async [Symbol.asyncDispose]() {
      await store.close()
      if (pool?.ended === false) await pool.end()
    },
  }
}
