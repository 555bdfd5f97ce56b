import { expect, test } from 'vitest'
import { complete } from '../../src/workflows/emit.ts'
import type { AnyHandlerOptions } from '../../src/workflows/handler.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, outcome, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

interface Books extends Shop {
  readonly flows: Shop['store']['workflows']
  /** The booked totals, in order. */
  readonly booked: number[]
  readonly tried: number[]
  /** The orders that cannot be booked. */
  readonly bad: Set<number>
  place(order: string, ...totals: number[]): Promise<void>
  letterOf(total: number): Promise<{ eventId: string; state: string }>
}

/** An ordered handler that books orders: a failure parks its lane. */
async function openBooks(options: Partial<AnyHandlerOptions> = {}): Promise<Books & AsyncDisposable> {
  const shop = await openShop()
  const flows = shop.store.workflows
  const [booked, tried, bad] = [[] as number[], [] as number[], new Set([1])]
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      onFailure: 'park',
      retries: 0,
      ...(options as object),
      run: event => {
        const { total } = event.data
        tried.push(total)
        if (bad.has(total)) throw new Error('the pen is dry')
        return complete(async () => booked.push(total))
      },
    }),
  )
  const worker = flows.worker({ pollMs: 50 })
  await worker.start()
  return {
    ...{ ...shop, flows, booked, tried, bad },
    async place(order, ...totals) {
      for (const total of totals) await flows.publish('OrderPlaced', { total }, { correlationId: order })
      await waitUntil(async () => (await flows.get(order).status()).state !== 'running', { what: 'rest' })
    },
    async letterOf(total) {
      const deadLetters = await flows.deadLetters.list()
      const shown = await Promise.all(deadLetters.map(each => flows.deadLetters.show(each.handler, each.eventId)))
      return shown.find(deadLetter => (deadLetter.event!.data as { total: number }).total === total)!
    },
    [Symbol.asyncDispose]: () => worker.stop(),
  }
}

test('a lane is parked with the dead letter of its head: later events queue, and other lanes continue', async () => {
  await using books = await openBooks()

  await books.place('order-1', 1, 2, 3)
  await books.place('order-2', 4)

  expect(books.booked).toEqual([4])
  expect(await books.flows.get('order-1').status()).toMatchObject({ state: 'waiting', pending: 2, deadLetters: 1 })
  const { eventId } = await books.letterOf(1)
  expect((await books.flows.lanes.list({ isParked: true })).items).toEqual([
    { handler: 'book', key: 'order-1', isParked: true, parkedFor: eventId, open: 2 },
  ])
})

test('a parked lane stays parked when nothing is in it', async () => {
  await using books = await openBooks()
  await books.place('order-1', 1)

  await books.place('order-1', 2)

  expect(books.tried).toEqual([1])
  expect((await books.flows.lanes.list()).items).toMatchObject([{ isParked: true, open: 1 }])
})

test('a retry of the dead letter runs in the parked lane, and unparks it', async () => {
  await using books = await openBooks()
  await books.place('order-1', 1, 2, 3)
  books.bad.clear()

  await books.flows.deadLetters.retry('book', (await books.letterOf(1)).eventId)
  await books.flows.get('order-1').waitUntilSettled()

  expect(books.booked).toEqual([1, 2, 3])
  expect(await books.letterOf(1)).toMatchObject({ state: 'replayed' })
  expect((await books.flows.lanes.list()).items).toEqual([])
})

test('a retry that fails again leaves the lane parked', async () => {
  await using books = await openBooks({ retries: 1, backoff: { baseMs: 1 } })
  await books.place('order-1', 1, 2)

  await books.flows.deadLetters.retry('book', (await books.letterOf(1)).eventId)
  await waitUntil(() => books.tried.length === 4)
  await waitUntil(async () => (await books.letterOf(1)).state === 'open')

  expect(books.tried).toEqual([1, 1, 1, 1])
  expect((await books.flows.lanes.list()).items).toMatchObject([{ isParked: true, open: 1 }])
})

