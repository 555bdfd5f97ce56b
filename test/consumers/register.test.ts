import { expect, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { identifier } from '../../src/database/sql.ts'
import { defineCollection } from '../../src/documents/collection.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'

const ordersThat = (lifecycle: 'async' | 'inline') =>
  defineDocumentProjection('orders', {
    lifecycle,
    initial: () => ({ total: 0 }),
    evolve: { OrderPlaced: (order, event) => ({ total: order.total + (event.data as { total: number }).total }) },
  })

const definitions = {
  collections: [defineCollection('customers')],
  projections: [ordersThat('inline')],
  subscriptions: [defineSubscription('mailer', { run: () => {} })],
  handlers: [defineHandler('pay', { on: 'OrderPlaced', run: () => {} })],
  schedules: [defineSchedule('restock', { everyMs: 3_600_000, run: () => [] })],
}

interface Shop {
  open(options?: StoreOptions): Promise<Store>
  /** The number of rows of each table. */
  rows(): Promise<Record<string, number>>
}

/** An empty shop whose schema is there. */
async function openShop(): Promise<Shop> {
  const database = await openDatabase()
  const schema = freshSchema()
  await (await openStore({ database, schema, migrate: true })).close()
  return {
    open: options => openStore({ database, schema, ...options }),
    rows: () => rowsOf(database, schema),
  }
}

async function rowsOf(database: Database, schema: string): Promise<Record<string, number>> {
  return database.transaction(async tx => {
    const tables = await tx.query<{ name: string }>(
      'select table_name as name from information_schema.tables where table_schema = $1 order by 1',
      [schema],
    )
    const counted: Record<string, number> = {}
    for (const { name } of tables) {
      const [row] = await tx.query<{ rows: number }>(
        `select count(*)::integer as rows from ${identifier(schema, name)}`,
      )
      counted[name] = row!.rows
    }
    return counted
  })
}

test('a store opened with register: false knows its definitions, and stores nothing of them', async () => {
  const shop = await openShop()
  const before = await shop.rows()

  await using store = await shop.open({ ...definitions, register: false })

  expect(store.runners.registered()).toMatchObject({
    ...{ projections: ['orders'], subscriptions: ['mailer'], handlers: ['pay'], schedules: ['restock'] },
  })
  expect(await store.documents(definitions.projections[0]!).get('order-1')).toBeUndefined()
  expect((await store.consumers.status('orders')).progressedAt).toBeUndefined()
  expect((await store.workflows.schedules.list()).items).toEqual([])
  expect(await shop.rows()).toEqual(before)
})

test('with register: false a missing schema is refused and not made, also in an embedded store', async () => {
  const database = await openDatabase()
  const schema = freshSchema()

  const opening = openStore({ database, schema, register: false })

  await expect(opening).rejects.toMatchObject({ code: 'schema_missing' })
  expect(await rowsOf(database, schema)).toEqual({})
})

test('with register: false an append runs the inline projections that are active', async () => {
  const shop = await openShop()
  await (await shop.open({ ...definitions, migrate: true })).close()
  await using store = await shop.open({ ...definitions, register: false })

  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 5 } })

  expect(await store.documents(definitions.projections[0]!).get('order-1')).toMatchObject({ data: { total: 5 } })
})

test('a runner stores the definitions of a store that was opened with register: false', async () => {
  const shop = await openShop()
  await using store = await shop.open({ ...definitions, register: false, migrate: true })

  await using _runner = await store.start()

  expect(await shop.rows()).toMatchObject({ workflow_routes: 1, workflow_schedules: 1 })
  expect(await store.consumers.status('orders')).toMatchObject({ state: 'inline' })
})

test('opening a store leaves the lifecycle of a projection as it is stored, and starting a runner changes it', async () => {
  const shop = await openShop()
  await (await shop.open({ projections: [ordersThat('inline')], migrate: true })).close()
  await using store = await shop.open({ projections: [ordersThat('async')], migrate: true })
  expect(await store.consumers.status('orders')).toMatchObject({ state: 'inline' })

  await using standby = await store.start({ name: 'west-1', paused: true })
  await using others = await store.start({ only: ['handlers'] })
  expect(await store.consumers.status('orders')).toMatchObject({ state: 'inline' })
  await using _runner = await store.start()

  expect(await store.consumers.status('orders')).toMatchObject({ state: 'active' })
  expect([standby.role, others.role]).toEqual(['paused', 'active'])
})
