import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import type { Executor } from '../../src/database/database.ts'
import { batch } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin, type JoinInfo } from '../../src/workflows/joins/join.ts'
import { moveBatches } from '../../src/workflows/joins/joins.ts'
import { loadRoutes } from '../../src/workflows/routes.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { workerOf } from '../support/run-worker.ts'
import { waitUntil } from '../support/wait.ts'
import {
  checkEvents,
  expectNothingOpen,
  fanOut,
  items,
  joined,
  joinsOf,
  openOrderChecks,
  publishChecked,
  settled,
} from './order-checks.ts'

test('SB-10: after a fan-out the join runs once, with all events in the order of the batch', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: { items: string[]; join: JoinInfo }[] = []
  const order = new Map(items.map(item => [item as string, deferred<void>()]))
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: async (event, { emit }) => {
        const at = items.indexOf(event.data.item as 'pen')
        if (at < items.length - 1) await order.get(items[at + 1]!)!.promise
        order.get(event.data.item)!.resolve()
        return emit('OrderChecked', { item: event.data.item })
      },
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: (events, ctx) => {
        runs.push({ items: events.map(event => event.data.item), join: ctx.join })
        return ctx.emit('OrderCleared', { items: events.map(event => event.data.item) })
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { items })
  const cleared = await flow.waitForEvent('OrderCleared')
  const status = await settled(flow)

  expect(runs).toEqual([
    { items, join: { batchId: expect.any(String), size: 5, failed: [], empty: [], isPartial: false } },
  ])
  expect(cleared.data.items).toEqual(items)
  expect(cleared.headers).toEqual({ workflow: { hops: 3, handler: 'clear' } })
  expect(status).toMatchObject({ state: 'settled', lastType: 'OrderCleared' })
  await expectNothingOpen(checks)
})

test('fan-out, several steps in each branch, then the join', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[][] = []
  fanOut(flows)
  flows.register(
    defineHandler('begin', {
      events: checkEvents,
      on: 'CheckAsked',
      run: (event, { emit }) => emit('CheckBegun', event.data),
    }),
  )
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckBegun',
      ordered: true,
      run: (event, { emit }) => emit('OrderChecked', event.data),
    }),
  )
  flows.register(defineHandler('audit', { on: 'OrderChecked', inline: true, run: () => {} }))
  flows.register(defineHandler('watch', { on: '*', run: () => {} }))
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: events => {
        seen.push(events.map(event => event.data.item))
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()

  const many = Array.from({ length: 10 }, (_, at) => `item ${at}`)
  const all = await Promise.all(Array.from({ length: 3 }, () => flows.publish('OrderPlaced', { items: many })))
  for (const flow of all) await settled(flow)

  expect(seen).toEqual(all.map(() => many))
  await expectNothingOpen(checks)
})

test('a workflow is not settled while one of its joins waits', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))
  await using worker = workerOf(checks.store)
  await worker.start()
  const place = { id: randomUUID(), size: 2 }

  const flow = await publishChecked(checks, { ...place, index: 0 })
  await joined(checks, 1)
  const waiting = await flow.status()
  await publishChecked(checks, { ...place, index: 1 })

  expect(waiting).toMatchObject({ state: 'waiting', isSettled: false, pending: 1 })
  expect(await settled(flow)).toMatchObject({ state: 'settled', pending: 0 })
})

test('SB-14: a duplicate that arrives when the join has closed is ignored, and opens nothing', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  let runs = 0
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => void runs++ }))
  await using worker = workerOf(checks.store)
  await worker.start()
  const place = { id: randomUUID(), size: 2 }
  await publishChecked(checks, { ...place, index: 0 })
  const flow = await publishChecked(checks, { ...place, index: 1 })
  await settled(flow)

  for (const index of [0, 1, 1]) await publishChecked(checks, { ...place, index })
  await settled(flow)

  expect(runs).toBe(1)
  expect(await joinsOf(checks)).toMatchObject([{ state: 'closed', arrived: 2, entries: ['0 arrived', '1 arrived'] }])
  await expectNothingOpen(checks)
})

test('SB-16: a second event of an index is ignored, the first one counts', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const seen: string[][] = []
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: events => {
        seen.push(events.map(event => event.data.item))
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()
  const place = { id: randomUUID(), size: 2 }

  await publishChecked(checks, { ...place, index: 0 }, 'first')
  await joined(checks, 1)
  await publishChecked(checks, { ...place, index: 0 }, 'second')
  await waitUntil(async () => (await checks.flows.get('order-1').status()).state === 'waiting')
  const flow = await publishChecked(checks, { ...place, index: 1 }, 'other')
  await settled(flow)

  expect(seen).toEqual([['first', 'other']])
})