test('a parked lane can be unparked without its dead letter', async () => {
  await using books = await openBooks()
  await books.place('order-1', 1, 2)

  const count = await books.flows.lanes.unpark('book', { key: 'order-1' })
  await books.flows.get('order-1').waitUntilSettled()
  const again = await outcome(books.flows.lanes.unpark('book', { key: 'order-1' }))

  expect(count).toBe(1)
  expect(books.booked).toEqual([2])
  expect(await books.letterOf(1)).toMatchObject({ state: 'open' })
  expect(again.error).toMatchObject({ code: 'lane_not_parked', handler: 'book', key: 'order-1' })
})

test('all parked lanes of a handler can be unparked at once', async () => {
  await using books = await openBooks()
  for (const order of ['order-1', 'order-2', 'order-3']) await books.place(order, 1, 2)
  const page = await books.flows.lanes.list({ handler: 'book', limit: 2 })
  const rest = await books.flows.lanes.list({ handler: 'book', limit: 2, after: page.next })

  const count = await books.flows.lanes.unpark('book')
  for (const order of ['order-1', 'order-2', 'order-3']) await books.flows.get(order).waitUntilSettled()

  expect([...page.items, ...rest.items].map(lane => lane.key)).toEqual(['order-1', 'order-2', 'order-3'])
  expect(count).toBe(3)
  expect(books.booked).toEqual([2, 2, 2])
  expect((await books.flows.lanes.list()).items).toEqual([])
})

test('several dead letters of a parked lane are retried in the order of their events', async () => {
  await using books = await openBooks()
  books.bad.add(2)
  await books.place('order-1', 1, 2, 3)
  await books.flows.lanes.unpark('book', { key: 'order-1' })
  await waitUntil(async () => (await books.flows.deadLetters.list()).length === 2)
  books.bad.clear()

  const asked = await books.flows.deadLetters.retryAll({ handler: 'book' }, { perSecond: 1_000 })
  await books.flows.get('order-1').waitUntilSettled()

  expect(asked.requested).toBe(2)
  expect(books.booked).toEqual([1, 2, 3])
})

test('a retry of a dead letter that does not hold the lane leaves it parked', async () => {
  await using books = await openBooks()
  books.bad.add(2)
  await books.place('order-1', 1, 2, 3)
  await books.flows.lanes.unpark('book', { key: 'order-1' })
  await waitUntil(async () => (await books.flows.deadLetters.list()).length === 2)
  books.bad.clear()

  await books.flows.deadLetters.retry('book', (await books.letterOf(1)).eventId)
  await waitUntil(async () => (await books.letterOf(1)).state === 'replayed')

  expect(books.booked).toEqual([1])
  expect((await books.flows.lanes.list()).items).toMatchObject([
    { isParked: true, parkedFor: (await books.letterOf(2)).eventId },
  ])
})

test('a lane of a key is parked across workflows', async () => {
  await using books = await openBooks({ ordered: () => 'north/south' })
  await books.place('order-1', 1)
  await books.place('order-2', 2)
  const parked = (await books.flows.lanes.list({ isParked: true })).items
  books.bad.clear()

  await books.flows.deadLetters.retry('book', (await books.letterOf(1)).eventId)
  await books.flows.get('order-2').waitUntilSettled()

  expect(parked).toMatchObject([{ handler: 'book', key: 'north/south', open: 1 }])
  expect(books.booked).toEqual([1, 2])
  expect((await books.flows.lanes.list()).items).toEqual([])
})

test('an inline handler can be parked as well: then later events queue', async () => {
  await using books = await openBooks({ ordered: undefined, inline: true })
  await books.place('order-1', 1)
  await books.place('order-1', 2)
  books.bad.clear()

  await books.flows.deadLetters.retry('book', (await books.letterOf(1)).eventId)
  await books.flows.get('order-1').waitUntilSettled()

  expect(books.booked).toEqual([1, 2])
})

test('only ordered handlers can be parked', async () => {
  const { store } = await openShop()

  expect(() =>
    store.workflows.register(defineHandler('book', { on: 'OrderPlaced', onFailure: 'park', run: () => undefined })),
  ).toThrow(expect.objectContaining({ code: 'invalid_option', option: 'onFailure' }))
})
