import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { Activity } from '../../src/workflows/insight/activity.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, outcome, type Shop, shopEvents, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { positionsOf, writeActivity } from './activity-rows.ts'

/** So long that lines are found by notifications, not by polling. */
const never = 600_000

const reported = (lines: readonly Activity[]): string[] => lines.map(line => `${line.kind} ${line.handler}`)

async function all(lines: AsyncIterable<Activity>): Promise<Activity[]> {
  const found: Activity[] = []
  for await (const line of lines) found.push(line)
  return found
}

/** Paying causes shipping. */
async function openTwoStages(options: Parameters<typeof openShop>[0] = {}): Promise<Shop> {
  const shop = await openShop(options)
  shop.store.workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }),
    }),
  )
  shop.store.workflows.register(defineHandler('ship', { on: 'OrderPaid', run: () => {} }))
  return shop
}

const stages = ['pay', 'ship'].flatMap(name => ['dispatched', 'started', 'completed'].map(kind => `${kind} ${name}`))

test('pages of activity go into the past, of one workflow and of all', async () => {
  const { store } = await openTwoStages()
  const flows = store.workflows
  await using worker = workerOf(store)
  await worker.start()
  for (const id of ['order-1', 'order-2'])
    await (await flows.publish('OrderPlaced', { total: 1 }, { correlationId: id })).waitUntilSettled()
  const lines = await take(flows.get('order-1').watch(), 6)

  const newest = await flows.get('order-1').activity({ before: 'now', limit: 4 })
  const older = await flows.get('order-1').activity({ before: 'now', limit: 4, after: newest.next })
  const before = await flows.get('order-1').activity({ before: lines[2]!.position })
  const everything = await flows.activity({ limit: 3 })
  const past = await flows.activity({ limit: 1_000, after: everything.next })

  expect([...newest.items, ...older.items]).toEqual(lines.toReversed())
  expect({ next: older.next, before: reported(before.items) }).toEqual({
    next: undefined,
    before: ['started pay', 'dispatched pay'],
  })
  expect(everything.items.map(({ correlationId }) => correlationId)).toEqual(['order-2', 'order-2', 'order-2'])
  expect(past.items).toHaveLength(9)
})

test('SB-02: a watch that begins before a workflow delivers each step once, in order', async () => {
  const { store } = await openTwoStages()
  const flows = store.workflows
  const watching = take(flows.get('order-1').watch(), 6)
  await using worker = workerOf(store)
  await worker.start()

  await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-1' })
  const lines = await watching

  expect(reported(lines)).toEqual(stages)
  expect(lines[0]).toMatchObject({ correlationId: 'order-1', attempt: 0, version: 1, eventType: 'OrderPlaced' })
  expect(lines[2]).toMatchObject({ attempt: 1, queuedMs: expect.any(Number), runningMs: expect.any(Number) })
})

