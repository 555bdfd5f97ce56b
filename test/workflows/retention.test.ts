import { expect, test } from 'vitest'
import { openShop } from '../support/shop.ts'

test('traces of workflows are deleted after a while; events, cancelled workflows and open dead letters stay', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  flows.on('OrderPlaced', { name: 'pay' }, event => {
    if (event.data.total === 2) throw new Error('no money')
  })
  await using worker = flows.worker()
  await worker.start()
  for (const total of [1, 2]) {
    const flow = await flows.publish('OrderPlaced', { total }, { correlationId: `order-${total}` })
    await flow.settled()
  }

  expect(await flows.prune({ olderThanMs: 60_000 })).toBe(0)
  expect(await flows.prune({ olderThanMs: 0 })).toBeGreaterThan(0)

  expect(await query('select * from ~workflow_activity')).toEqual([])
  expect(await query('select correlation_id from ~workflows')).toEqual([{ correlation_id: 'order-2' }])
  expect((await store.events.readAll().toArray()).length).toBe(2)
  expect((await flows.flow('order-1').status()).state).toBe('settled')
  expect((await flows.flow('order-2').status()).state).toBe('failed')
})

test('SB-34: a handler that is delayed longer than all retention completes', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  let ran = 0
  flows.on('OrderPlaced', { name: 'remind', delayMs: 300 }, () => void ran++)
  await using worker = flows.worker()
  await worker.start()

  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await flows.prune({ olderThanMs: 0 })
  await flow.settled()

  expect(ran).toBe(1)
})
