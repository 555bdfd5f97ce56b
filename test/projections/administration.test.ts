import { expect, test } from 'vitest'
import { defineProjection } from '../../src/projections/projection.ts'
import { openShop, outcome, placed } from '../support/shop.ts'
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

  await expect(store.consumers.status('order-total')).rejects.toMatchObject(nearest)
  await expect(store.consumers.runOnce('order-total')).rejects.toMatchObject(nearest)
  await expect(store.consumers.pause('order-total')).rejects.toMatchObject(nearest)
  await expect(store.consumers.resume('order-total')).rejects.toMatchObject(nearest)
  await expect(store.consumers.reset('order-total', 0)).rejects.toMatchObject(nearest)
  await expect(store.projections.rebuild('order-total')).rejects.toMatchObject(nearest)
  await expect(store.projections.switch('order-total', { lifecycle: 'inline' })).rejects.toMatchObject(nearest)
})

test('the list has the projections registered here, and those only the database knows', async () => {
  const { store, sibling } = await openShop()
  await store.projections.register(totals())
  await store.consumers.runUntilIdle()
  const other = await sibling()
  await other.projections.register(orders)

  const { items } = await other.consumers.list({ kind: 'projection' })

  expect(items.map(({ name, isRegistered, progressedAt }) => [name, isRegistered, progressedAt !== undefined])).toEqual(
    [
      ['order-totals', false, true],
      ['orders', true, false],
    ],
  )
  expect(await other.consumers.status('order-totals')).toMatchObject({ name: 'order-totals', state: 'active' })
})

test('RB-20: the status of a projection that never ran and never failed can be read, paused or not', async () => {
  const { store } = await openShop()
  await store.projections.register(totals())
  await store.events.append('order-1', placed())

  await store.consumers.pause('order-totals')

  const status = await store.consumers.status('order-totals')
  expect(status).toMatchObject({ checkpoint: 0, head: 1, lag: 1, isPaused: true, attempts: 0, deadLetters: 0 })
  expect(status.lagSeconds).toBeGreaterThanOrEqual(0)
  expect(status).toMatchObject({ retryInMs: undefined, lease: undefined, lastError: undefined })
  expect(await store.consumers.runOnce('order-totals')).toEqual({ result: 'paused', count: 0 })
  expect((await store.consumers.list()).items).toMatchObject([{ name: 'order-totals', lag: 1, isPaused: true }])
})

test('a paused projection continues when it is resumed, and a wait after a failure ends then', async () => {
  const shop = await openShop()
  let isBroken = true
  await shop.store.projections.register(
    totals({
      backoff: { baseMs: 3_600_000, maxMs: 3_600_000 },
      onFailure: 'deadLetter',
      on: {
        OrderPlaced: (event, ctx) => {
          if (isBroken) throw new Error('out of order')
          return ctx.tx.query(`insert into ${ctx.table('order_totals')} (stream) values ($1)`, [event.stream])
        },
      },
    }),
  )
  await shop.store.events.append('order-1', placed())
  expect(await shop.store.consumers.runOnce('order-totals')).toMatchObject({ result: 'backoff', count: 0 })
  expect(await shop.store.consumers.runOnce('order-totals')).toEqual({ result: 'backoff', count: 0 })
  expect((await shop.store.consumers.status('order-totals')).retryInMs).toBeGreaterThan(1_000_000)
  isBroken = false

  await shop.store.consumers.resume('order-totals')

  expect(await shop.store.consumers.runOnce('order-totals')).toEqual({ result: 'processed', count: 1 })
  expect(await shop.store.consumers.runOnce('order-totals')).toEqual({ result: 'idle', count: 0 })
  expect(await totalRows(shop)).toHaveLength(1)
})

test('RB-18: a reset moves the checkpoint permanently, and does not change the read model', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', [placed(1), placed(2), placed(4)])
  await shop.store.consumers.runUntilIdle()

  await shop.store.consumers.reset('order-totals', 2)

  expect(await shop.store.consumers.status('order-totals')).toMatchObject({ checkpoint: 2, lag: 1 })
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 3, total: '7' }])
  await shop.store.consumers.runUntilIdle()
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 4, total: '11' }])
})

