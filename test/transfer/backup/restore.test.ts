import { readdir } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { defineDocumentProjection } from '../../../src/projections/document-projection.ts'
import { restoreBackup } from '../../../src/transfer/backup/restore.ts'
import { copyStore } from '../../support/embedded.ts'
import { paid, placed, take } from '../../support/shop.ts'
import { openIn, scratch } from './folders.ts'

const orders = defineDocumentProjection('orders', {
  initial: () => ({ total: 0, isPaid: false }),
  evolve: {
    OrderPlaced: (order, event) => ({ ...order, total: order.total + (event.data as { total: number }).total }),
    OrderPaid: order => ({ ...order, isPaid: true }),
  },
})

test('AB-22: a store restored to a position has its content of then, and is written, projected, followed, closed and opened like any other', async () => {
  const path = await scratch()
  await copyStore(path('store'))
  const store = await openIn(path('store'))
  await store.projections.register(orders)
  await store.subscriptions.create('mailer', { startFrom: 'beginning' })
  const { position } = await store.events.append('order-1', [placed(1), placed(2)])
  const then = await store.events.readAll().toArray()
  await store.documents<{ name: string }>('customers').put('c-1', { name: 'Ann' })
  await store.events.append('order-1', [paid], { idempotencyKey: 'pay' })
  await store.projections.runUntilIdle()
  await take(store.subscribe('mailer'), 3)
  await store.backup({ output: path('backup') })
  await store.close()

  const restored = await restoreBackup({ input: path('backup'), folder: path('restored'), toPosition: position })

  expect(restored).toMatchObject({ position, schema: 'rillflow', cut: { events: 1, projections: ['orders'] } })
  expect((await readdir(path('.'))).sort()).toEqual(['backup', 'restored', 'store'])
  const first = await openIn(path('restored'))
  expect(await first.events.readAll().toArray()).toEqual(then)
  await first.projections.register(orders)
  expect(await first.documents<{ name: string }>('customers').get('c-1')).toMatchObject({ data: { name: 'Ann' } })
  await using daemon = first.daemon()
  await daemon.start()
  await first.projections.waitFor('orders', position)
  expect((await first.documents(orders).get('order-1'))?.data).toEqual({ total: 3, isPaid: false })
  const again = await first.events.append('order-1', [paid], { idempotencyKey: 'pay', expected: 2 })
  expect(again).toMatchObject({ version: 3, repeated: false, position: 4 })
  await first.projections.waitFor('orders', again.position)
  expect(await take(first.subscribe('mailer'), 1)).toMatchObject([{ type: 'OrderPaid', position: 4 }])
  await daemon.stop()
  await first.close()

  const second = await openIn(path('restored'))

  await second.projections.register(orders)
  expect((await second.documents(orders).get('order-1'))?.data).toEqual({ total: 3, isPaid: true })
  expect((await second.events.readAll().toArray()).map(event => event.position)).toEqual([1, 2, 4])
  expect(await second.schema.check()).toMatchObject({ isHealthy: true })
})