test('SB-16: an event with another batch size is logged and does not count; the size stays', async () => {
  const warned: unknown[] = []
  const silent = (): void => {}
  const warn = (fields: object): void => {
    if ('expected' in fields) warned.push(fields)
  }
  const logger = { debug: silent, info: silent, error: silent, warn }
  const checks = await openOrderChecks({ logger })
  const { flows } = checks
  const seen: string[][] = []
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: events => {
        seen.push(events.map(event => event.data.item))
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()
  const id = randomUUID()

  await publishChecked(checks, { id, index: 0, size: 2 }, 'first')
  await publishChecked(checks, { id, index: 1, size: 3 }, 'wrong')
  const flow = await publishChecked(checks, { id, index: 2, size: 3 }, 'wrong')
  await joined(checks, 3)
  const between = await joinsOf(checks)
  await publishChecked(checks, { id, index: 1, size: 2 }, 'right')
  await settled(flow)

  expect(between).toMatchObject([
    { state: 'open', size: 2, arrived: 1, entries: ['0 arrived', '1 mismatch', '2 mismatch'] },
  ])
  expect(warned).toMatchObject([
    { index: 1, size: 3, expected: 2 },
    { index: 2, size: 3, expected: 2 },
  ])
  expect(seen).toEqual([['first', 'right']])
})

test('SB-17: a branch that emits nothing, or is filtered out, counts as done', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: { items: string[]; empty: readonly number[] }[] = []
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      when: event => event.data.item !== 'ink',
      run: (event, { emit }) => (event.data.item === 'glue' ? undefined : emit('OrderChecked', event.data)),
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: (events, ctx) => {
        runs.push({ items: events.map(event => event.data.item), empty: ctx.join.empty })
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()

  const status = await settled(await flows.publish('OrderPlaced', { items }))

  expect(runs).toEqual([{ items: ['pen', 'paper', 'tape'], empty: [1, 3] }])
  expect(status.state).toBe('settled')
  await expectNothingOpen(checks)
})

test('SB-17: a batch whose branches all end without an event still closes the join that it names', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: JoinInfo[] = []
  fanOut(flows, { join: 'clear' })
  flows.register(defineHandler('check', { on: 'CheckAsked', run: () => {} }))
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: (events, ctx) => {
        expect(events).toEqual([])
        runs.push(ctx.join)
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))
  await settled(await flows.publish('OrderPlaced', { items: [] }))

  expect(runs).toMatchObject([
    { size: 2, empty: [0, 1], isPartial: false },
    { size: 0, empty: [], isPartial: false },
  ])
  await expectNothingOpen(checks)
})

test('a batch without handlers also closes the join that it names', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  let runs = 0
  fanOut(flows, { join: 'clear' })
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => void runs++ }))
  await using worker = workerOf(checks.store)
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))

  expect(runs).toBe(1)
})

test.each(['queued', 'inline'])(
  '%s: a handler that declares the type of the join opens it when it ends without such an event',
  async kind => {
    const checks = await openOrderChecks()
    const { flows } = checks
    const runs: JoinInfo[] = []
    fanOut(flows)
    const inline = kind === 'inline'
    flows.register(
      defineHandler('check', {
        events: checkEvents,
        on: 'CheckAsked',
        emits: ['OrderChecked'],
        inline,
        when: e => e.data.item !== 'ink',
        run: () => {},
      }),
    )
    flows.register(
      defineJoin('clear', { events: checkEvents, on: 'OrderChecked', run: (_, ctx) => void runs.push(ctx.join) }),
    )
    await using worker = workerOf(checks.store)
    await worker.start()

    await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))

    expect(runs).toMatchObject([{ size: 2, empty: [0, 1] }])
    await expectNothingOpen(checks)
  },
)

test('a batch that names an unregistered join fails its handler', async () => {
  const { flows, store } = await openOrderChecks()
  fanOut(flows, { join: 'cleer' })
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))
  await using worker = workerOf(store)
  await worker.start()

  const status = await settled(await flows.publish('OrderPlaced', { items: ['pen'] }))
  const deadLetters = (await store.deadLetters.list()).items

  expect(status.state).toBe('failed')
  expect(deadLetters).toMatchObject([{ handler: 'fan-out', lastError: { code: 'handler_not_found' } }])
  expect(deadLetters[0]!.lastError?.message).toContain('Did you mean "clear"?')
})

test('two joins of one batch each run once', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: string[] = []
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
      run: events => void runs.push(`clear ${events.length}`),
    }),
  )
  flows.register(
    defineJoin('count', {
      events: checkEvents,
      on: 'OrderChecked',
      run: events => void runs.push(`count ${events.length}`),
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items }))

  expect(runs.sort()).toEqual(['clear 5', 'count 5'])
  await expectNothingOpen(checks)
})

test('two batches of one run are joined separately', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const runs: string[][] = []
  flows.register(
    defineHandler('fan-out', {
      events: checkEvents,
      on: 'OrderPlaced',
      run: (_, { emit }) => [
        batch([emit('OrderChecked', { item: 'pen' }), emit('OrderChecked', { item: 'ink' })]),
        batch([emit('OrderChecked', { item: 'glue' })], { key: 'sticky' }),
        emit('OrderChecked', { item: 'alone' }),
      ],
    }),
  )
  flows.register(
    defineJoin('clear', {
      events: checkEvents,
      on: 'OrderChecked',
      run: events => {
        runs.push(events.map(event => event.data.item))
      },
    }),
  )
  await using worker = workerOf(checks.store)
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: [] }))

  expect(runs.sort()).toEqual([['glue'], ['pen', 'ink']])
  await expectNothingOpen(checks)
})

