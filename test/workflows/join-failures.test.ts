import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { batch, emit } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { JoinPolicy } from '../../src/workflows/joins/join.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { pruneAttempts } from '../../src/workflows/retention.ts'
import { claim, drawFences } from '../../src/workflows/work/claim.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { enterWorker, workerOf } from '../support/run-worker.ts'
import { waitUntil } from '../support/wait.ts'
import {
  checkEvents,
  deadLettersOf,
  expectNothingOpen,
  fanOut,
  joinsOf,
  type OrderChecks,
  openOrderChecks,
  settled,
} from './order-checks.ts'

test('SB-13: the run of a join is taken over from a worker that dies', async () => {
  const checks = await openOrderChecks()
  const { flows, query } = checks
  const seen: string[] = []
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: (event, { emit }) => emit('OrderChecked', event.data),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: (events, ctx) => {
        seen.push(`${events.map(event => event.data.item)} in attempt ${ctx.attempt}`)
      },
    }),
  )
  await using worker = workerOf(checks.store, { handlers: ['fan-out', 'check'] })
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { items: ['pen', 'ink'] })
  await waitUntil(async () => (await query('select 1 from ~workflow_executions where join_id is not null')).length > 0)
  const { log } = openConsumerParts(checks)
  const [route] = await query<{ id: number }>("select id from ~workflow_routes where handler = 'clear'")
  const dead = { owner: 'gone/1', routes: [route!.id] }
  await enterWorker(log, { ...dead, leaseMs: 60_000, concurrency: 1 })
  const taken = await claim(log, { ...dead, fence: await drawFences(log)(), limit: 1, ahead: 0, graceMs: 0 })
  await query(`update ~runners set heartbeat_at = '-infinity' where id = $1`, [dead.owner])

  await using other = workerOf(checks.store, { handlers: ['clear'], pollMs: 20 })
  await other.start()
  await settled(flow)

  expect(taken).toHaveLength(1)
  expect(seen).toEqual(['pen,ink in attempt 2'])
  await expectNothingOpen(checks)
})

test('SB-15: a join whose handler fails is retried, then dead-lettered, and leaves nothing open', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[] = []
  let isBroken = true
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: (event, { emit }) => emit('OrderChecked', event.data),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      retries: 1,
      backoff: { baseMs: 1 },
      run: (events, ctx) => {
        seen.push(`${events.map(event => event.data.item)} of ${ctx.join.size}`)
        if (isBroken) throw new Error('the clerk is ill')
        return ctx.emit('OrderCleared', { items: events.map(event => event.data.item) })
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { items: ['pen', 'ink'] })

  const failed = await settled(flow)
  const deadLetters = await deadLettersOf(checks)
  await expectNothingOpen(checks)
  isBroken = false
  await retry(checks, 'clear')
  const replayed = await settled(flow)

  expect(failed.state).toBe('failed')
  expect(deadLetters).toMatchObject([{ consumer: 'handler:clear', reason: 'max_retries', attempts: 2, state: 'open' }])
  expect(replayed).toMatchObject({ state: 'settled', lastType: 'OrderCleared' })
  expect(await deadLettersOf(checks)).toMatchObject([{ state: 'replayed' }])
  expect(seen).toEqual(['pen,ink of 2', 'pen,ink of 2', 'pen,ink of 2'])
  await expectNothingOpen(checks)
})

/** A shop in which the check of the pen fails until it is fixed, and that of the ink takes as long as the test wants. */
async function openMendable(policy: JoinPolicy) {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[] = []
  const pen = { isBroken: true }
  const ink = deferred<void>()
  fanOut(flows, { join: 'clear' })
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      retries: 0,
      run: async ({ data }, { emit }) => {
        if (data.item === 'pen' && pen.isBroken) throw new Error('the pen is broken')
        if (data.item === 'ink') await ink.promise
        return emit('OrderChecked', data)
      },
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      policy,
      retries: 0,
      run: (events, { join }) => {
        seen.push(`${events.map(event => event.data.item)}, failed ${join.failed.length}, partial ${join.isPartial}`)
      },
    }),
  )
  const worker = workerOf(checks.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { items: ['pen', 'ink'] })
  await waitUntil(async () => (await deadLettersOf(checks)).some(({ consumer }) => consumer === 'handler:check'))
  return { checks, flow, seen, pen, ink, [Symbol.asyncDispose]: () => worker.stop() }
}

