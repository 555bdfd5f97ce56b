/**
 * A shop with a console for browser tests: the built package, an embedded store in memory, a runner, and a server with
 * the pages. Orders of expired cards become dead letters, orders of a globe wait for `StockCounted`.
 */
import { pathToFileURL } from 'node:url'
import type * as Rillflow from '../../src/index.ts'
import type { StoreServer } from '../../src/server/server.ts'

const {
  batch,
  defineAggregate,
  defineCollection,
  defineDocumentProjection,
  defineEvents,
  defineHandler,
  defineJoin,
  defineSchedule,
  defineSubscription,
  openStore,
} = (await import(pathToFileURL('dist/index.js').href)) as typeof Rillflow

type ShopEvent =
  | { type: 'OrderPlaced'; data: { customer: string; cents: number; items: string[]; card: string } }
  | { type: 'OrderCharged'; data: { cents: number } }
  | { type: 'ItemAsked'; data: { item: string } }
  | { type: 'ItemChecked'; data: { item: string } }
  | { type: 'StockCounted'; data: { item: string; shelf: number } }
  | { type: 'OrderShipped'; data: { carrier: string } }

const events = defineEvents<ShopEvent>()

const orders = defineDocumentProjection('orders', {
  events,
  initial: () => ({ customer: '', cents: 0, status: 'placed' }),
  evolve: {
    OrderPlaced: (order, { data }) => ({ ...order, customer: data.customer, cents: data.cents }),
    OrderCharged: order => ({ ...order, status: 'charged' }),
    OrderShipped: order => ({ ...order, status: 'shipped' }),
  },
})

const Order = defineAggregate('order', {
  events,
  initial: () => ({ status: 'new', cents: 0, checked: 0 }),
  evolve: {
    OrderPlaced: (order, { data }) => ({ ...order, status: 'placed', cents: data.cents }),
    OrderCharged: order => ({ ...order, status: 'charged' }),
    ItemChecked: order => ({ ...order, checked: order.checked + 1 }),
    OrderShipped: order => ({ ...order, status: 'shipped' }),
  },
})

const charge = defineHandler('charge', {
  events,
  on: 'OrderPlaced',
  retries: 0,
  run({ data, stream }, { emit }) {
    if (data.card === 'expired') throw new Error(`the card of ${data.customer} has expired`)
    const asked = data.items.map(item => emit('ItemAsked', { item }, { stream }))
    return [emit('OrderCharged', { cents: data.cents }, { stream }), batch(asked, { join: 'all-checked' })]
  },
})

const check = defineHandler('check', {
  events,
  on: 'ItemAsked',
  async run({ data: { item }, stream }, { emit, waitForEvent }) {
    if (item === 'globe') await waitForEvent('StockCounted')
    return emit('ItemChecked', { item }, { stream })
  },
})

const allChecked = defineJoin('all-checked', {
  events,
  on: 'ItemChecked',
  run: (checked, { emit }) => emit('OrderShipped', { carrier: 'Parcel Post' }, { stream: checked[0]!.stream }),
})

const nightly = defineSchedule('nightly-report', { events, cron: '0 3 * * *', run: () => undefined })
const mailer = defineSubscription('mailer', { events, types: ['OrderShipped'], run: () => undefined })
const customers = defineCollection<{ name: string; city: string }>('customers', { history: true })

export interface ConsoleShop extends AsyncDisposable {
  readonly store: Awaited<ReturnType<typeof openShop>>
  readonly server: StoreServer
  readonly url: string
  /** Places an order; resolves with its workflow. */
  place(order: { stream: string; customer?: string; items?: string[]; card?: string }): Promise<string>
  /** Closes the server and starts it again at the same address. */
  restart(): Promise<void>
}

function openShop() {
  return openStore({
    ...{ memory: true, schema: 'shop', events, aggregates: [Order], collections: [customers], projections: [orders] },
    ...{ handlers: [charge, check], subscriptions: [mailer], joins: [allChecked], schedules: [nightly], logger: false },
  })
}

export async function openConsoleShop(): Promise<ConsoleShop> {
  const store = await openShop()
  await store.start()
  const serve = (port: number): Promise<StoreServer> => store.server({ port, console: { access: 'admin' } })
  let server = await serve(0)
  return {
    store,
    get server() {
      return server
    },
    get url() {
      return server.url
    },
    async place({ stream, customer = 'Ada', items = ['lamp'], card = 'good' }) {
      const workflow = await store.workflows.publish('OrderPlaced', { customer, cents: 1250, items, card }, { stream })
      return workflow.correlationId
    },
    async restart() {
      const { port } = server
      await server.close()
      server = await serve(port)
    },
    async [Symbol.asyncDispose]() {
      await store.close()
    },
  }
}
