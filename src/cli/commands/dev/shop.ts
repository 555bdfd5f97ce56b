/**
 * The shop that `rillflow dev` runs if there is no configuration. A schedule places orders; a workflow charges them, checks every
 * item, joins the results and ships; a read model has the status of each order. Some charges fail once and are retried. Some
 * cards have expired: those orders become dead letters.
 *
 * The shop has a schema of its own, so that it never writes into the store of a user.
 */
import { type Config, defineConfig } from '../../../config.ts'
import { defineEvents } from '../../../events/definition.ts'
import { defineDocumentProjection } from '../../../projections/document-projection.ts'
import { batch } from '../../../workflows/emit.ts'
import { defineHandler } from '../../../workflows/handler.ts'
import { defineJoin } from '../../../workflows/joins/join.ts'
import { defineSchedule } from '../../../workflows/schedules/schedule.ts'

type ShopEvent =
  | { type: 'OrderPlaced'; data: { customer: string; cents: number; items: string[]; card: 'good' | 'expired' } }
  | { type: 'OrderCharged'; data: { cents: number } }
  | { type: 'ItemAsked'; data: { item: string } }
  | { type: 'ItemChecked'; data: { item: string; shelf: number } }
  | { type: 'OrderCleared'; data: { items: string[] } }
  | { type: 'OrderShipped'; data: { carrier: string } }

const events = defineEvents<ShopEvent>()

const orders = defineDocumentProjection('orders', {
  events,
  initial: () => ({ customer: '', cents: 0, status: 'placed' }),
  evolve: {
    OrderPlaced: (order, { data }) => ({ ...order, customer: data.customer, cents: data.cents }),
    OrderCharged: order => ({ ...order, status: 'charged' }),
    OrderCleared: order => ({ ...order, status: 'cleared' }),
    OrderShipped: order => ({ ...order, status: 'shipped' }),
  },
})

const customers = ['Ada', 'Bo', 'Cleo', 'Dev', 'Eve']
const products = ['teapot', 'lamp', 'notebook', 'umbrella', 'globe']
const everyMs = 1_000

const visits = defineSchedule('customers', {
  events,
  everyMs,
  run({ dueAt, emit }) {
    const at = Math.floor(dueAt.getTime() / everyMs)
    const items = products.slice(at % 3, (at % 3) + 1 + (at % 2) * 2)
    const data = {
      ...{ customer: customers[at % customers.length]!, cents: items.length * 1_250, items },
      card: at % 5 === 3 ? ('expired' as const) : ('good' as const),
    }
    return emit('OrderPlaced', data, { stream: `order-${at.toString(36)}` })
  },
})

const charge = defineHandler('charge', {
  events,
  on: 'OrderPlaced',
  retries: 1,
  backoff: { baseMs: 400 },
  run({ data, stream, position }, { attempt, emit }) {
    if (data.card === 'expired') throw new Error(`the card of ${data.customer} has expired`)
    if (position % 5 === 0 && attempt === 1) throw new Error('the bank did not answer')
    const asked = data.items.map(item => emit('ItemAsked', { item }, { stream }))
    return [emit('OrderCharged', { cents: data.cents }, { stream }), batch(asked, { join: 'all-checked' })]
  },
})

const check = defineHandler('check', {
  events,
  on: 'ItemAsked',
  run: ({ data: { item }, stream }, { emit }) =>
    emit('ItemChecked', { item, shelf: products.indexOf(item) + 1 }, { stream }),
})

const allChecked = defineJoin('all-checked', {
  events,
  on: 'ItemChecked',
  run: (checked, { emit }) =>
    emit('OrderCleared', { items: checked.map(({ data }) => data.item) }, { stream: checked[0]!.stream }),
})

const ship = defineHandler('ship', {
  events,
  on: 'OrderCleared',
  delayMs: 500,
  run: ({ stream }, { emit }) => emit('OrderShipped', { carrier: 'Parcel Post' }, { stream }),
})

// The cast drops the event types of the shop: a configuration that is loaded from a file has none either.
export const shopConfig: Config = defineConfig({
  schema: 'shop',
  events,
  projections: [orders],
  handlers: [charge, check, ship],
  joins: [allChecked],
  schedules: [visits],
}) as unknown as Config