test('runOnce applies one batch of each, runUntilIdle all batches', async () => {
  const { store } = await openShop()
  await store.projections.register(totals({ batchSize: 2 }))
  await store.projections.register(orders)
  await store.events.append('order-1', [placed(), placed(), placed(), placed(), placed()])

  expect(await store.consumers.runOnce('order-totals')).toEqual({ result: 'processed', count: 2 })
  expect(await store.consumers.runOnce(orders)).toEqual({ result: 'processed', count: 5 })
  expect(await store.consumers.runUntilIdle()).toBe(3)
  for (const name of ['order-totals', 'orders'])
    expect(await store.consumers.runOnce(name)).toEqual({ result: 'idle', count: 0 })
})

test('a caller can wait for an append to be applied, and read it then', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  const stop = new AbortController()
  const running = shop.store.consumers.run('order-totals', { signal: stop.signal })

  const { position } = await shop.store.events.append('order-1', placed(3))
  await shop.store.consumers.waitFor('order-totals', position)

  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 1, total: '3' }])
  stop.abort()
  await running
  expect((await shop.store.consumers.status('order-totals')).lease).toBeUndefined()
})

test('waiting for a projection that does not run reports that in time', async () => {
  const { store } = await openShop()
  await store.projections.register(totals())
  const { position } = await store.events.append('order-1', placed())

  const waiting = store.consumers.waitFor('order-totals', position, { timeoutMs: 20 })

  await expect(waiting).rejects.toMatchObject({ code: 'timed_out', missing: expect.stringContaining('No runner runs') })
})

test('a wait for a projection says that it is paused, or with which error it fails', async () => {
  const { store } = await openShop()
  const broken = (): never => {
    throw new Error('no ink')
  }
  const bad = defineProjection('bad', { retries: 5, on: { OrderPlaced: broken } })
  await store.projections.register(totals())
  await store.projections.register(bad)
  const { position } = await store.events.append('order-1', placed())
  await store.consumers.pause('order-totals')
  await store.consumers.runOnce(bad)

  const paused = await outcome(store.consumers.waitFor('order-totals', position, { timeoutMs: 20 }))
  const failing = await outcome(store.consumers.waitFor(bad, position, { timeoutMs: 20 }))

  expect(paused.error).toMatchObject({ missing: '"order-totals" is paused. It is at 0, behind by 1.' })
  expect(failing.error).toMatchObject({ missing: expect.stringContaining('has failed 1 time, with: no ink.') })
})

test('a runner runs projections that were registered before and after its start, each on its own', async () => {
  const shop = await openShop()
  await using _runner = await shop.store.start()
  await shop.store.projections.register(
    totals({
      retries: 0,
      onFailure: 'stop',
      on: {
        OrderPlaced: () => {
          throw new Error('broken')
        },
      },
    }),
  )
  await shop.store.projections.register(orders)

  const { position } = await shop.store.events.append('order-1', placed(3))

  await shop.store.consumers.waitFor('orders', position)
  expect((await shop.store.documents(orders).get('order-1'))?.data).toMatchObject({ total: 3 })
  await waitUntil(async () => (await shop.store.consumers.status('order-totals')).isPaused)
  expect(await shop.store.consumers.status('order-totals')).toMatchObject({ lastError: { message: 'broken' } })
})

test('RB-19: two stores in one database pause and count independently', async () => {
  const first = await openShop()
  const second = await openShop()
  await first.store.projections.register(totals())
  await second.store.projections.register(totals())
  await first.store.events.append('order-1', placed(1))
  await second.store.events.append('order-1', placed(2))

  await first.store.consumers.pause('order-totals')

  expect(await first.store.consumers.runOnce('order-totals')).toEqual({ result: 'paused', count: 0 })
  expect(await second.store.consumers.runOnce('order-totals')).toEqual({ result: 'processed', count: 1 })
  expect(await totalRows(second)).toEqual([{ stream: 'order-1', orders: 1, total: '2' }])
})
