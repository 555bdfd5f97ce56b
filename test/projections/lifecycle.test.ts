import { expect, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import type { Store } from '../../src/store.ts'
import { onServer, openShop, outcome, placed, type Shop, type ShopMap, shopEvents } from '../support/shop.ts'
import { orders, totalRows, totals } from './read-models.ts'

/** A second store on a server may not create tables by itself, and does not have to. */
const other = (shop: Shop): Promise<Store<ShopMap>> => shop.sibling(onServer ? {} : { migrate: true })

test('an inline projection is written with the append, and fails the append if it fails', async () => {
  const shop = await openShop()
  const careful = totals({
    on: {
      OrderPlaced: (event, ctx) => {
        if (event.data.total < 0) throw new Error('a negative total')
        return ctx.tx.query(`insert into ${ctx.table('order_totals')} (stream, total) values ($1, $2)`, [
          event.stream,
          event.data.total,
        ])
      },
    },
  })
  await shop.store.projections.register({ ...careful, lifecycle: 'inline' })

  await shop.store.events.append('order-1', placed(3))
  const failing = shop.store.events.append('order-2', placed(-1))

  await expect(failing).rejects.toMatchObject({ code: 'inline_projection_failed', projection: 'order-totals' })
  expect((await totalRows(shop)).map(row => row.stream)).toEqual(['order-1'])
  expect(await shop.store.events.readAll().toArray()).toHaveLength(1)
  expect(await shop.store.consumers.runOnce('order-totals')).toEqual({ result: 'inline', count: 0 })
  expect(await shop.store.consumers.status('order-totals')).toMatchObject({ state: 'inline', lag: 0 })
})

test('documents that are folded inline are read like others', async () => {
  const { store } = await openShop()
  await store.projections.register({ ...orders, lifecycle: 'inline' })

  await store.events.append('order-1', [placed(1), placed(2)])
  await store.events.append('order-1', placed(4))

  expect((await store.documents(orders).get('order-1'))?.data).toMatchObject({ total: 7 })
})

test('appends that are made at the same time in one transaction all count', async () => {
  const { store } = await openShop()
  await store.projections.register({ ...orders, lifecycle: 'inline' })

  await store.transaction(tx =>
    Promise.all([1, 2, 4].map(total => store.events.append('order-1', placed(total), { tx }))),
  )

  expect((await store.documents(orders).get('order-1'))?.data).toMatchObject({ total: 7 })
})

test('appends to many streams that are folded into one document, or one row, all count', async () => {
  const shop = await openShop()
  const second = await other(shop)
  interface Sum {
    total: number
  }
  const everything = defineDocumentProjection('everything', {
    events: shopEvents,
    identity: event => ['all', event.stream],
    initial: (): Sum => ({ total: 0 }),
    evolve: { OrderPlaced: (sum, event) => ({ total: sum.total + event.data.total }) },
  })
  const counts = defineTableProjection('counts', {
    events: shopEvents,
    columns: { id: 'text', count: 'integer' },
    primaryKey: ['id'],
    on: { OrderPlaced: (_, row) => row({ id: 'all' }, { increment: { count: 1 } }) },
  })
  for (const store of [shop.store, second]) {
    await store.projections.register({ ...everything, lifecycle: 'inline' })
    await store.projections.register({ ...counts, lifecycle: 'inline' })
  }

  await Promise.all(
    Array.from({ length: 30 }, (_, i) => (i % 2 === 0 ? shop.store : second).events.append(`order-${i}`, placed(1))),
  )

  expect((await shop.store.documents(everything).get('all'))?.data).toEqual({ total: 30 })
  expect((await shop.store.documents(everything).get('order-7'))?.data).toEqual({ total: 1 })
  expect(await shop.query('select count from ~counts')).toEqual([{ count: 30 }])
})

test('events appended before a projection became inline are applied when it does', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-1', [placed(1), placed(2)])

  await shop.store.projections.register({ ...totals(), lifecycle: 'inline' })
  await shop.store.events.append('order-1', placed(4))

  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 3, total: '7' }])
})

test('switched from async to inline and back, and rebuilt meanwhile, while two stores write, each event counts once', async () => {
  const shop = await openShop()
  const second = await other(shop)
  await shop.store.projections.register(totals())
  await second.projections.register(totals())
  let isWriting = true
  let written = 0
  const write = async (store: Store<ShopMap>, stream: string): Promise<void> => {
    for (let own = 0; isWriting || own < 20; own++, written++) await store.events.append(stream, placed(1))
  }
  const writing = Promise.all([write(shop.store, 'order-1'), write(second, 'order-2')])
  // A store that is closed because of another failure refuses them.
  writing.catch(() => {})

  await shop.store.projections.switch('order-totals', { lifecycle: 'inline' })
  const states = [(await shop.store.consumers.status('order-totals')).state]
  await shop.store.projections.rebuild('order-totals')
  await shop.store.projections.switch('order-totals', { lifecycle: 'async' })
  states.push((await shop.store.consumers.status('order-totals')).state)
  await shop.store.projections.switch('order-totals', { lifecycle: 'inline' })
  await shop.store.projections.switch('order-totals', { lifecycle: 'async' })
  isWriting = false
  await writing

  await shop.store.consumers.runUntilIdle()
  const counted = (await totalRows(shop)).reduce((sum, row) => sum + Number(row.orders), 0)
  expect(states).toEqual(['inline', 'active'])
  expect(counted).toBe(written)
})

