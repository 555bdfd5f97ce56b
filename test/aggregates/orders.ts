/** The orders of the shop as aggregates: functions, and a class. */
import { defineAggregate, type SnapshotOptions } from '../../src/aggregates/aggregate.ts'
import type { Database } from '../../src/database/database.ts'
import { openDatabase } from '../support/engines.ts'
import { type ShopEvent, shopEvents } from '../support/shop.ts'

export interface Order {
  status: 'new' | 'placed' | 'paid' | 'shipped'
  total: number
  parcels: string[]
}

export type OrderCommand =
  | { type: 'Place'; total: number }
  | { type: 'Pay' }
  | { type: 'Ship'; parcels: readonly string[] }

export const orderDecider = {
  events: shopEvents,
  initial: (): Order => ({ status: 'new', total: 0, parcels: [] }),
  evolve(order: Order, event: ShopEvent): Order {
    if (event.type === 'OrderPlaced') return { ...order, status: 'placed', total: order.total + event.data.total }
    if (event.type === 'OrderPaid') return { ...order, status: 'paid' }
    return { ...order, status: 'shipped', parcels: [...order.parcels, event.data.parcel] }
  },
  decide(command: OrderCommand, order: Order): ShopEvent | ShopEvent[] {
    if (command.type === 'Place') return { type: 'OrderPlaced', data: { total: command.total } }
    if (command.type === 'Pay') return order.status === 'placed' ? { type: 'OrderPaid', data: { method: 'card' } } : []
    if (order.status !== 'paid') throw new Error('pay first')
    return command.parcels.map(parcel => ({ type: 'OrderShipped', data: { parcel } }))
  },
}

export const Order = defineAggregate('order', orderDecider)

interface OrderOptions extends Partial<SnapshotOptions> {
  stateVersion?: number
  cacheSize?: number
}

/** No states in memory: what a load reads is what the database has. */
export function orders({ every, stateVersion, cacheSize = 0, ...options }: OrderOptions = {}) {
  const snapshots = every === undefined ? undefined : { every, ...options }
  return defineAggregate('order', { ...orderDecider, snapshots, stateVersion, cacheSize })
}

/** Changes itself in place. */
export class OrderClass {
  total = 0
  parcels: string[] = []

  apply(event: ShopEvent): void {
    if (event.type === 'OrderPlaced') this.total += event.data.total
    if (event.type === 'OrderShipped') this.parcels.push(event.data.parcel)
  }

  ship(parcel: string): ShopEvent {
    if (this.total === 0) throw new Error('nothing to ship')
    return { type: 'OrderShipped', data: { parcel } }
  }
}

export class KeptOrder extends OrderClass {
  snapshot(): unknown {
    return [this.total, ...this.parcels]
  }

  hydrate([total, ...parcels]: [number, ...string[]]): void {
    this.total = total
    this.parcels = parcels
  }
}

/** A database that records the labels of its statements, without those of wake-ups. */
export async function listeningDatabase(): Promise<{ database: Database; labels: string[] }> {
  const database = await openDatabase()
  const labels: string[] = []
  return {
    labels,
    database: {
      ...database,
      run(statement) {
        labels.push(statement.label)
        return database.run(statement)
      },
      runArrays(statement) {
        labels.push(statement.label)
        return database.runArrays(statement)
      },
      transaction(work, options) {
        labels.push('transaction')
        return database.transaction(work, options)
      },
    },
  }
}
