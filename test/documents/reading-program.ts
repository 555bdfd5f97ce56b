/** Reads a collection whose documents are large, in a process whose heap has no room for all, and prints how many it saw. */
import { openStore } from '../../src/index.ts'

const [place, schema] = process.argv.slice(2) as [string, string]
await using store = await openStore({
  ...(place.startsWith('postgres') ? { url: place, listen: false } : { folder: place }),
  schema,
})
interface Customer {
  email: string
  note: string
  n: number
}
const customers = store.documents<Customer>('customers', { history: true })

async function count(items: AsyncIterable<unknown>): Promise<number> {
  let seen = 0
  for await (const _ of items) seen++
  return seen
}

async function countPages(read: (after?: string) => Promise<{ items: readonly unknown[]; next: string | undefined }>) {
  let seen = 0
  let after: string | undefined
  do {
    const page = await read(after)
    seen += page.items.length
    after = page.next
  } while (after !== undefined)
  return seen
}

const query = customers.query()
const iterated = await count(query)
const ordered = await count(query.orderBy(c => c.n).iterate({ pageSize: 1000 }))
const paged = await countPages(after => query.page({ limit: 1000, after }))
const included = await count(query.include('same', customers, { from: (_, meta) => meta.id }))
const versions = await countPages(after => customers.history('c-1', { after }))
process.stdout.write(JSON.stringify({ iterated, ordered, paged, included, versions }))
