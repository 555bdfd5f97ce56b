/** What can happen in the shop. */
import { defineEvents } from 'rillflow'

export type ShopEvent =
  | { type: 'OrderPlaced'; data: { customer: string; items: { product: string; cents: number }[] } }
  | { type: 'OrderPaid'; data: { cents: number; method: 'card' | 'invoice' } }
  | { type: 'OrderShipped'; data: { carrier: string } }
  | { type: 'OrderCancelled'; data: { reason: string } }

export const shopEvents = defineEvents<ShopEvent>()
