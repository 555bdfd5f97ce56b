/**
 * Reads a store whose events are large, in a process whose heap has no room for all of them: by every way out of the log.
 * Prints how many events each has seen.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineHandler, defineProcessor, defineTableProjection, openStore } from '../../src/index.ts'

const [place, schema, total] = process.argv.slice(2) as [string, string, string]
let processed = 0
let handled = 0
const counter = defineProcessor('counter', {
  batch: {
    OrderNoted(events) {
      processed += events.length
    },
  },
})
const notes = defineTableProjection('notes', {
  columns: { stream: 'text', notes: 'integer' },
  primaryKey: ['stream'],
  on: { OrderNoted: ({ stream }, row) => row({ stream }, { increment: { notes: 1 } }) },
})
const file = defineHandler('file', { on: 'OrderNoted', from: 'start', run: () => void handled++ })
await using store = await openStore({
  ...(place.startsWith('postgres') ? { url: place, listen: false } : { folder: place }),
  ...{ schema, processors: [counter], projections: [notes], handlers: [file], migrate: true, pollMs: 50 },
})

const count = async (events: AsyncIterable<unknown>): Promise<number> => {
  let seen = 0
  for await (const _ of events) if (++seen === Number(total)) break
  return seen
}

async function exported(): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'rillflow-exported-'))
  try {
    const { tables } = await store.export({ output: join(folder, 'out') })
    return tables.find(({ name }) => name === 'events')!.file!.rows
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function handledByHandlers(): Promise<number> {
  // All executions are there before one of them runs.
  await store.workflows.handlers.pause(file)
  await using _runner = await store.start({ only: ['handlers'] })
  while ((await store.consumers.status('workflows')).lag > 0) await new Promise(resolve => setTimeout(resolve, 20))
  await store.workflows.handlers.resume(file)
  while (handled < Number(total)) await new Promise(resolve => setTimeout(resolve, 20))
  return handled
}

const all = await count(store.events.readAll())
const ofStream = await count(store.events.read('order-1'))
const followed = await count(store.events.tail({ from: 'start' }))
await store.consumers.runUntilIdle(counter)
await store.consumers.runUntilIdle(notes)
const [row] = await store.rows(notes).toArray()
const delivered = await count(store.subscribe('mailer', { partitions: 4 }))
const seen = {
  all,
  ofStream,
  followed,
  processed,
  projected: row?.notes,
  delivered,
  handled: await handledByHandlers(),
}
const { rss } = process.memoryUsage()
process.stderr.write(
  `rss ${Math.round(rss / 2 ** 20)} MiB, most ${Math.round(process.resourceUsage().maxRSS / 1024)} MiB\n`,
)
process.stdout.write(JSON.stringify({ ...seen, exported: await exported() }))
