import { expect, test } from 'vitest'
import { deadLetter, failFast } from '../../src/consumers/run/policy.ts'
import { openShop, placed } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { orders, totalRows, totals } from './read-models.ts'

test('a name can be registered once', async () => {
  const { store } = await openShop()
  await store.projections.register(totals())

  expect(() => store.projections.register(totals())).toThrow(expect.objectContaining({ code: 'duplicate_consumer' }))
})

test('an unknown name is refused with the nearest known name', async () => {
  const { store } = await openShop()
  await store.projections.register(totals())
  const nearest = { code: 'consumer_not_found', nearest: 'order-totals' }

  await expect(store.projections.status('order-total')).rejects.toMatchObject(nearest)
  await expect(store.projections.tickOnce('order-total')).rejects.toMatchObject(nearest)
  await expect(store.projections.pause('order-total')).rejects.toMatchObject(nearest)
  await expect(store.projections.resume('order-total')).rejects.toMatchObject(nearest)
  await expect(store.projections.reset('order-total', 0)).rejects.toMatchObject(nearest)
  await expect(store.projections.rebuild('order-total')).rejects.toMatchObject(nearest)
  await expect(store.projections.switch('order-total', { lifecycle: 'inline' })).rejects.toMatchObject(nearest)
})

test('the list has the projections registered here, and those only the database knows', async () => {
  const { store, sibling } = await openShop()
  await store.projections.register(totals())
  await store.projections.runUntilIdle()
  const other = await sibling()
  await other.projections.register(orders)

  const list = await other.projections.list()

  expect(list.map(({ name, isRegistered, status }) => [name, isRegistered, status?.kind])).toEqual([
    ['order-totals', false, 'projection'],
    ['orders', true, undefined],
  ])
  expect(await other.projections.status('order-totals')).toMatchObject({ name: 'order-totals', state: 'active' })
})

test('RB-20: the status of a projection that never ran and never failed can be read, paused or not', async () => {
  const { store } = await openShop()
  await store.projections.register(totals())
  await store.events.append('order-1', placed())

  await store.projections.pause('order-totals')

  const status = await store.projections.status('order-totals')
  expect(status).toMatchObject({ checkpoint: 0, head: 1, lag: 1, isPaused: true, attempts: 0, deadLetters: 0 })
  expect(status.lagSeconds).toBeGreaterThanOrEqual(0)
  expect(status).toMatchObject({ retryInMs: undefined, lease: undefined, lastError: undefined })
  expect(await store.projections.tickOnce('order-totals')).toEqual({ result: 'paused', count: 0 })
  expect(await store.projections.metrics()).toMatchObject({ 'order-totals': { lag: 1, isPaused: true } })
})

test('a paused projection continues when it is resumed, and a wait after a failure ends then', async () => {
  const shop = await openShop()
  let isBroken = true
  await shop.store.projections.register(
    totals({
      policy: deadLetter({ baseMs: 3_600_000, maxMs: 3_600_000 }),
      on: {
        OrderPlaced: (event, ctx) => {
          if (isBroken) throw new Error('out of order')
          return ctx.tx.query(`insert into ${ctx.table('order_totals')} (stream) values ($1)`, [event.stream])
        },
      },
    }),
  )
  await shop.store.events.append('order-1', placed())
  expect(await shop.store.projections.tickOnce('order-totals')).toMatchObject({ result: 'backoff', count: 0 })
  expect(await shop.store.projections.tickOnce('order-totals')).toEqual({ result: 'backoff', count: 0 })
  expect((await shop.store.projections.status('order-totals')).retryInMs).toBeGreaterThan(1_000_000)
  isBroken = false

  await shop.store.projections.resume('order-totals')

  expect(await shop.store.projections.tickOnce('order-totals')).toEqual({ result: 'processed', count: 1 })
  expect(await shop.store.projections.tickOnce('order-totals')).toEqual({ result: 'idle', count: 0 })
  expect(await totalRows(shop)).toHaveLength(1)
})

test('RB-18: a reset moves the checkpoint permanently, and does not change the read model', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', [placed(1), placed(2), placed(4)])
  await shop.store.projections.runUntilIdle()

  await shop.store.projections.reset('order-totals', 2)

  expect(await shop.store.projections.status('order-totals')).toMatchObject({ checkpoint: 2, lag: 1 })
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 3, total: '7' }])
  await shop.store.projections.runUntilIdle()
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 4, total: '11' }])
})

test('runOnce applies one batch of each, runUntilIdle all batches', async () => {
  const { store } = await openShop()
  await store.projections.register(totals({ batchSize: 2 }))
  await store.projections.register(orders)
  await store.events.append('order-1', [placed(), placed(), placed(), placed(), placed()])

  expect(await store.projections.tickAll()).toEqual({
    'order-totals': { result: 'processed', count: 2 },
    orders: { result: 'processed', count: 5 },
  })
  expect(await store.projections.runUntilIdle()).toBe(3)
  expect(await store.projections.tickAll()).toEqual({
    'order-totals': { result: 'idle', count: 0 },
    orders: { result: 'idle', count: 0 },
  })
})

test('a caller can wait for an append to be applied, and read it then', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  const stop = new AbortController()
  const running = shop.store.projections.run(stop.signal)

  const { position } = await shop.store.events.append('order-1', placed(3))
  await shop.store.projections.waitFor('order-totals', position)

  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 1, total: '3' }])
  stop.abort()
  await running
  expect((await shop.store.projections.status('order-totals')).lease).toBeUndefined()
})

test('waiting for a projection that does not run reports that in time', async () => {
  const { store } = await openShop()
  await store.projections.register(totals())
  const { position } = await store.events.append('order-1', placed())

  const waiting = store.projections.waitFor('order-totals', position, { timeoutMs: 20 })

  await expect(waiting).rejects.toMatchObject({ code: 'timed_out' })
})

test('a runner runs projections that were registered before and after its start, each on its own', async () => {
  const shop = await openShop()
  await using daemon = shop.store.daemon()
  await shop.store.projections.register(
    totals({
      policy: failFast(),
      on: {
        OrderPlaced: () => {
          throw new Error('broken')
        },
      },
    }),
  )
  await daemon.start()
  await shop.store.projections.register(orders)

  const { position } = await shop.store.events.append('order-1', placed(3))

  await shop.store.projections.waitFor('orders', position)
  expect((await shop.store.documents(orders).get('order-1'))?.data).toMatchObject({ total: 3 })
  await waitUntil(async () => (await shop.store.projections.status('order-totals')).isPaused)
  expect(await shop.store.projections.status('order-totals')).toMatchObject({ lastError: { message: 'broken' } })
})

test('RB-19: two stores in one database pause and count independently', async () => {
  const first = await openShop()
  const second = await openShop()
  await first.store.projections.register(totals())
  await second.store.projections.register(totals())
  await first.store.events.append('order-1', placed(1))
  await second.store.events.append('order-1', placed(2))

  await first.store.projections.pause('order-totals')

  expect(await first.store.projections.tickOnce('order-totals')).toEqual({ result: 'paused', count: 0 })
  expect(await second.store.projections.tickOnce('order-totals')).toEqual({ result: 'processed', count: 1 })
  expect(await totalRows(second)).toEqual([{ stream: 'order-1', orders: 1, total: '2' }])
})
