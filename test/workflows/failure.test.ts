import { expect, test } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { ConnectionLost } from '../../src/database/errors.ts'
import { batch, complete, emit } from '../../src/workflows/emit.ts'
import type { TerminalFailure } from '../../src/workflows/handler.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const fails = (): never => {
  throw new Error('no money')
}

interface Emitted {
  readonly id: string
  readonly data: unknown
  readonly workflow: Record<string, unknown>
}

async function shippedIn({ query }: Shop): Promise<Emitted[]> {
  return query<Emitted>(`select event_id as id, data, headers->'workflow' as workflow from ~events
    where type = 'OrderShipped' order by position`)
}

test('SB-19: events of onDeadLetter are emitted once, with the dead letter, and carry the true reason', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const failures: TerminalFailure[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ...{ retries: 1, backoff: { baseMs: 1 }, timeoutMs: 20 },
      onDeadLetter(failure, ctx) {
        failures.push(failure)
        return ctx.emit('OrderShipped', { parcel: `${failure.reason} of ${failure.event.data.total}` })
      },
      run: () => new Promise<never>(() => {}),
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const status = await flow.waitUntilSettled()

  expect(status).toMatchObject({ state: 'failed', lastType: 'OrderShipped', deadLetters: 1 })
  expect(failures).toMatchObject([
    { handler: 'pay', reason: 'timeout', attempt: 2, error: { code: 'execution_timeout' } },
  ])
  expect(await shippedIn(shop)).toMatchObject([
    { data: { parcel: 'timeout of 1' }, workflow: { handler: 'pay', failed: 'pay', hops: 1 } },
  ])
  const [event] = await shop.query(`select correlation_id, causation_id from ~events where type = 'OrderShipped'`)
  const [deadLetter] = (await shop.store.deadLetters.list()).items
  expect(event).toEqual({ correlation_id: flow.correlationId, causation_id: deadLetter!.eventId })
})

test('SB-18: events of onDeadLetter never run the handler that failed, whatever it subscribes to', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('audit', {
      events: shopEvents,
      on: '*',
      onDeadLetter: ({ event }, ctx) => ctx.emit(event.type, event.data as never),
      retries: 0,
      run: event => {
        seen.push(`audit ${event.type}`)
        throw new Error('full')
      },
    }),
  )
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (event, ctx) => {
        seen.push(`pay ${event.type} ${ctx.attempt}`)
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const status = await flow.waitUntilSettled()

  expect(seen.sort()).toEqual(['audit OrderPlaced', 'pay OrderPlaced 1', 'pay OrderPlaced 1'])
  expect(status.deadLetters).toBe(1)
})

test('onDeadLetter is called each time a dead letter fails again', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      onDeadLetter: () => emit('OrderShipped', { parcel: 'none' }),
      retries: 0,
      run: fails,
    }),
  )
  await using worker = workerOf(shop.store, { pollMs: 50 })
  await worker.start()
  await (await flows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()
  const [deadLetter] = (await shop.store.deadLetters.list()).items

  for (let n = 2; n <= 3; n++) {
    await shop.store.deadLetters.retry('pay', deadLetter!.eventId)
    await waitUntil(async () => (await shippedIn(shop)).length === n)
  }

  expect(new Set((await shippedIn(shop)).map(event => event.id)).size).toBe(3)
  expect(await shop.store.deadLetters.show('pay', deadLetter!.eventId)).toMatchObject({ state: 'open', attempts: 3 })
})

