/** Ours at work: a document projection in a daemon, and how to hear of what it has committed. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { channels, documentProjection, type Store } from '../harness/rillflow.ts'
import { fold, newOrder, type Order } from '../workloads/order-document.ts'
import { type OrderEvent, orderTypes } from '../workloads/orders.ts'

type Fold = (order: Order, event: { readonly type: string; readonly data: unknown }) => Order

/** Folds the events of a stream into an order, a handler for each type. */
export function ordersProjection(name: string, onEvent: () => void = () => {}): ReturnType<typeof documentProjection> {
  const handler: Fold = (order, event) => {
    onEvent()
    return fold(order, event as OrderEvent)
  }
  return documentProjection(name, {
    initial: (): Order => newOrder,
    on: Object.fromEntries(orderTypes.map(type => [type, handler])),
  })
}

export async function startOrders(store: Store): Promise<ReturnType<Store['daemon']>> {
  await store.projections.register(ordersProjection('orders'))
  const daemon = store.daemon()
  await daemon.start()
  await store.projections.waitFor('orders', 0n)
  return daemon
}

/** Calls back after each commit of a consumer in this process; the time is that of the machine's clock. */
export function applied(hear: (position: bigint, at: bigint) => void): () => void {
  const listen = (message: unknown): void => {
    hear((message as { checkpoint: bigint }).checkpoint, process.hrtime.bigint())
  }
  subscribe(channels.batch, listen)
  return () => unsubscribe(channels.batch, listen)
}
