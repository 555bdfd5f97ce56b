/** A shop with something of everything in it, places to bring it to, and a look at all rows of a place. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import type { Database } from '../../../src/database/database.ts'
import { openPglite } from '../../../src/database/pglite/pglite.ts'
import { identifier } from '../../../src/database/sql.ts'
import { defineTableProjection } from '../../../src/projections/table-projection.ts'
import type { Store } from '../../../src/store.ts'
import { readAllRows, writeExactly } from '../../../src/transfer/export/rows.ts'
import { readShapes } from '../../../src/transfer/table-shape.ts'
import type { StoreLocation } from '../../../src/transfer/transfer.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { freshSchema, openDatabase } from '../../support/engines.ts'
import { onServer, openShop, paid, placed, type Shop, type ShopMap, shopEvents, take } from '../../support/shop.ts'

/** A path that does not exist yet. */
export async function freshPath(name = 'archive'): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-archive-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return join(folder, name)
}

/** A schema that does not exist yet. */
export async function freshPlace(database?: Database): Promise<StoreLocation> {
  const place = { database: database ?? (await openDatabase()), schema: freshSchema() }
  onTestFinished(() => dropPlace(place))
  return place
}

async function dropPlace({ database, schema }: StoreLocation): Promise<void> {
  await database.transaction(tx => tx.query(`drop schema if exists ${identifier(schema)} cascade`), {
    timeoutMs: 30_000,
  })
}

/** Where the tests of a file import to: on a server an embedded database; embedded, without a server, the same one. */
export function useOtherEngine(): () => Database {
  let database: Database
  beforeAll(async () => {
    database = onServer ? await openPglite({ memory: true }, { transactionTimeoutMs: 60_000 }) : await openDatabase()
  })
  afterAll(async () => {
    if (onServer) await database.close(1_000)
  })
  return () => database
}

/** Every row of every table, as PostgreSQL writes it. */
export async function rowsOf({ database, schema }: StoreLocation): Promise<Record<string, string[]>> {
  const work = async (tx: Parameters<Parameters<Database['transaction']>[0]>[0]): Promise<Record<string, string[]>> => {
    await writeExactly(tx)
    const rows: Record<string, string[]> = {}
    for (const shape of await readShapes(tx, schema)) {
      rows[shape.name] = []
      for await (const page of readAllRows(tx, { database, schema, signal: undefined }, shape))
        rows[shape.name]!.push(...page)
    }
    return rows
  }
  return database.transaction(work, { timeoutMs: 60_000 })
}

export interface Customer {
  name: string
  score?: number
  notes?: string
}

export const customerOptions = {
  history: true,
  indexes: [{ path: 'name', unique: true }],
  columns: [{ path: 'score', as: 'number' }],
} as const

export const totals = defineTableProjection('customer-totals', {
  events: shopEvents,
  columns: { customer: 'text', orders: 'bigint', total: 'numeric', ratio: 'double precision', at: 'timestamptz' },
  primaryKey: ['customer'],
  indexes: [['total']],
  on: {
    OrderPlaced: ({ stream, data, createdAt }, row) =>
      row({ customer: stream }, { increment: { orders: 1, total: data.total }, set: { at: createdAt, ratio: 1 / 3 } }),
  },
})

export const strange = 'tab\t line\n cr\r back\\slash "quotes" \u0001 \u2028 ünï😀 \\N \\u0000'

/** A shop with events, aliases, keys, documents and their history, a read model, consumers, dead letters and workflows. */
export async function openFullShop(): Promise<Shop> {
  const shop = await openShop()
  const { store } = shop
  await store.projections.register(totals)
  await runWorkflow(store)
  const customers = store.documents<Customer>('customers', customerOptions)
  await customers.put('ada', { name: 'Ada', score: 1.5 })
  await customers.put('ada', { name: 'Ada', score: 2.5, notes: strange })
  await customers.put('bob', { name: 'Bob' })
  await customers.softDelete('bob')
  await store.events.append('order-1', [placed(0.1), paid], { idempotencyKey: 'first' })
  await store.events.append('order-2', placed(2, { headers: { note: strange, none: null } }))
  await store.events.append('order-3', [placed(3), paid])
  await store.streams.archive('order-2', { reason: 'old' })
  await store.streams.resolve('first-order', { category: 'order' })
  await store.projections.runUntilIdle()
  await take(store.subscribe('mailer'), 2)
  return shop
}

/** A workflow that has ended. */
async function runWorkflow(store: Store<ShopMap>): Promise<void> {
  store.workflows.register(defineHandler('ship', { on: 'OrderPaid', run: () => {} }))
  await using worker = store.workflows.worker()
  await worker.start()
  const flow = await store.workflows.publish('OrderPaid', { method: 'card' }, { correlationId: 'flow-1' })
  await flow.waitUntilSettled({ timeoutMs: 60_000 })
}
