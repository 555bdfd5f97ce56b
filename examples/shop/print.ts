/** How the shop's events look on a terminal. */
import type { RecordedEvent } from 'rillflow'
import type { ShopEvents } from './events.ts'

export function say(line: string): void {
  console.log(line)
}

export function printEvent(event: RecordedEvent<ShopEvents>): void {
  const position = `#${event.position}`.padStart(6)
  say(`  ${position}  ${event.type.padEnd(12)}  ${event.stream}@${event.version}  ${inWords(event)}`)
}

function inWords(event: RecordedEvent<ShopEvents>): string {
  switch (event.type) {
    case 'OrderPlaced':
      return `${event.data.customer} orders ${event.data.items.join(', ')}`
    case 'OrderPaid':
      return event.data.receipt
    case 'PackAsked':
    case 'ItemPacked':
      return event.data.item
    case 'OrderShipped':
      return `with ${event.data.carrier}`
    case 'DayEnded':
      return event.data.day
  }
}
