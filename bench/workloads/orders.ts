/**
 * The events that every contestant appends (about 210 bytes of JSON, small headers, streams of 10 with 36-character names),
 * and the document that every contestant folds the events of a stream into.
 */
import { randomBytes, randomUUID } from 'node:crypto'

export const eventsPerStream = 10

export interface OrderEvent {
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, unknown>>
}

export const orderTypes = ['OrderPlaced', 'OrderPaid', 'OrderPacked', 'OrderShipped', 'OrderReturned']
const notes = 'Please leave the parcel with the neighbours if nobody answers the door. '

export function orderEvent(n: number): OrderEvent {
  return {
    type: orderTypes[n % orderTypes.length]!,
    data: {
      order: 100_000_000 + n,
      customer: `customer-${100_000 + (n % 90_000)}`,
      cents: 1_000 + ((n * 7919) % 90_000),
      currency: 'EUR',
      express: n % 3 === 0,
      items: [{ sku: `sku-${10_000 + (n % 5_000)}`, quantity: 1 + (n % 9) }],
      note: notes.slice(n % 8),
    },
    headers: { source: 'bench', try: 1 },
  }
}

export function orderEvents(count: number, from: number): OrderEvent[] {
  return Array.from({ length: count }, (_, at) => orderEvent(from + at))
}

/** Many events in streams of 10, or all in the given one. */
export function* orders(count: number, given?: string): Generator<OrderEvent & { stream: string }, void, undefined> {
  let stream = given ?? ''
  for (let at = 0; at < count; at++) {
    if (given === undefined && at % eventsPerStream === 0) stream = randomUUID()
    yield { stream, ...orderEvent(at) }
  }
}

/** What the events of one stream add up to. */
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

/** Gives one caller the place of each of its appends: it fills a stream, then begins the next. */
export class StreamCursor {
  stream: string = randomUUID()
  version = 0

  next(count: number): { stream: string; version: number } {
    if (this.version + count > eventsPerStream) {
      this.stream = randomUUID()
      this.version = 0
    }
    const place = { stream: this.stream, version: this.version }
    this.version += count
    return place
  }
}

let lastTime = 0
let random = Buffer.alloc(0)
let used = 0

/** A UUIDv7 for peers that make event ids themselves: as cheap for the unique index as the ids of the store. */
export function eventId(): string {
  lastTime = Math.max(Date.now(), lastTime)
  if (used + 20 > random.length * 2) {
    random = randomBytes(4096)
    used = 0
  }
  const time = lastTime.toString(16).padStart(12, '0')
  const bits = random.toString('hex', used / 2, used / 2 + 10)
  used += 20
  return `${time.slice(0, 8)}-${time.slice(8)}-7${bits.slice(0, 3)}-a${bits.slice(3, 6)}-${bits.slice(6, 18)}`
}
