/** Emmett's projection of events into documents (its single-stream Pongo projection), and its rebuild. */
import type { Event } from '@event-driven-io/emmett'
import {
  getPostgreSQLEventStore,
  pongoSingleStreamProjection,
  rebuildPostgreSQLProjections,
} from '@event-driven-io/emmett-postgresql'
import {
  eventsPerStream,
  fold,
  newOrder,
  type Order,
  type OrderEvent,
  orders,
  orderTypes,
} from '../workloads/orders.ts'

/**
 * The same events as ours, in streams of 10, appended one after the other: its rebuild may skip events that were appended
 * concurrently, because it reads in the order of transactions and remembers a position.
 */
export async function fillEmmett(url: string, count: number): Promise<void> {
  const store = getPostgreSQLEventStore(url)
  let messages: Event[] = []
  for (const { stream, type, data, headers } of orders(count)) {
    messages.push({ type, data, metadata: headers } as unknown as Event)
    if (messages.length < eventsPerStream) continue
    await store.appendToStream(stream, messages)
    messages = []
  }
  await store.close()
}

/** Empties the collection and applies the whole log. */
export async function rebuildWithEmmett(url: string, batchSize: number, onEvent: () => void): Promise<void> {
  const projection = pongoSingleStreamProjection<Order & Record<string, unknown>, Event>({
    collectionName: 'orders',
    canHandle: [...orderTypes],
    initialState: () => ({ ...newOrder }),
    evolve: (order: Order, event: Event) => {
      onEvent()
      return { ...order, ...fold(order, event as unknown as OrderEvent) }
    },
  })
  const consumer = rebuildPostgreSQLProjections({
    connectionString: url,
    projections: [projection],
    pulling: { batchSize },
  })
  await consumer.start()
  await consumer.close()
}