/** A projection that makes an event of each that it applies, as long as no writer has to wait: it is always behind. */
function outpaced(
  shop: Shop,
  second: Store<ShopMap>,
): { projection: ReturnType<typeof totals>; appended: () => number } {
  let appended = 0
  const projection = totals({
    timeoutMs: 60_000,
    on: {
      OrderPlaced: async (event, { tx, table }) => {
        await tx.query(
          `insert into ${table('order_totals')} as t (stream, orders, total) values ($1, 1, $2)
           on conflict (stream) do update set orders = t.orders + 1, total = t.total + excluded.total`,
          [event.stream, event.data.total],
        )
        const [held] = await tx.query<{ barrier: boolean }>(
          `select exists (
             select from pg_locks
             where pid = pg_backend_pid() and mode = 'AccessExclusiveLock'
               and relation = '${shop.schema}.inline_projections'::regclass) as barrier`,
        )
        if (held?.barrier === true || appended >= outpacedLimit) return
        appended++
        await second.events.append('order-1', placed(1))
      },
    },
  })
  return { projection, appended: () => appended }
}
const outpacedLimit = 3_000

test.runIf(onServer)(
  'a projection becomes inline although events are appended faster than it applies them',
  async () => {
    const shop = await openShop()
    const second = await other(shop)
    const { projection, appended } = outpaced(shop, second)
    await shop.store.projections.register(projection)
    await shop.store.events.append(
      'order-1',
      Array.from({ length: 210 }, () => placed(1)),
    )

    await shop.store.projections.switch('order-totals', { lifecycle: 'inline' })

    expect(await totalRows(shop)).toEqual([
      { stream: 'order-1', orders: 210 + appended(), total: `${210 + appended()}` },
    ])
    expect(appended()).toBeLessThan(outpacedLimit)
  },
)

test.runIf(onServer)('a rebuild ends although events are appended faster than it applies them', async () => {
  const shop = await openShop()
  const second = await other(shop)
  const { projection, appended } = outpaced(shop, second)
  await shop.store.projections.register(projection)
  await shop.store.events.append(
    'order-1',
    Array.from({ length: 210 }, () => placed(1)),
  )

  await shop.store.projections.rebuild('order-totals')

  const rebuilt = await shop.store.consumers.status('order-totals')
  expect((await totalRows(shop))[0]).toMatchObject({ orders: rebuilt.checkpoint })
  expect(appended()).toBeLessThan(outpacedLimit)
})

test('a process without the code of an inline projection cannot append past it', async () => {
  const shop = await openShop()
  await shop.store.projections.register({ ...totals(), lifecycle: 'inline' })
  const old = await other(shop)

  await expect(old.events.append('order-1', placed(1))).rejects.toMatchObject({ code: 'inline_projection_unknown' })

  await old.projections.register(totals())
  await old.events.append('order-1', placed(1))
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 1, total: '1' }])
})

test('an inline projection whose code was removed can be made async, so that appends continue without it', async () => {
  const shop = await openShop()
  await shop.store.projections.register({ ...totals(), lifecycle: 'inline' })
  await shop.store.events.append('order-1', placed(1))
  const later = await other(shop)

  await later.projections.switch('order-totals', { lifecycle: 'async' })

  await later.events.append('order-1', placed(2))
  expect(await later.consumers.status('order-totals')).toMatchObject({ state: 'active', checkpoint: 1, lag: 1 })
  await shop.store.consumers.runUntilIdle()
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 2, total: '3' }])
})

test('projections that cannot be inline are refused', async () => {
  const { store } = await openShop()
  const chosen = defineProjection('chosen', { filter: { categories: ['order'] }, on: { OrderPlaced: () => {} } })
  await store.projections.register(totals())
  await store.consumers.pause('order-totals')

  expect(() => store.projections.register({ ...chosen, lifecycle: 'inline' })).toThrow(/by types alone/)
  await expect(store.projections.switch('order-totals', { lifecycle: 'inline' })).rejects.toThrow(/Resume it first/)
  await expect(store.projections.switch('order-totals', { lifecycle: 'live' as never })).rejects.toThrow(
    /cannot be switched to "live"/,
  )
})

test('opening a store changes neither the lifecycle nor the version of a projection that is known; a switch does', async () => {
  const shop = await openShop()
  await shop.store.register({ ...orders, lifecycle: 'inline' })
  await shop.store.events.append('order-1', placed(1))
  const second = defineDocumentProjection('orders', {
    version: 2,
    lifecycle: 'inline',
    events: shopEvents,
    initial: () => ({ doubled: 0 }),
    evolve: { OrderPlaced: (order, { data }) => ({ doubled: order.doubled + 2 * data.total }) },
  })
  const later = await other(shop)
  await later.register(second)
  await later.schema.sync()

  await expect(later.events.append('order-1', placed(2))).rejects.toMatchObject({ code: 'inline_projection_unknown' })
  await later.projections.switch(second)

  await later.events.append('order-1', placed(4))
  expect((await later.documents(second).get('order-1'))?.data).toEqual({ doubled: 10 })
  expect(await later.consumers.status('orders')).toMatchObject({ state: 'active' })

  const last = await other(shop)
  await last.register({ ...second, lifecycle: 'async' })
  expect(await last.consumers.status('orders@2')).toMatchObject({ state: 'inline' })
  await last.projections.switch(second, { lifecycle: 'async' })
  expect(await last.consumers.status('orders@2')).toMatchObject({ state: 'active' })
})

test('an inline projection cannot be paused or reset: every append applies it', async () => {
  const { store } = await openShop()
  await store.register({ ...orders, lifecycle: 'inline' })
  await store.events.append('order-1', placed())

  const refused = [await outcome(store.consumers.pause(orders)), await outcome(store.consumers.reset(orders, 0))]

  for (const { error } of refused)
    expect(error).toMatchObject({ code: 'invalid_option', message: expect.stringContaining("lifecycle: 'async'") })
  expect(await store.consumers.status(orders)).toMatchObject({ state: 'inline', isPaused: false, lag: 0 })
})
