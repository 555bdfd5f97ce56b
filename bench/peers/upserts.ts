/** A naive projection: page after page, one statement per event, a transaction and a checkpoint per page. */
import type pg from 'pg'
import { logPageOf, type Row } from './keyset.ts'

export interface LogRow extends Row {
  readonly stream: string
  readonly type: string
  readonly data: { readonly customer: string; readonly cents: number }
}

const pageText = logPageOf(500)
export const upsertTables = ['byhand.orders', 'byhand.checkpoints']

export async function makeUpsertTables(admin: pg.Pool): Promise<void> {
  await admin.query(`
    create schema if not exists byhand;
    create table if not exists byhand.orders (id text collate "C" primary key, body jsonb not null) with (fillfactor = 80);
    create table if not exists byhand.checkpoints (name text primary key, position bigint not null)`)
}

/** Applies all events after `from`, and returns the last position. */
export async function applyByHand(client: pg.ClientBase, from: string, onEvent: () => void): Promise<string> {
  for (let last = from; ; ) {
    const rows = await nextRows(client, last)
    if (rows.length === 0) return last
    await client.query('begin')
    for (const row of rows) {
      await client.query(upsert(row))
      onEvent()
    }
    last = rows.at(-1)!.position
    await client.query(saveCheckpoint('orders', last))
    await client.query('commit')
  }
}

export async function nextRows(client: pg.ClientBase, last: string): Promise<readonly LogRow[]> {
  const { rows } = await client.query<LogRow>({ name: 'page of 500', text: pageText, values: [last] })
  return rows
}

export function saveCheckpoint(name: string, position: string): pg.QueryConfig {
  return {
    name: 'checkpoint',
    text: `
      insert into byhand.checkpoints (name, position) values ($1, $2)
      on conflict (name) do update set position = excluded.position`,
    values: [name, position],
  }
}

/** The statement folds: no round trip to read the document. */
function upsert({ stream, type, data }: LogRow): pg.QueryConfig {
  return {
    name: 'upsert',
    text: `
      insert into byhand.orders as o (id, body)
      values ($1, jsonb_build_object('customer', $2::text, 'status', $3::text, 'cents', $4::bigint, 'events', 1))
      on conflict (id) do update set body = jsonb_build_object(
        'customer', $2::text,
        'status', $3::text,
        'cents', (o.body ->> 'cents')::bigint + $4::bigint,
        'events', (o.body ->> 'events')::bigint + 1)`,
    values: [stream, data.customer, type, data.cents],
  }
}
