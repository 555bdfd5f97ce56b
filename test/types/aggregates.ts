/**
 * What must compile and what must not, of the types of aggregates. Nothing here runs: the type check of the project is
 * the test, and a `@ts-expect-error` that expects in vain fails it.
 */
import { type Aggregate, aggregate } from '../../src/aggregates/aggregate.ts'
import { type Decider, decider } from '../../src/aggregates/decider.ts'
import type { NewEvent } from '../../src/events/definition.ts'
import { documentProjection } from '../../src/projections/document.ts'
import type { Store } from '../../src/store.ts'
import { specify } from '../../src/testing/specify.ts'
import { type ShopEvent, type ShopMap, shopEvents } from '../support/shop.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

interface Order {
  status: 'new' | 'paid'
  total: number
}
type Command = { type: 'Pay' } | { type: 'Ship'; parcel: string }

// ── State, command and events are inferred ──────────────────────────────────────────────────────────────────────────

const fromDefinition = decider({
  events: shopEvents,
  initial: (): Order => ({ status: 'new', total: 0 }),
  evolve(order, event): Order {
    same<typeof event.type, 'OrderPlaced' | 'OrderPaid' | 'OrderShipped'>(true)
    if (event.type === 'OrderPlaced') return { ...order, total: event.data.total }
    return event.type === 'OrderPaid' ? { ...order, status: 'paid' } : order
  },
  decide(command: Command, order): ShopEvent[] {
    same<typeof order, Order>(true)
    return command.type === 'Ship' ? [{ type: 'OrderShipped', data: { parcel: command.parcel } }] : []
  },
})
same<typeof fromDefinition, Decider<Order, Command, NewEvent<ShopMap>>>(true)

const fromAnnotations = decider({
  initial: () => 0,
  evolve: (total, event: ShopEvent) => (event.type === 'OrderPlaced' ? total + event.data.total : total),
  decide: (method: 'card' | 'cash'): ShopEvent => ({ type: 'OrderPaid', data: { method } }),
})
same<typeof fromAnnotations, Decider<number, 'card' | 'cash', ShopEvent>>(true)

decider({
  events: shopEvents,
  initial: () => 0,
  evolve: total => total,
  // @ts-expect-error: there is no such event
  decide: () => ({ type: 'OrderLost', data: {} }),
})

const Order = aggregate('order', { ...fromDefinition, snapshotEvery: 100, validate: order => void order.total })
same<typeof Order, Aggregate<Order, Command, NewEvent<ShopMap>>>(true)

// @ts-expect-error: the state has no such property
aggregate('order', { ...fromDefinition, validate: order => order.totl })

// ── A class: its events are those it applies, its commands are calls on it ──────────────────────────────────────────

class OrderClass {
  total = 0
  apply(event: ShopEvent): void {
    if (event.type === 'OrderPlaced') this.total += event.data.total
  }
  ship(parcel: string): ShopEvent {
    return { type: 'OrderShipped', data: { parcel } }
  }
}
const ByClass = aggregate('order', { class: OrderClass })

// @ts-expect-error: it cannot apply events
aggregate('order', { class: Date })

// ── A projection: its document is the state, null before there is one ───────────────────────────────────────────────

const documents = documentProjection('orders', {
  events: shopEvents,
  initial: () => ({ total: 0 }),
  on: { OrderPlaced: (_, event) => ({ total: event.data.total }) },
})
const Projected = aggregate('order', {
  projection: documents,
  decide(_: 'pay', order): ShopEvent[] {
    same<typeof order, { total: number } | null>(true)
    return order === null ? [] : [{ type: 'OrderPaid', data: { method: 'card' } }]
  },
})
same<typeof Projected, Aggregate<{ total: number } | null, 'pay', ShopEvent>>(true)

// ── The repository ──────────────────────────────────────────────────────────────────────────────────────────────────

declare const store: Store<ShopMap>

export async function use(): Promise<void> {
  const orders = store.aggregates(Order)
  const order = await orders.load('order-1')
  same<typeof order.state, Order>(true)
  order.decide({ type: 'Ship', parcel: 'a' })
  // @ts-expect-error: there is no such command
  order.decide({ type: 'Lose' })
  // @ts-expect-error: an order is placed with a total
  order.append({ type: 'OrderPlaced', data: {} })
  await orders.commit(order, { userId: 'ann' })
  await orders.commit('order-1', { type: 'OrderPaid', data: { method: 'cash' } }, { expected: 'exists' })
  const { state, events } = await orders.handle('order-1', { type: 'Pay' })
  same<typeof state, Order>(true)
  same<typeof events, readonly NewEvent<ShopMap>[]>(true)
  const latest = await orders.fetchLatest('order-1')
  same<typeof latest, Order | undefined>(true)

  const byClass = await store.aggregates(ByClass).handle('order-1', one => one.ship('a'))
  same<typeof byClass.state, OrderClass>(true)
  // @ts-expect-error: what it returns is no event
  await store.aggregates(ByClass).handle('order-1', one => one.total)

  store.snapshotter(Order, { threshold: 50 })
  store.snapshotter(ByClass)
}

// ── Specifications ──────────────────────────────────────────────────────────────────────────────────────────────────

export async function check(): Promise<void> {
  const given = specify(Order)
  given({ type: 'OrderPlaced', data: { total: 1 } })
    .when({ type: 'Pay' })
    .then({ type: 'OrderPaid', data: { method: 'card' } })
  given().when({ type: 'Pay' }).thenState({ status: 'new', total: 0 })
  // @ts-expect-error: there is no such command
  given().when({ type: 'Lose' })
  // @ts-expect-error: there is no such event
  given().when({ type: 'Pay' }).then({ type: 'OrderLost', data: {} })

  const placed = { type: 'OrderPlaced', data: { total: 1 } }
  await specify(documents)(placed, { repeat: true }).then({ 'order-1': { total: 1 } })
  // @ts-expect-error: a total is a number
  await specify(documents)(placed).then({ 'order-1': { total: 'much' } })
}
