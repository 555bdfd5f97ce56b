/** Reads a store whose events are large, in a process whose heap has no room for all of them, and prints how many it saw. */
import { defineProcessor, openStore } from '../../src/index.ts'

const [place, schema, total] = process.argv.slice(2) as [string, string, string]
let processed = 0
const counter = defineProcessor('counter', {
  batch: {
    OrderNoted(events) {
      processed += events.length
    },
  },
})
await using store = await openStore({
  ...(place.startsWith('postgres') ? { url: place, listen: false } : { folder: place }),
  ...{ schema, processors: [counter], pollMs: 50 },
})

const count = async (events: AsyncIterable<unknown>): Promise<number> => {
  let seen = 0
  for await (const _ of events) seen++
  return seen
}
const all = await count(store.events.readAll())
const ofStream = await count(store.events.read('order-1'))
await store.consumers.runUntilIdle(counter)
let delivered = 0
for await (const _ of store.subscribe('mailer', { partitions: 4 })) if (++delivered === Number(total)) break
process.stdout.write(JSON.stringify({ all, ofStream, processed, delivered }))
