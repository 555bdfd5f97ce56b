/** The document that everybody folds the events of a stream into. */
import type { OrderEvent } from './orders.ts'

export interface Order {
  readonly customer: string
  readonly status: string
  readonly cents: number
  readonly events: number
}

export const newOrder: Order = { customer: '', status: '', cents: 0, events: 0 }

export function fold(order: Order, { type, data }: Pick<OrderEvent, 'type' | 'data'>): Order {
  return {
    customer: data.customer as string,
    status: type,
    cents: order.cents + (data.cents as number),
    events: order.events + 1,
  }
}
