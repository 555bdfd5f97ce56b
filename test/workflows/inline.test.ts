import { expect, test } from 'vitest'
import { ConnectionLost } from '../../src/database/errors.ts'
import { complete } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function openLedger(): Promise<Shop & { booked(): Promise<string[]> }> {
  const shop = await openShop()
  await shop.query('create table ~ledger (n bigint generated always as identity primary key, line text not null)')
  const booked = async (): Promise<string[]> =>
    (await shop.query<{ line: string }>('select line from ~ledger order by n')).map(row => row.line)
  return { ...shop, booked }
}

test('an inline handler writes in the transaction that dispatches its event', async () => {
  const { store, named, booked } = await openLedger()
  const flows = store.workflows
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      run: async (event, ctx) => {
        await ctx.tx('book', tx =>
          tx.query(named('insert into ~ledger (line) values ($1)'), [`placed ${event.data.total}`]),
        )
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(
    defineHandler('ship', {
      on: 'OrderPaid',
      inline: true,
      run: () => complete(tx => tx.query(named('insert into ~ledger (line) values ($1)'), ['paid'])),
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  expect(await booked()).toEqual(['placed 1', 'paid'])
})

test('SB-36: an inline handler that fails is queued, and retried by its policy; nothing of the failed run is stored', async () => {
  const { store, named, booked } = await openLedger()
  const flows = store.workflows
  let runs = 0
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      retries: 3,
      backoff: { baseMs: 1 },
      run: async event => {
        const line = `${event.data.total} in run ${++runs}`
        const write = complete(tx => tx.query(named('insert into ~ledger (line) values ($1)'), [line]))
        if (runs < 3) throw new Error('not yet')
        return write
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  expect(await booked()).toEqual(['1 in run 3'])
})

test('a handler that writes inline writes the same way when it is queued', async () => {
  const { store, named, booked } = await openLedger()
  const flows = store.workflows
  let runs = 0
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      retries: 1,
      backoff: { baseMs: 1 },
      run: async (_, ctx) => {
        if (++runs === 1) throw new Error('not yet')
        await ctx.tx('book', tx => tx.query(named('insert into ~ledger (line) values ($1)'), [`run ${runs}`]))
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(await booked()).toEqual(['run 2'])
})

test('while one execution of a workflow is queued, those behind it queue as well: the order of the log is kept', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  let isMended = false
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      retries: 100_000,
      backoff: { baseMs: 5, factor: 1 },
      run: event => {
        if (event.data.total === 2 && !isMended) throw new Error('not yet')
        seen.push(event.data.total)
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  for (const total of [1, 2, 3, 4]) await flows.publish('OrderPlaced', { total }, { correlationId: 'order-1' })
  await waitUntil(async () => (await flows.get('order-1').status()).pending === 3)
  isMended = true
  await flows.get('order-1').waitUntilSettled()

  expect(seen).toEqual([1, 2, 3, 4])
})

test('an inline handler that takes too long does not hold up the others', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  flows.register(
    defineHandler('slow', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      inlineMs: 20,
      run: async (_, { attempt, signal }) => {
        // Inline there are no attempts.
        if (attempt === undefined) await new Promise(resolve => signal.addEventListener('abort', resolve))
        else seen.push('slow')
      },
    }),
  )
  flows.register(defineHandler('quick', { on: 'OrderPlaced', inline: true, run: () => void seen.push('quick') }))
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  expect(seen).toEqual(['quick', 'slow'])
})

test('an inline handler whose own database is unavailable is queued: the dispatch does not wait for it', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let inline = 0
  flows.register(
    defineHandler('book', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      retries: 0,
      run: (_, { attempt }) => {
        if (attempt === undefined) inline++
        throw new ConnectionLost({ reason: 'the books are closed' })
      },
    }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', inline: true, run: () => {} }))
  await using worker = flows.worker()
  await worker.start()

  await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'order-1' })
  const other = await flows.publish('OrderPaid', { method: 'card' })
  const status = await other.waitUntilSettled({ timeoutMs: 5_000 })

  expect(status.state).toBe('settled')
  expect(inline).toBe(1)
  expect((await flows.get('order-1').status()).pending).toBe(1)
})

test('refused events of an inline handler are retried as an execution', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      inline: true,
      run: (_, { emit }) => emit('OrderPaid', { method: 'card' }, { stream: 'order-1', expected: 7 }),
    }),
  )
  let others = 0
  flows.register(defineHandler('other', { on: 'OrderPlaced', inline: true, run: () => void others++ }))
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  const status = await flow.waitUntilSettled()

  expect(status).toMatchObject({ state: 'failed', deadLetters: 1 })
  expect(others).toBeGreaterThanOrEqual(1)
  expect((await store.deadLetters.list())[0]).toMatchObject({ lastError: { code: 'version_conflict' } })
})

test('if the dispatcher lacks the code of an inline handler, it is queued for a worker that has it', async () => {
  const shop = await openShop()
  const other = await shop.sibling()
  const seen: string[] = []
  shop.store.workflows.register(defineHandler('unrelated', { on: 'OrderPaid', run: () => {} }))
  other.workflows.register(
    defineHandler('book', { on: 'OrderPlaced', inline: true, run: () => void seen.push('booked') }),
  )
  await using dispatching = shop.store.workflows.worker()
  await dispatching.start()
  await using worker = other.workflows.worker()
  await worker.start()

  const flow = await other.workflows.publish('OrderPlaced', { total: 1 })
  await flow.waitUntilSettled()

  expect(seen).toEqual(['booked'])
})
