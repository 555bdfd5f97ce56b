/** Our document projection of orders in a runner, and a listener for its commits. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { channels, type DocumentProjection, defineDocumentProjection, type Store } from '../harness/rillflow.ts'
import { fold, newOrder, type Order, type OrderEvent, orderTypes } from '../workloads/orders.ts'

type Fold = (order: Order, event: { readonly type: string; readonly data: unknown }) => Order

/** Folds the events of a stream into an order, a handler for each type. */
export function ordersProjection(name: string, onEvent: () => void = () => {}): DocumentProjection<Order, object> {
  const handler: Fold = (order, event) => {
    onEvent()
    return fold(order, event as OrderEvent)
  }
  return defineDocumentProjection(name, {
    initial: (): Order => newOrder,
    evolve: Object.fromEntries(orderTypes.map(type => [type, handler])),
  })
}

export async function startOrders(store: Store): Promise<Awaited<ReturnType<Store['start']>>> {
  await store.projections.register(ordersProjection('orders'))
  const runner = await store.start()
  await store.consumers.waitFor('orders', 0)
  return runner
}

/** Milliseconds of the machine's monotonic clock, which all processes share. */
export function machineMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

/** Calls the listener after each commit of a consumer in this process, with the time of the machine's clock. Returns a stop. */
export function onApplied(listener: (position: number, at: number) => void): () => void {
  const listen = (message: unknown): void => {
    listener((message as { checkpoint: number }).checkpoint, machineMs())
  }
  subscribe(channels.batch, listen)
  return () => unsubscribe(channels.batch, listen)
}
