import { expect, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { fakeClock, testStore } from '../../src/testing/testing.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { openDatabase } from '../support/engines.ts'
import { placed, type ShopMap, shopEvents } from '../support/shop.ts'

const day = 86_400_000
const events = shopEvents
const at = '2030-01-01T00:00:00.000Z'
const openAt = async (options: Parameters<typeof testStore<ShopMap>>[0] = {}) =>
  testStore<ShopMap>({ events, logger: false, ...options }, { database: await openDatabase(), at })

/** To the second: a due time is passed by a few milliseconds. */
const seconds = (date: Date) => date.toISOString().slice(0, 19)
const timesOf = async (store: Awaited<ReturnType<typeof openAt>>) =>
  (await store.events.readAll().toArray()).map(({ type, createdAt }) => `${type} ${seconds(createdAt)}`)

test('three days later the reminder of an order that was not paid is sent, without a runner', async () => {
  const remind = defineHandler('remind', {
    events,
    on: 'OrderPlaced',
    async run(event, { waitForEvent, emit }) {
      const answer = await waitForEvent('OrderPaid', { timeoutMs: 3 * day })
      return answer === undefined ? emit('OrderShipped', { parcel: `reminder for ${event.data.total}` }) : []
    },
  })
  await using store = await openAt({ handlers: [remind] })
  const late = await store.workflows.publish('OrderPlaced', { total: 1 })
  const punctual = await store.workflows.publish('OrderPlaced', { total: 2 })
  await store.advance()
  await punctual.signal('OrderPaid', { method: 'card' })

  await store.advance({ days: 2, hours: 23 })
  const before = await late.status()
  const now = await store.advance({ hours: 1 })

  expect(before.isSettled).toBe(false)
  expect((await late.status()).isSettled).toBe(true)
  expect((await store.events.readAll({ types: ['OrderShipped'] }).toArray()).map(({ data }) => data)).toEqual([
    { parcel: 'reminder for 1' },
  ])
  expect(seconds(now)).toBe('2030-01-04T00:00:00')
})

test('retries, delays and sleeps of handlers run at their due times', async () => {
  let failures = 2
  const charge = defineHandler('charge', {
    events,
    on: 'OrderPlaced',
    retries: 3,
    backoff: { baseMs: 60_000, factor: 2, maxMs: 600_000, jitter: 0 },
    async run(_, { emit, sleep }) {
      if (failures-- > 0) throw new Error('the bank is closed')
      await sleep(2 * 3_600_000)
      return emit('OrderPaid', { method: 'card' })
    },
  })
  const ship = defineHandler('ship', {
    events,
    on: 'OrderPaid',
    delayMs: day,
    run: (_, { emit }) => emit('OrderShipped', { parcel: 'p' }),
  })
  await using store = await openAt({ handlers: [charge, ship] })
  await store.workflows.publish('OrderPlaced', { total: 1 })

  await store.advance({ days: 2 })

  expect(await timesOf(store)).toEqual([
    'OrderPlaced 2030-01-01T00:00:00',
    'OrderPaid 2030-01-01T02:03:00',
    'OrderShipped 2030-01-02T02:03:00',
  ])
})

test('a schedule runs at each of its times, and a report counts the days', async () => {
  const nightly = defineSchedule('nightly', {
    cron: '0 3 * * *',
    timeZone: 'UTC',
    run: ({ emit }) => emit('OrderShipped', { parcel: 'report' }),
  })
  const reports = defineDocumentProjection('reports', {
    events,
    identity: () => 'all',
    initial: () => ({ count: 0 }),
    evolve: { OrderShipped: ({ count }) => ({ count: count + 1 }) },
  })
  await using store = await openAt({ schedules: [nightly], projections: [reports] })

  await store.advance({ days: 3 })

  expect(await timesOf(store)).toEqual([1, 2, 3].map(night => `OrderShipped 2030-01-0${night}T03:00:00`))
  expect((await store.documents(reports).get('all'))?.data).toEqual({ count: 3 })
})

test('a projection and a subscription that fail are tried again at their due times', async () => {
  const tries: string[] = []
  const backoff = { baseMs: 3_600_000, factor: 1, maxMs: 3_600_000, jitter: 0 }
  const failOnce = (name: string) => {
    tries.push(name)
    if (tries.filter(each => each === name).length === 1) throw new Error('not yet')
  }
  const totals = defineDocumentProjection('totals', {
    events,
    backoff,
    initial: () => ({ total: 0 }),
    evolve: {
      OrderPlaced(document, event) {
        failOnce('totals')
        return { total: document.total + event.data.total }
      },
    },
  })
  const mailer = defineSubscription('mailer', { events, backoff, run: () => failOnce('mailer') })
  await using store = await openAt({ projections: [totals], subscriptions: [mailer] })
  await store.events.append('order-1', placed(4))

  await store.advance({ minutes: 59 })
  const early = [...tries].sort()
  await store.advance({ minutes: 2 })

  expect(early).toEqual(['mailer', 'totals'])
  expect([...tries].sort()).toEqual(['mailer', 'mailer', 'totals', 'totals'])
  expect((await store.documents(totals).get('order-1'))?.data).toEqual({ total: 4 })
})

test('retention deletes what is older than it allows', async () => {
  await using store = await openAt({ retention: { idempotencyKeysMs: 7 * day } })
  await store.events.append('order-1', placed(1), { idempotencyKey: 'order-1' })

  await store.advance({ days: 6 })
  const within = await store.events.append('order-1', placed(1), { idempotencyKey: 'order-1' })
  await store.advance({ days: 2 })
  const after = await store.events.append('order-1', placed(1), { idempotencyKey: 'order-1' })

  expect([within.repeated, after.repeated]).toEqual([true, false])
  expect(seconds((await store.events.read('order-1').toArray())[1]!.createdAt)).toBe('2030-01-09T00:00:00')
})

test('the times of two test stores of one engine are independent, and the next store begins at the present', async () => {
  const database = await openDatabase()
  {
    await using future = await testStore({ events }, { database })
    await using present = await testStore({ events }, { database })
    await future.advance({ days: 400 })
    await future.events.append('order-1', placed(1))
    await present.events.append('order-1', placed(1))

    const [late] = await future.events.readAll().toArray()
    const [now] = await present.events.readAll().toArray()
    expect(late!.createdAt.getTime() - now!.createdAt.getTime()).toBeGreaterThan(399 * day)
    expect((await future.schema.check()).problems).toEqual([])
    expect(future.newId('order') > present.newId('order')).toBe(true)
  }
})

test('a runner of the test is paused while the time is moved, and goes on after it', async () => {
  const pay = defineHandler('pay', {
    events,
    on: 'OrderPlaced',
    delayMs: day,
    run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
  })
  await using store = await openAt({ handlers: [pay] })
  await using runner = await store.start()
  const workflow = await store.workflows.publish('OrderPlaced', { total: 1 })
  const waiting = workflow.waitUntilSettled({ timeoutMs: 60_000 })

  await store.advance({ days: 400 })
  await waiting

  expect((await store.events.readAll().toArray()).map(({ type }) => type)).toEqual(['OrderPlaced', 'OrderPaid'])
  expect(runner.isRunning).toBe(true)
  expect(runner.role).toBe('active')
})

test('a fake clock of the process moves with the time of the store', async () => {
  const clock = fakeClock(at)
  await using store = await testStore({ events, clock }, { database: await openDatabase() })

  await store.advance({ days: 1 })

  expect(clock.now()).toEqual(new Date('2030-01-02T00:00:00Z'))
})

test('time does not go back, a misspelt unit is named, and work without an end is given up', async () => {
  const again = defineHandler('again', {
    events,
    on: 'OrderPlaced',
    run: (event, { emit }) => emit('OrderPlaced', event.data),
  })
  await using store = await testStore<ShopMap>(
    { events, handlers: [again], logger: false, workflows: { maxHops: 1_000_000 } },
    { database: await openDatabase() },
  )

  expect(() => store.advance({ days: -1 })).toThrow('time does not go back')
  expect(() => store.advance({ day: 1 } as object)).toThrow('days')
  await store.workflows.publish('OrderPlaced', { total: 1 })
  await expect(store.advance({}, { timeoutMs: 300 })).rejects.toMatchObject({ code: 'timed_out' })
})
