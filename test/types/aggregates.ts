/**
 * What must compile and what must not, of the types of aggregates. Nothing here runs: the type check of the project is
 * the test, and a `@ts-expect-error` that expects in vain fails it. The messages are in `messages.test.ts`.
 */
import {
  type Aggregate,
  type ClassCommand,
  defineAggregate,
  defineClassAggregate,
} from '../../src/aggregates/aggregate.ts'
import { defineProjectedAggregate } from '../../src/aggregates/projected.ts'
import type { NewEvent } from '../../src/events/definition.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
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

const Order = defineAggregate('order', {
  events: shopEvents,
  initial: (): Order => ({ status: 'new', total: 0 }),
  evolve: {
    OrderPlaced: (order, event) => {
      same<typeof order, Order>(true)
      same<typeof event.type, 'OrderPlaced'>(true)
      return { ...order, total: event.data.total }
    },
    OrderPaid: order => ({ ...order, status: 'paid' }),
    '*': (order, event) => {
      same<typeof event.type, ShopEvent['type']>(true)
      return order
    },
  },
  decide(command: Command, order) {
    same<typeof order, Order>(true)
    return command.type === 'Ship' ? [{ type: 'OrderShipped', data: { parcel: command.parcel } }] : []
  },
  validate: order => void order.total,
  snapshots: { every: 100 },
})
same<typeof Order, Aggregate<Order, Command, ShopMap>>(true)

const byFunction = defineAggregate('order', {
  events: shopEvents,
  initial: () => ({ total: 0, status: 'new' as 'new' | 'paid' }),
  evolve: (order, event) => {
    same<typeof event.type, ShopEvent['type']>(true)
    return event.type === 'OrderPaid' ? { ...order, status: 'paid' } : order
  },
  decide: (method: 'card' | 'cash') => ({ type: 'OrderPaid', data: { method } }),
})
same<typeof byFunction, Aggregate<{ total: number; status: 'new' | 'paid' }, 'card' | 'cash', ShopMap>>(true)

const withoutEvents = defineAggregate('order', {
  initial: () => 0,
  evolve: {
    Whatever: (count, event) => {
      same<typeof event.data, unknown>(true)
      return count + 1
    },
  },
})
same<typeof withoutEvents, Aggregate<number, never, object>>(true)

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
const ByClass = defineClassAggregate('order', OrderClass)
same<typeof ByClass, Aggregate<OrderClass, ClassCommand<OrderClass>, ShopMap>>(true)

// @ts-expect-error: it cannot apply events
defineClassAggregate('order', Date)

// ── A projection: its document is the state, null before there is one ───────────────────────────────────────────────

const documents = defineDocumentProjection('orders', {
  events: shopEvents,
  initial: () => ({ total: 0 }),
  evolve: { OrderPlaced: (_, event) => ({ total: event.data.total }) },
})
const Projected = defineProjectedAggregate('order', {
  projection: documents,
  decide(_: 'pay', order) {
    same<typeof order, { total: number } | null>(true)
    return order === null ? [] : [{ type: 'OrderPaid', data: { method: 'card' as const } }]
  },
})
same<typeof Projected, Aggregate<{ total: number } | null, 'pay', ShopMap>>(true)

// ── An aggregate fits a store that has its events ───────────────────────────────────────────────────────────────────

interface MoreEvents extends ShopMap {
  readonly CustomerMoved: { city: string }
}

export async function stores(
  shop: Store<ShopMap>,
  larger: Store<MoreEvents>,
  untyped: Store,
  foreign: Store<{ CustomerMoved: { city: string } }>,
): Promise<void> {
  const pay = { type: 'Pay' as const }
  await shop.handle(Order, 'order-1', pay)
  await larger.handle(Order, 'order-1', pay)
  await untyped.handle(Order, 'order-1', pay)
  await larger.decide(withoutEvents, 'order-1', () => ({ type: 'CustomerMoved', data: { city: 'Rome' } }))
  // @ts-expect-error: that store has none of its events
  await foreign.handle(Order, 'order-1', pay)
  // @ts-expect-error: it takes no commands
  await shop.handle(withoutEvents, 'order-1', pay)

  const { state, events } = await shop.decide(Order, 'order-1', order => {
    same<typeof order, Order>(true)
    return order.status === 'paid' ? { type: 'OrderShipped', data: { parcel: 'a' } } : []
  })
  same<typeof state, Order>(true)
  same<typeof events, readonly NewEvent<ShopMap>[]>(true)
}

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
  // @ts-expect-error: what it returns is not an event
  await store.aggregates(ByClass).handle('order-1', one => one.total)

  await store.snapshots(Order).metrics()
}

// ── Specifications ──────────────────────────────────────────────────────────────────────────────────────────────────

export async function check(): Promise<void> {
  const { given } = specify(Order)
  given({ type: 'OrderPlaced', data: { total: 1 } })
    .when({ type: 'Pay' })
    .expect({ type: 'OrderPaid', data: { method: 'card' } })
  given([]).when({ type: 'Pay' }).expectState({ status: 'new', total: 0 })
  // @ts-expect-error: there is no such command
  given([]).when({ type: 'Lose' })
  // @ts-expect-error: there is no such event
  given([]).when({ type: 'Pay' }).expect({ type: 'OrderLost', data: {} })

  const placed = { type: 'OrderPlaced', data: { total: 1 } }
  await specify(documents)
    .given(placed, { repeat: true })
    .expect({ 'order-1': { total: 1 } })
  await specify(documents)
    .given(placed)
    // @ts-expect-error: a total is a number
    .expect({ 'order-1': { total: 'much' } })
}
