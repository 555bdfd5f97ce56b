/** A document and an event in one transaction by hand: in one flush on a pipelining connection, or in four round trips. */
import pg from 'pg'
import { openPool } from '../harness/pool.ts'
import type { Customer } from '../workloads/customers.ts'
import type { OrderEvent } from '../workloads/orders.ts'
import { appendOne, appendOneValues } from './append-call.ts'
import { makeTable } from './documents-by-hand.ts'

/** Makes a document, and appends an event to a stream of this version. */
export interface Saver extends AsyncDisposable {
  save(id: string, data: Customer, stream: string, version: number, event: OrderEvent): Promise<unknown>
}

const begin = { name: 'begin', text: 'begin' }
const commit = { name: 'commit', text: 'commit' }

function insert(id: string, data: Customer): pg.QueryConfig {
  return {
    name: 'insert',
    text: `
      insert into byhand.saved (id, body, version, created_at, updated_at)
      values ($1, $2, 1, now(), now())
      on conflict (id) do nothing
      returning version`,
    values: [id, JSON.stringify(data)],
  }
}

function append(stream: string, version: number, event: OrderEvent): pg.QueryConfig {
  return { name: 'append_one', text: appendOne, values: appendOneValues(stream, version, [event]) }
}

/** Our schema must exist. */
export async function makeSavedTable(pool: pg.Pool): Promise<void> {
  await makeTable(pool, 'byhand.saved', 'rillflow.saved', true)
}

/** All four statements are sent before the first answer. For one caller. */
export async function openPipelined(url: string): Promise<Saver> {
  const client = new pg.Client({ connectionString: url, pipeline: true } as pg.ClientConfig)
  await client.connect()
  return {
    async save(id, data, stream, version, event) {
      const [, inserted, appended] = await Promise.all([
        client.query(begin),
        client.query(insert(id, data)),
        client.query(append(stream, version, event)),
        client.query(commit),
      ])
      refuse(inserted, appended)
    },
    [Symbol.asyncDispose]: () => client.end(),
  }
}

export function openFourRoundTrips(url: string, poolSize: number): Saver {
  const pool = openPool(url, poolSize)
  return {
    async save(id, data, stream, version, event) {
      const client = await pool.connect()
      try {
        await client.query(begin)
        refuse(await client.query(insert(id, data)), await client.query(append(stream, version, event)))
        await client.query(commit)
      } finally {
        client.release()
      }
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}

function refuse(inserted: pg.QueryResult, appended: pg.QueryResult): void {
  if (inserted.rows.length !== 1 || appended.rows[0].outcome !== 'appended') throw new Error('the save was refused')
}