test('writes of onDeadLetter are stored with the dead letter', async () => {
  const { store, query, named } = await openShop()
  await query('create table ~complaints (line text)')
  const flows = store.workflows
  const write = named('insert into ~complaints values ($1)')
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      onDeadLetter: ({ reason }) => complete(tx => tx.query(write, [reason])),
      retries: 0,
      run: fails,
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await (await flows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  expect(await query('select line from ~complaints')).toEqual([{ line: 'failed' }])
  expect((await store.deadLetters.list()).items).toMatchObject([{ state: 'open', reason: 'failed' }])
})

for (const [what, { onDeadLetter, noted, clock }] of Object.entries({
  throws: {
    onDeadLetter: () => {
      throw new TypeError('the printer is off')
    },
    noted: 'TypeError: the printer is off',
  },
  'fails because its own database is unavailable': {
    onDeadLetter: () => {
      throw new ConnectionLost({ reason: 'the books are closed' })
    },
    noted: 'ConnectionLost: ',
  },
  'returns something other than emissions': {
    onDeadLetter: () => 'sorry',
    noted: 'InvalidResult: Handler "pay" returned',
  },
  'emits an event that cannot be stored': {
    onDeadLetter: () => emit('OrderShipped', { parcel: 'x' }, { stream: 'order-1', expected: 7 }),
    noted: 'VersionConflict: ',
  },
  'writes rows that cannot be stored': {
    onDeadLetter: () => complete(tx => tx.query('select 1 / 0')),
    noted: 'division by zero',
  },
  'never returns': { onDeadLetter: () => new Promise(() => {}), noted: 'TimedOut: ', clock: hasty(5_000) },
} as Record<string, { onDeadLetter: () => unknown; noted: string; clock?: Clock }>))
  test(`the dead letter is stored although onDeadLetter ${what}, and records that`, async () => {
    const shop = await openShop({ clock })
    const flows = shop.store.workflows
    flows.register(
      defineHandler('pay', {
        events: shopEvents,
        on: 'OrderPlaced',
        onDeadLetter: onDeadLetter as never,
        retries: 0,
        run: fails,
      }),
    )
    await using worker = workerOf(shop.store)
    await worker.start()

    const status = await (await flows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

    expect(status).toMatchObject({ state: 'failed', deadLetters: 1 })
    const [deadLetter] = (await shop.store.deadLetters.list()).items
    expect(deadLetter).toMatchObject({ reason: 'failed', lastError: { message: 'no money' } })
    expect(deadLetter!.lastError.onDeadLetter).toContain(noted)
    expect(await shippedIn(shop)).toEqual([])
  })

test('a result that cannot be stored becomes a dead letter, even if onDeadLetter fails as well', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const nowhere = { stream: 'order-1', expected: 7 }
  const onDeadLetter = () => emit('OrderShipped', { parcel: 'x' }, nowhere)
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      onDeadLetter,
      retries: 0,
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }, nowhere),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await (await flows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  const [deadLetter] = (await store.deadLetters.list()).items
  expect(deadLetter).toMatchObject({ reason: 'failed', lastError: { code: 'version_conflict' } })
  expect(deadLetter!.lastError.onDeadLetter).toContain('VersionConflict')
})

test('an event that exceeded its depth calls onDeadLetter, and handlers that fail because of each other end', async () => {
  const shop = await openShop({ workflows: { maxHops: 3 } })
  const flows = shop.store.workflows
  const again = () => emit('OrderShipped', { parcel: 'again' })
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: ['OrderPlaced', 'OrderShipped'],
      onDeadLetter: again,
      retries: 0,
      run: fails,
    }),
  )
  flows.register(
    defineHandler('ship', {
      events: shopEvents,
      on: ['OrderPlaced', 'OrderShipped'],
      onDeadLetter: again,
      retries: 0,
      run: fails,
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()

  const status = await (await flows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  const deadLetters = (await shop.store.deadLetters.list()).items
  expect(status.deadLetters).toBe(deadLetters.length)
  // Two chains in parallel: either may be ahead.
  expect((await shippedIn(shop)).map(({ workflow }) => workflow.hops).sort()).toEqual([1, 1, 2, 2, 3, 3, 4, 4])
  expect(deadLetters.filter(deadLetter => deadLetter.lastError.onDeadLetter?.includes('HopsExceeded'))).toHaveLength(2)
})

test('an event of onDeadLetter of one of a batch has its place in the batch', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(
    defineHandler('split', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => batch([emit('OrderPaid', { method: 'card' }), emit('OrderPaid', { method: 'cash' })]),
    }),
  )
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPaid',
      onDeadLetter: () => emit('OrderShipped', { parcel: 'none' }),
      retries: 0,
      run: event => {
        if (event.data.method === 'cash') throw new Error('no change')
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()

  await (await flows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  expect(await shippedIn(shop)).toMatchObject([
    { workflow: { failed: 'book', batches: [{ id: expect.any(String), index: 1, size: 2 }] } },
  ])
})

/** A clock whose timers of this length fire immediately. */
function hasty(length: number): Clock {
  return { ...systemClock, setTimeout: (fn, ms) => systemClock.setTimeout(fn, ms === length ? 1 : ms) }
}
