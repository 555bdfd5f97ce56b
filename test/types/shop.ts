/** The definitions of a shop as its authors write them, and the calls on them: all of it must compile, with nothing annotated. */
import { z } from 'zod'
import {
  defineAggregate,
  defineCollection,
  defineDocumentProjection,
  defineEvents,
  defineTableProjection,
  gt,
  increment,
  type Store,
} from '../../src/index.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

interface Customer {
  name: string
  email: string
  visits: number
  address: { city: string }
}

const events = defineEvents({
  OrderPlaced: z.object({ customer: z.string(), items: z.array(z.string()), cents: z.int() }),
  OrderPaid: z.object({ receipt: z.string() }),
  OrderShipped: z.object({ carrier: z.string() }),
})

const Order = defineAggregate('order', {
  events,
  initial: () => ({ status: 'new' as 'new' | 'placed' | 'paid' | 'shipped', cents: 0 }),
  evolve: {
    OrderPlaced: (order, { data }) => ({ ...order, status: 'placed', cents: data.cents }),
    OrderPaid: order => ({ ...order, status: 'paid' }),
    OrderShipped: order => ({ ...order, status: 'shipped' }),
  },
  decide(command: { type: 'Ship'; carrier: string }, order) {
    if (order.status !== 'paid') throw new Error(`an order that is ${order.status} cannot be shipped`)
    return { type: 'OrderShipped', data: { carrier: command.carrier } }
  },
  snapshots: { every: 100 },
})

const orders = defineDocumentProjection('orders', {
  events,
  lifecycle: 'inline',
  initial: () => ({ customer: '', status: 'placed' }),
  evolve: {
    OrderPlaced: (order, { data }) => ({ ...order, customer: data.customer }),
    OrderShipped: order => ({ ...order, status: 'shipped' }),
  },
})

const sales = defineTableProjection('sales', {
  events,
  columns: { customer: 'text', orders: 'integer', cents: 'bigint' },
  primaryKey: ['customer'],
  on: {
    OrderPlaced: ({ data }, row) => row({ customer: data.customer }, { increment: { orders: 1, cents: data.cents } }),
  },
})

const customers = defineCollection<Customer>('customers', {
  indexes: ['address.city', { path: 'email', unique: true }],
  search: ['name'],
})

export async function work(store: Store<NonNullable<(typeof events)['~events']>>): Promise<void> {
  await store.register(Order, orders, sales, customers)
  const id = store.newId('order')
  const handled = await store.handle(Order, id, { type: 'Ship', carrier: 'Swift' })
  same<typeof handled.state.status, 'new' | 'placed' | 'paid' | 'shipped'>(true)
  await store.decide(Order, id, () => ({ type: 'OrderShipped', data: { carrier: 'Swift' } }))

  const order = await store.documents(orders).get(id)
  same<typeof order extends undefined | { data: infer D } ? D : never, { customer: string; status: string }>(true)
  const best = await store
    .rows(sales)
    .where(s => gt(s.cents, 10_000))
    .orderBy(s => s.cents, 'desc')
    .limit(5)
    .toArray()
  same<(typeof best)[number]['cents'], number>(true)
  await store.documents(customers).put('c-1', { name: 'Ada', email: 'ada@x', visits: 0, address: { city: 'London' } })
  await store.documents(customers).patch('c-1', { visits: increment(1) })
}
