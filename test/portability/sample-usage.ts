/** A day of the shop that touches every part of the library once, so that there are statements to look at without a whole run. */

import type { Documents } from '../../src/documents/documents.ts'
import { gt } from '../../src/documents/query/condition.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import type { Store } from '../../src/store.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import type { Customer } from '../documents/customers.ts'
import { paid, placed, type ShopMap, shipped, shopEvents, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { checkEvents, fanOut, items, settled, workflowsOf } from '../workflows/order-checks.ts'

const totals = defineTableProjection('customer-totals', {
  events: shopEvents,
  columns: { customer: 'text', orders: 'bigint', last_order: 'timestamptz' },
  primaryKey: ['customer'],
  indexes: [['orders']],
  on: {
    OrderPlaced: (event, row) =>
      row({ customer: customerOf(event) }, { increment: { orders: 1 }, set: { last_order: event.createdAt } }),
    OrderPaid: (event, row) => row({ customer: customerOf(event) }, 'delete'),
  },
})

function customerOf({ stream }: { stream: string }): string {
  return stream.split('-')[0]!
}

/** A collection with all that its table can have, and the table of a projection. */
export async function provision(store: Store<ShopMap>): Promise<void> {
  customersOf(store)
  await store.projections.register(totals)
  await store.schema.sync()
}

function customersOf(store: Store<ShopMap>): Documents<Customer> {
  return store.documents<Customer>('customers', {
    history: true,
    indexes: [{ path: 'email', unique: true }, 'tier'],
    columns: [{ path: 'visits', as: 'number' }],
  })
}

export async function useEveryPart(store: Store<ShopMap>): Promise<void> {
  await store.events.append('ada-1', placed())
  await Promise.all(Array.from({ length: 5 }, (_, n) => store.events.append(`bob-${n}`, [placed(n), shipped()])))
  await useDocuments(store)
  await store.projections.runUntilIdle()
  await take(store.subscribe('mailer'), 3)
  await useWorkflows(store)
  await store.streams.archive('ada-1')
  await store.upkeep()
  await store.doctor()
}

async function useDocuments(store: Store<ShopMap>): Promise<void> {
  const customers = customersOf(store)
  await customers.put('ada', { email: 'ada@x', visits: 1 })
  await customers.patch('ada', { visits: 2 })
  await customers.putMany([{ id: 'bob', data: { email: 'bob@x' } }])
  await customers
    .query()
    .where(c => gt(c.visits, 1))
    .toArray()
  await using session = store.session()
  session.documents(store.documents('baskets')).put('eve', { lines: 1 })
  session.events.append('eve-1', [placed(), paid])
  await session.save()
  await customers.delete('bob')
}

async function useWorkflows(store: Store<ShopMap>): Promise<void> {
  const flows = workflowsOf(store)
  let runs = 0
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
      run: (events, { emit }) => emit('OrderCleared', { items: events.map(event => event.data.item) }),
    }),
  )
  flows.register(defineSchedule('restock', { everyMs: 20, run: () => void runs++ }))
  await using worker = flows.worker()
  await worker.start()
  await settled(await flows.publish('OrderPlaced', { items }))
  await waitUntil(() => runs > 0)
}