test('a failed branch whose dead letter is retried in time counts as arrived', async () => {
  await using shop = await openMendable('allSettled')
  const { checks, pen, ink, flow } = shop

  pen.isBroken = false
  await retry(checks, 'check')
  ink.resolve()
  await settled(flow)

  expect(shop.seen).toEqual(['pen,ink, failed 0, partial false'])
  expect(await joinsOf(checks)).toMatchObject([{ state: 'closed', arrived: 2, failed: 0 }])
  await expectNothingOpen(checks)
})

test('the retried dead letter of a failed join runs with all events that have arrived since', async () => {
  await using shop = await openMendable('all')
  const { checks, pen, ink, flow } = shop
  ink.resolve()
  await settled(flow)
  const before = await joinsOf(checks)

  pen.isBroken = false
  await retry(checks, 'check')
  await settled(flow)
  await retry(checks, 'clear')
  await settled(flow)

  expect(before).toMatchObject([{ state: 'failed', entries: ['0 failed', '1 late'] }])
  expect(shop.seen).toEqual(['pen,ink, failed 0, partial false'])
  expect((await deadLettersOf(checks)).map(({ state }) => state)).toEqual(['replayed', 'replayed'])
  await expectNothingOpen(checks)
})

test('the retried dead letter of an inner join continues in the outer batch', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[] = []
  let isBroken = true
  const glue = deferred<void>()
  fanOut(flows, { join: 'clear' })
  flows.register(
    defineHandler('take-apart', {
      events: checkEvents,
      on: 'CheckAsked',
      run: async ({ data: { item } }, { emit }) => {
        if (item === 'glue') await glue.promise
        return batch(['left', 'right'].map(part => emit('PartChecked', { item, part })))
      },
    }),
  )
  flows.register(
    defineJoin('put-together', {
      events: checkEvents,
      on: 'PartChecked',
      retries: 0,
      run: (events, { emit }) => {
        const { item } = events[0]!.data
        if (item === 'pen' && isBroken) throw new Error('it does not fit')
        return emit('OrderChecked', { item })
      },
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      policy: 'allSettled',
      retries: 0,
      run: (events, { join }) => {
        seen.push(`${events.map(event => event.data.item)}, failed ${join.failed}`)
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { items: ['pen', 'glue'] })
  await waitUntil(async () => (await deadLettersOf(checks)).length === 1)

  isBroken = false
  await retry(checks, 'put-together')
  glue.resolve()
  await settled(flow)

  expect(seen).toEqual(['pen,glue, failed '])
  await expectNothingOpen(checks)
})

test('the dead letter of a join can be retried with its event edited', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[] = []
  flows.register(
    defineHandler('fan-out', {
      events: checkEvents,
      on: 'OrderPlaced',
      run: (event, { emit }) => batch(event.data.items.map(item => emit('OrderChecked', { item }))),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      retries: 0,
      run: events => {
        seen.push(events.map(event => event.data.item).join(' '))
        if (events.some(event => event.data.item === 'inc')) throw new Error('inc is not known')
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()
  const flow = await flows.publish('OrderPlaced', { items: ['pen', 'inc'] })
  await settled(flow)
  const [deadLetter] = await deadLettersOf(checks)

  await checks.store.deadLetters.retry('clear', deadLetter!.event_id, { data: { item: 'ink' } })
  await untilReplayed(checks, 'clear')

  expect(seen).toEqual(['pen inc', 'pen ink'])
  await expectNothingOpen(checks)
})

test('onFailure of a join emits into the outer batch', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[] = []
  fanOut(flows, { join: 'clear' })
  flows.register(
    defineHandler('take-apart', {
      events: checkEvents,
      on: 'CheckAsked',
      run: ({ data: { item } }, { emit }) =>
        batch([emit('PartAsked', { item, part: 'left' })], { join: 'put-together' }),
    }),
  )
  flows.register(
    defineHandler('check-part', {
      events: checkEvents,
      on: 'PartAsked',
      retries: 0,
      run: ({ data }, { emit }) => {
        if (data.item === 'pen') throw new Error('the pen is broken')
        return emit('PartChecked', data)
      },
    }),
  )
  const onFailure = ({ reason }: { reason: string }) => emit('OrderChecked', { item: reason })
  flows.register(
    defineJoin('put-together', {
      events: checkEvents,
      on: 'PartChecked',
      onDeadLetter: onFailure,
      run: (events, { emit }) => emit('OrderChecked', { item: events[0]!.data.item }),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      retries: 0,
      run: (events, { join }) => {
        seen.push(`${events.map(event => event.data.item).join(' ')}, failed ${join.failed}`)
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))

  expect(seen).toEqual(['joinFailed ink, failed '])
  await expectNothingOpen(checks)
})

test('a retired join still gets the events of its open batches, and opens no more', async () => {
  const shop = await openOrderChecks()
  const { flows } = shop
  const found = deferred<void>()
  const seen: string[][] = []
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: async (event, { emit }) => {
        if (event.data.item === 'ink') await found.promise
        return emit('OrderChecked', event.data)
      },
    }),
  )
  // With another handler for the same events their branches end later than they arrive.
  flows.register(defineHandler('weigh', { on: 'OrderChecked', run: () => {} }))
  flows.register(
    defineJoin('cleared', {
      events: checkEvents,
      on: 'OrderChecked',
      run: events => {
        seen.push(events.map(event => event.data.item))
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  const first = await flows.publish('OrderPlaced', { items: ['pen', 'ink'] })
  await waitUntil(async () => (await joinsOf(shop)).length === 1)

  await flows.handlers.retire('cleared')
  const second = await flows.publish('OrderPlaced', { items: ['glue'] })
  await settled(second)
  found.resolve()
  await settled(first)

  expect(seen).toEqual([['pen', 'ink']])
  expect(await joinsOf(shop)).toHaveLength(1)
  await expectNothingOpen(shop)
})

test('the state of a join is kept as long as its dead letter is open', async () => {
  const checks = await openOrderChecks()
  const { flows, query } = checks
  const { log } = openConsumerParts(checks)
  let isBroken = true
  const seen: string[] = []
  flows.register(
    defineHandler('fan-out', {
      events: checkEvents,
      on: 'OrderPlaced',
      run: (event, { emit }) => batch(event.data.items.map(item => emit('OrderChecked', { item }))),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      retries: 0,
      run: events => {
        if (isBroken) throw new Error('the clerk is ill')
        seen.push(events.map(event => event.data.item).join(' '))
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()
  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))
  await query("update ~workflow_joins set closed_at = now() - interval '1 day'")

  await pruneAttempts(log, { olderThanMs: 1000 })
  isBroken = false
  await retry(checks, 'clear')
  await pruneAttempts(log, { olderThanMs: 1000 })

  expect(seen).toEqual(['pen ink'])
  expect(await query('select 1 from ~workflow_joins')).toEqual([])
  expect(await query('select 1 from ~workflow_join_entries')).toEqual([])
})

/** Requests retries of the open dead letters of a handler, and waits until they are closed. */
async function retry(checks: OrderChecks, handler: string): Promise<void> {
  await checks.store.deadLetters.retryAll({ of: handler })
  await untilReplayed(checks, handler)
}

async function untilReplayed(checks: OrderChecks, handler: string): Promise<void> {
  await waitUntil(async () => {
    const deadLetters = (await deadLettersOf(checks)).filter(({ consumer }) => consumer === `handler:${handler}`)
    return deadLetters.every(({ state }) => state === 'replayed')
  })
}