test('SB-02: a watch that begins in the middle of a workflow, or after it, misses nothing', async () => {
  const { store } = await openTwoStages()
  const flows = store.workflows
  await using worker = workerOf(store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const first = await take(flow.watch(), 2)

  const rest = await all(flow.watch({ from: first[1]!.position, until: 'settled' }))
  const whole = await all(flow.watch({ until: 'settled' }))

  expect(reported([...first, ...rest])).toEqual(stages)
  expect(reported(whole)).toEqual(stages)
})

test('watching until settled ends after the last line, also where no handler ran', async () => {
  const { store } = await openTwoStages()
  const flows = store.workflows
  await using worker = workerOf(store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const quiet = await flows.publish('OrderShipped', { parcel: 'p' })

  expect(reported(await all(flow.watch({ until: 'settled' })))).toEqual(stages)
  expect(await all(quiet.watch({ until: 'settled' }))).toEqual([])
})

test('SB-28: of a burst of 10,000 lines each is delivered once, in order', async () => {
  const shop = await openShop({ pollMs: 5 })
  const watching = take(shop.store.workflows.watch({ from: 'start' }), 10_000)

  for (let n = 0; n < 20; n++) await writeActivity(shop, 500, `order-${n % 3}`)
  const positions = (await watching).map(line => line.position)

  expect(positions).toEqual(await positionsOf(shop))
})

test('SB-29: past and new lines have one order, and every position leads to exactly the rest', async () => {
  const shop = await openShop({ pollMs: 5 })
  const { workflows } = shop.store
  await writeActivity(shop, 4)
  const watching = take(workflows.watch({ from: 'start' }), 8)
  await writeActivity(shop, 4)

  const positions = (await watching).map(line => line.position)

  expect(positions).toEqual(await positionsOf(shop))
  for (const [at, after] of positions.slice(0, -1).entries()) {
    const rest = await take(workflows.watch({ from: after }), positions.length - at - 1)
    expect(rest.map(line => line.position)).toEqual(positions.slice(at + 1))
  }
})

test('SB-30: there is no gap between past and new lines, and a filter applies to both', async () => {
  const { store } = await openTwoStages({ pollMs: never })
  const flows = store.workflows
  await using worker = workerOf(store)
  await worker.start()
  const first = await flows.publish('OrderPlaced', { total: 1 })
  const second = await flows.publish('OrderPlaced', { total: 2 })
  await Promise.all([first.waitUntilSettled(), second.waitUntilSettled()])

  const ofOne = take(flows.watch({ from: 'start', correlationId: first.correlationId }), 9)
  const ofHandler = take(flows.watch({ from: 'start', handler: 'ship' }), 9)
  const ends = take(flows.watch({ from: 'start', kinds: ['completed'], handler: 'pay' }), 3)
  await flows.publish('OrderPaid', { method: 'cash' }, { correlationId: first.correlationId })
  await flows.publish('OrderPlaced', { total: 3 }, { correlationId: second.correlationId })

  expect(reported(await ofOne)).toEqual([...stages, 'dispatched ship', 'started ship', 'completed ship'])
  expect(new Set((await ofHandler).map(line => line.handler))).toEqual(new Set(['ship']))
  expect(reported(await ends)).toEqual(['completed pay', 'completed pay', 'completed pay'])
})

test('watching all workflows begins with new lines, unless a position is given', async () => {
  const shop = await openShop({ pollMs: 5 })
  await writeActivity(shop, 3)
  const before = shop.store.metrics().settles_total

  const watching = take(shop.store.workflows.watch(), 1)
  // The first query finds the current end, the second that there is nothing new.
  await waitUntil(() => shop.store.metrics().settles_total >= before + 2)
  await writeActivity(shop, 1, 'order-2')

  expect(await watching).toMatchObject([{ correlationId: 'order-2' }])
})

test('SB-31: leaving a watch, also while it waits, releases everything immediately', async () => {
  const shop = await openShop({ pollMs: 1 })
  await writeActivity(shop, 1)
  const watch = shop.store.workflows.get('order-1').watch()[Symbol.asyncIterator]()
  await watch.next()
  const waiting = watch.next()

  await watch.return?.()

  expect(await waiting).toEqual({ done: true, value: undefined })
  expect(await watch.next()).toEqual({ done: true, value: undefined })
  const looks = shop.store.metrics().settles_total
  await writeActivity(shop, 5)
  expect(shop.store.metrics().settles_total).toBe(looks)
})

test('SB-31: a watch reads at most a page ahead of its reader', async () => {
  const shop = await openShop({ pollMs: never })
  await writeActivity(shop, 3_000)
  const watch = shop.store.workflows.watch({ from: 'start' })[Symbol.asyncIterator]()
  await watch.next()

  // Lines after the page that was read are deleted before they are read.
  await shop.query(
    'delete from ~workflow_activity where position > (select min(position) + 255 from ~workflow_activity)',
  )
  await writeActivity(shop, 1, 'order-2')

  const seen: string[] = []
  for (let n = 1; n < 257; n++) seen.push((await watch.next()).value!.correlationId)
  expect(seen.slice(0, -1)).toEqual(Array(255).fill('order-1'))
  expect(seen.at(-1)).toBe('order-2')
  await watch.return?.()
})

test('SB-31: a watch ends quietly with its signal, and with its store', async () => {
  const { store } = await openShop({ pollMs: never })
  const abort = new AbortController()
  const before = store.metrics().settles_total
  const aborted = outcome(take(store.workflows.watch({ signal: abort.signal }), 1))
  const closed = outcome(take(store.workflows.get('order-1').watch(), 1))
  const ending = outcome(all(store.workflows.get('order-1').watch({ until: 'settled', signal: abort.signal })))
  await waitUntil(() => store.metrics().settles_total >= before + 3)

  abort.abort('closing time')
  const late = outcome(take(store.workflows.watch({ signal: abort.signal }), 1))

  expect(await aborted).toEqual({ value: [] })
  expect(await late).toEqual({ value: [] })
  expect(await ending).toEqual({ value: [] })
  await store.close()
  expect((await closed).error).toMatchObject({ code: 'store_closed' })
})

test('a watch from an invalid position, with an invalid filter, or inside a transaction is refused', async () => {
  const { store } = await openShop()
  const flows = store.workflows

  for (const after of [5n, -1, 'yesterday'])
    expect(() => flows.watch({ from: after as 'now' })).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  expect(() => flows.watch({ kinds: 'failed' as never })).toThrow(expect.objectContaining({ option: 'kinds' }))
  expect(() => flows.get('a').watch({ until: 'tomorrow' as never })).toThrow(
    expect.objectContaining({ option: 'until' }),
  )
  const { error } = await outcome(store.transaction(() => take(flows.watch(), 1)))
  expect(error).toMatchObject({ code: 'inside_transaction' })
})

test('a line can be serialized as JSON', async () => {
  const shop = await openShop({ pollMs: 5 })
  await writeActivity(shop, 1)

  const [line] = await take(shop.store.workflows.watch({ from: 'start' }), 1)

  expect(JSON.parse(JSON.stringify(line))).toMatchObject({ position: line!.position, kind: 'dispatched' })
})
