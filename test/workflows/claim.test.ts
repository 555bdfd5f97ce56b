import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { connect, onServer, openShop, shopEvents, waitersFor } from '../support/shop.ts'
import { executionStates } from '../support/suspended-executions.ts'
import { waitUntil } from '../support/wait.ts'

test.runIf(onServer)('a claim that had to wait finds the events that were published meanwhile', async () => {
  const { store, query, named } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      concurrency: 5,
      run: event => void seen.push(event.data.total),
    }),
  )
  await flows.sync()
  const client = await connect()
  await client.query('begin')
  await client.query(named('select from ~workflow_routes for update'))
  await using worker = workerOf(store)
  await worker.start()
  await waitUntil(async () => (await waitersFor(client)) === 1)
  const flow = await flows.publish('OrderPlaced', { total: 7 })
  await waitUntil(async () => (await query('select from ~workflow_executions')).length === 1)

  await client.query('rollback')
  const status = await flow.waitUntilSettled()

  expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
  expect(seen).toEqual([7])
})

test('executions claimed ahead behind a slow one are released in time, and do not count as a crash', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const paid = deferred<void>()
  const attempts: number[] = []
  let weighed = 0
  flows.register(defineHandler('weigh', { on: 'OrderPaid', run: () => void weighed++ }))
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_, { attempt }) => {
        await paid.promise
        attempts.push(attempt)
      },
    }),
  )
  await using worker = workerOf(shop.store, { concurrency: 1, leaseMs: 600 })
  await worker.start()
  // A quick worker claims more than it can run at once.
  await Promise.all(Array.from({ length: 60 }, () => flows.publish('OrderPaid', { method: 'card' })))
  await waitUntil(() => weighed === 60)
  await Promise.all([1, 2, 3, 4].map(total => flows.publish('OrderPlaced', { total })))

  await waitUntil(async () => (await executionStates(shop)) === '3 ready, 1 running')
  paid.resolve()
  await waitUntil(() => attempts.length === 4)
  await waitUntil(async () => (await executionStates(shop)) === '')

  expect(attempts).toEqual([1, 1, 1, 1])
  expect(await shop.query(`select from ~workflow_activity where kind = 'failed'`)).toEqual([])
})
