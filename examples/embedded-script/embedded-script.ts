/**
 * A till in one file: a script with a memory. Each run sells something and reports everything that was sold before.
 *
 *     npx tsx examples/embedded-script/embedded-script.ts            a cup of tea
 *     npx tsx examples/embedded-script/embedded-script.ts cake 2     two pieces of cake
 *
 * The store is a PostgreSQL inside this process. Its data is in .rillflow next to this file, or in RILLFLOW_FOLDER. Afterwards
 * the command line can open it: node dist/cli/cli.js streams list --folder examples/embedded-script/.rillflow
 */
import { fileURLToPath } from 'node:url'
import { defineAggregate, defineEvents, openStore } from 'rillflow'

const prices: Record<string, number> = { tea: 250, cake: 390, scone: 280 }
const [product = 'tea', count = '1'] = process.argv.slice(2)

type TillEvent =
  | { type: 'Filled'; data: { pieces: number } }
  | { type: 'Sold'; data: { pieces: number; cents: number } }

// The state of the shelf follows from its events. An empty shelf is filled before anything is sold.
const events = defineEvents<TillEvent>()
const Shelf = defineAggregate('shelf', {
  events,
  initial: () => ({ left: 0, cents: 0 }),
  evolve: {
    Filled: (shelf, { data }) => ({ ...shelf, left: shelf.left + data.pieces }),
    Sold: (shelf, { data }) => ({ left: shelf.left - data.pieces, cents: shelf.cents + data.cents }),
  },
  decide({ sell, price }: { sell: number; price: number }, { left }) {
    const sold = events.create('Sold', { pieces: sell, cents: sell * price })
    return left >= sell ? [sold] : [events.create('Filled', { pieces: 10 }), sold]
  },
})

const price = prices[product]
if (price === undefined || !/^[1-9]$/.test(count)) {
  console.error(`Give one of ${Object.keys(prices).join(', ')}, and how many, from 1 to 9.`)
  process.exit(2)
}

const folder = process.env.RILLFLOW_FOLDER ?? fileURLToPath(new URL('.rillflow', import.meta.url))
await using store = await openStore({ folder, events, aggregates: [Shelf] })
const { state } = await store.handle(Shelf, `shelf-${product}`, { sell: Number(count), price })
console.log(`${count} × ${product}: ${euros(Number(count) * price)}. ${state.left} left on the shelf.`)

const receipts = await store.events.readAll({ types: ['Sold'] }).toArray()
const total = receipts.reduce((sum, { data }) => sum + data.cents, 0)
console.log(`Sale number ${receipts.length}; ${euros(total)} in the till since the first one.`)

function euros(cents: number): string {
  return `${(cents / 100).toFixed(2)} €`
}
