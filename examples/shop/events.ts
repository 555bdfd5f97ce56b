/** Everything that can happen in the shop. A schema checks each event before it is stored. */
import { defineEvents, type EventsIn } from 'rillflow'
import { z } from 'zod'

const schemas = {
  OrderPlaced: z.object({ customer: z.string(), items: z.array(z.string()), cents: z.int() }),
  OrderPaid: z.object({ receipt: z.string() }),
  PackAsked: z.object({ item: z.string(), order: z.string() }),
  ItemPacked: z.object({ item: z.string(), order: z.string() }),
  OrderShipped: z.object({ carrier: z.string() }),
  DayEnded: z.object({ day: z.string() }),
}

/** A name for the map of events: hovers and compiler messages show it instead of all the schemas. */
export interface ShopEvents extends EventsIn<typeof schemas> {}

export const events = defineEvents<ShopEvents>(schemas)
