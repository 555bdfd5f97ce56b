/** How the shop's events look on a terminal. Colours only where there is one. */
import type { EventsOf, RecordedEvent } from 'rillflow'
import type { shopEvents } from './events.ts'

type ShopEvent = RecordedEvent<EventsOf<typeof shopEvents>>

const colours = { OrderPlaced: 36, OrderPaid: 32, OrderShipped: 34, OrderCancelled: 31 }
const coloured = process.stdout.isTTY === true && process.env.NO_COLOR === undefined

export function say(line: string): void {
  console.log(line)
}

export function printEvent(event: ShopEvent): void {
  const position = paint(String(event.position).padStart(6), 2)
  const type = paint(event.type.padEnd(14), colours[event.type])
  const stream = `${event.stream} v${event.version}`.padEnd(14)
  say(`  ${position}  ${type}  ${paint(stream, 2)}  ${inWords(event)}`)
}

function inWords(event: ShopEvent): string {
  switch (event.type) {
    case 'OrderPlaced':
      return `${event.data.customer} orders ${event.data.items.map(item => `a ${item.product}`).join(', ')}`
    case 'OrderPaid':
      return `${(event.data.cents / 100).toFixed(2)} by ${event.data.method}`
    case 'OrderShipped':
      return `with ${event.data.carrier}`
    case 'OrderCancelled':
      return `"${event.data.reason}"`
  }
}

function paint(text: string, colour: number): string {
  return coloured ? `\u001b[${colour}m${text}\u001b[0m` : text
}
