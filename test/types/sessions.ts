/**
 * What must compile and what must not, of the types of sessions. Nothing here runs: the type check of the project is the
 * test, and a `@ts-expect-error` that expects in vain fails it.
 */
import type { Documents } from '../../src/documents/documents.ts'
import type { SessionDocument } from '../../src/sessions/documents.ts'
import type { Store } from '../../src/store.ts'
import { Order, type Order as OrderState } from '../aggregates/orders.ts'
import type { Customer } from '../documents/customers.ts'
import { placed, type ShopEvent, type ShopMap } from '../support/shop.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

declare const store: Store<ShopMap>
declare const customers: Documents<Customer>

// ── Documents ───────────────────────────────────────────────────────────────────────────────────────────────────────

async function documents(): Promise<void> {
  await using session = store.session({ headers: { app: 'shop' }, userId: 'ada' })
  const one = await session.load(customers, 'ada')
  same<typeof one, SessionDocument<Customer> | undefined>(true)
  const many = await session.load(customers, ['ada', 'bob'])
  same<typeof many, Map<string, SessionDocument<Customer>>>(true)
  const all = session.documents(customers)
  all.put('ada', { email: 'ada@x' }, { upsert: true })
  same<ReturnType<typeof all.insert>, string>(true)
  await all.update('ada', customer => ({ ...customer, visits: (customer.visits ?? 0) + 1 }))
  // @ts-expect-error: it has no such field
  all.put('ada', { email: 'ada@x', tire: 'free' })
  // @ts-expect-error: it must have an email
  all.insert('ada', {})
  // @ts-expect-error: the email is no number
  await all.update('ada', customer => ({ ...customer, email: 1 }))
}

// ── Events and aggregates ───────────────────────────────────────────────────────────────────────────────────────────

async function events(): Promise<void> {
  const session = store.session()
  session.events.append('order-1', placed(1), { expected: 'empty' })
  // @ts-expect-error: there is no such event
  session.events.append('order-1', { type: 'OrderPlacd', data: { total: 1 } })
  const order = await session.fetchForWriting(Order, 'order-1')
  same<typeof order.state, OrderState>(true)
  const decided = order.decide({ type: 'Ship', parcels: ['a'] })
  same<(typeof decided)[number]['type'], ShopEvent['type']>(true)
  // @ts-expect-error: it has no such command
  order.decide({ type: 'Shop' })
  const { position } = await session.save({ idempotencyKey: 'key' })
  same<typeof position, number | undefined>(true)
}

// ── Handling ────────────────────────────────────────────────────────────────────────────────────────────────────────

async function handling(): Promise<void> {
  const { state } = await store.handle(Order, 'order-1', { type: 'Pay' }, { retries: 2 })
  same<typeof state, OrderState>(true)
  // @ts-expect-error: it has no such command
  await store.handle(Order, 'order-1', { type: 'Shop' })
  const { value } = await store.handle(async session => {
    session.events.append('order-1', placed(1))
    return 7
  })
  same<typeof value, number | undefined>(true)
}

void [documents, events, handling]
