import { expect, test } from 'vitest'
import { failFast, retryWithBackoff } from '../../src/consumers/run/policy.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { ProjectionOptions } from '../../src/projections/projection.ts'
import { settle } from '../../src/testing/testing.ts'
import { openShop, placed, type ShopMap, shopEvents } from '../support/shop.ts'

function totals(options: ProjectionOptions<ShopMap> = {}, before: () => void = () => {}) {
  return defineDocumentProjection('totals', {
    ...options,
    events: shopEvents,
    initial: () => ({ total: 0 }),
    evolve: {
      OrderPlaced(document, event) {
        before()
        return { total: document.total + event.data.total }
      },
    },
  })
}

test('after settle all projections have applied the events appended before it', async () => {
  const { store } = await openShop()
  const projection = totals({ batchSize: 2 })
  await store.projections.register(projection)
  await store.events.append('order-1', [placed(1), placed(2), placed(3), placed(4), placed(5)])

  await settle(store, { timeoutMs: 60_000 })
  await settle(store, { timeoutMs: 60_000 })

  expect((await store.documents(projection).get('order-1'))?.data).toEqual({ total: 15 })
})

test('if a runner runs the projections, settle waits for it', async () => {
  const { store } = await openShop()
  const projection = totals()
  await store.projections.register(projection)
  await using daemon = store.daemon()
  await daemon.start()
  await store.events.append('order-1', placed(1))

  await settle(store, { timeoutMs: 60_000 })

  expect((await store.documents(projection).get('order-1'))?.data).toEqual({ total: 1 })
})

test('settle waits for an event that is retried', async () => {
  const { store } = await openShop()
  let failures = 2
  const projection = totals({ policy: retryWithBackoff({ retries: 5, baseMs: 1, maxMs: 2 }) }, () => {
    if (failures-- > 0) throw new Error('not yet')
  })
  await store.projections.register(projection)
  await store.events.append('order-1', placed(1))

  await settle(store, { timeoutMs: 60_000 })

  expect((await store.documents(projection).get('order-1'))?.data).toEqual({ total: 1 })
})

test('a projection that cannot reach the end is named, or its error thrown', async () => {
  const { store } = await openShop()
  const cause = new Error('out of paper')
  const projection = totals({ policy: failFast() }, () => {
    throw cause
  })
  await store.projections.register(projection)
  await store.events.append('order-1', placed(1))

  await expect(settle(store, { timeoutMs: 60_000 })).rejects.toBe(cause)
  await store.projections.pause('totals')
  await expect(settle(store, { timeoutMs: 60_000 })).rejects.toMatchObject({ code: 'not_settled', consumer: 'totals' })
})