test('a branch that emits an event which is already in the log ends with that', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  const id = randomUUID()
  let runs = 0
  fanOut(flows, { join: 'clear' })
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      run: (_, { emit }) => emit('CheckBegun', { item: 'both' }, { id, stream: 'checks' }),
    }),
  )
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => void runs++ }))
  await using worker = workerOf(checks.store, { concurrency: 1 })
  await worker.start()

  await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))

  expect(runs).toBe(1)
  await expectNothingOpen(checks)
})

test('a join of a workflow that is cancelled is never run', async () => {
  const checks = await openOrderChecks()
  const { flows, query } = checks
  let runs = 0
  flows.register(defineJoin('clear', { on: 'OrderChecked', joinTimeoutMs: 60_000, run: () => void runs++ }))
  await using worker = workerOf(checks.store)
  await worker.start()
  const place = { id: randomUUID(), size: 2 }
  const flow = await publishChecked(checks, { ...place, index: 0 })
  await joined(checks, 1)

  await flow.cancel({ reason: 'changed their mind' })
  await publishChecked(checks, { ...place, index: 1 })
  await settled(flow)

  expect(runs).toBe(0)
  expect(await query('select state from ~workflow_joins')).toEqual([{ state: 'cancelled' }])
  expect(await query('select open from ~workflows')).toEqual([{ open: 0 }])
})

test('a branch whose failure compensates the workflow opens no join', async () => {
  const checks = await openOrderChecks()
  const { flows, query } = checks
  fanOut(flows)
  flows.register(
    defineHandler('check', {
      events: checkEvents,
      on: 'CheckAsked',
      emits: ['OrderChecked'],
      onDeadLetter: 'compensate',
      retries: 0,
      run: () => {
        throw new Error('broken')
      },
    }),
  )
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))
  await using worker = workerOf(checks.store, { concurrency: 1 })
  await worker.start()

  const status = await settled(await flows.publish('OrderPlaced', { items: ['pen', 'ink'] }))

  expect(status.state).toBe('compensated')
  expect(await query('select state from ~workflow_joins')).toEqual([])
  expect(await query('select open from ~workflows')).toEqual([{ open: 0 }])
})

test('a hundred events take as many statements as two', async () => {
  const checks = await openOrderChecks()
  const { flows } = checks
  flows.register(defineJoin('clear', { on: 'OrderChecked', run: () => {} }))
  await flows.sync()
  const { log } = openConsumerParts(checks)
  const [route] = await loadRoutes(log, log.database)
  const statementsOf = (size: number): Promise<number> =>
    checks.database.transaction(async tx => {
      let count = 0
      const counting: Executor = {
        run: statement => {
          count++
          return tx.run(statement)
        },
        runArrays: statement => {
          count++
          return tx.runArrays(statement)
        },
      }
      const cause = { correlationId: `order of ${size}`, position: 1 }
      await tx.query(
        checks.named(
          "insert into ~workflows (correlation_id, first_position, last_position, last_type) values ($1, 1, 1, 'OrderPlaced')",
        ),
        [cause.correlationId],
      )
      const id = randomUUID()
      const places = Array.from({ length: size }, (_, index) => [{ id, index, size }])
      const opened = [{ id, size, join: undefined, outer: [] }]
      const emitted = [{ ...cause, append: undefined, types: [], places, opened }]
      const arrivals = places.map(batches => ({ ...cause, route: route!, batches }))
      const branches = arrivals.map(each => ({ ...each, change: -1, isFailed: false, emits: [] }))
      await moveBatches(log, counting, 'test', () => [route!], { branches: [], arrivals: [], emitted })
      await moveBatches(log, counting, 'test', () => [route!], { branches, arrivals, emitted: [] })
      return count
    })

  const [two, hundred] = [await statementsOf(2), await statementsOf(100)]

  expect(hundred).toBe(two)
  expect(two).toBeLessThanOrEqual(8)
})

test('a position in a batch is given completely or not at all', async () => {
  const { flows } = await openOrderChecks()
  const id = randomUUID()
  const data = { item: 'pen' }

  await expect(flows.publish('OrderChecked', data, { batch: { id, index: 0, size: 1 } })).rejects.toThrow(
    'correlationId',
  )
  for (const wrong of [
    { id: 'batch 1', index: 0, size: 1 },
    { id, index: 2, size: 2 },
    { id, index: -1, size: 2 },
    { id, index: 0, size: 0 },
  ])
    await expect(flows.publish('OrderChecked', data, { correlationId: 'order-1', batch: wrong })).rejects.toMatchObject(
      { code: 'invalid_option' },
    )
})
