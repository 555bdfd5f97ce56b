import { expect, test } from 'vitest'
import { connect, onServer, openShop, waitersFor } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test.runIf(onServer)('a claim that had to wait finds the events that were published meanwhile', async () => {
  const { store, query, named } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  flows.on('OrderPlaced', { name: 'pay', concurrency: 5 }, event => void seen.push(event.data.total))
  await flows.register()
  const client = await connect()
  await client.query('begin')
  await client.query(named('select from ~workflow_routes for update'))
  await using worker = flows.worker()
  await worker.start()
  await waitUntil(async () => (await waitersFor(client)) === 1)
  const flow = await flows.publish('OrderPlaced', { total: 7 })
  await waitUntil(async () => (await query('select from ~workflow_executions')).length === 1)

  await client.query('rollback')
  const status = await flow.settled()

  expect(status).toMatchObject({ state: 'settled', deadLetters: 0 })
  expect(seen).toEqual([7])
})
