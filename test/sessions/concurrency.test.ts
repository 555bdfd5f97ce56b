import { expect, test } from 'vitest'
import { isRillflowError } from '../../src/core/errors.ts'
import { Order } from '../aggregates/orders.ts'
import type { Customer } from '../documents/customers.ts'
import { openShop, placed } from '../support/shop.ts'

test('under concurrent saves documents and streams agree', async () => {
  const { store, sibling } = await openShop()
  const stores = [store, await sibling()]
  const names = ['ada', 'bob', 'cy']
  const reported = new Map(names.map(name => [name, 0]))
  const refused = new Set<string>()
  const customers = stores.map(each => each.documents<Customer>('customers'))
  await customers[0]!.ready()

  const visitor = async (at: number): Promise<void> => {
    const [own, collection] = [stores[at % 2]!, customers[at % 2]!]
    for (let round = 0; round < 4; round++) {
      // Two of them at once, in either order.
      const two = [names[(at + round) % 3]!, names[(at + round + 1 + (at % 2)) % 3]!]
      try {
        await own.handle(
          async session => {
            const found = await session.load(collection, two)
            for (const name of two) {
              const visits = (found.get(name)?.data.visits ?? 0) + 1
              session.documents(collection).put(name, { email: `${name}@x`, visits })
              if (at % 3 === 0) session.events.append(`order-${name}`, placed(1))
              else (await session.fetchForWriting(Order, `order-${name}`)).decide({ type: 'Place', total: 1 })
            }
          },
          { retries: 20 },
        )
        for (const name of two) reported.set(name, reported.get(name)! + 1)
      } catch (error) {
        if (!isRillflowError(error)) throw error
        refused.add(error.code)
      }
    }
  }
  await Promise.all(Array.from({ length: 8 }, (_, at) => visitor(at)))

  // A caller that failed lost every conflict; no other error occurred.
  for (const code of refused) expect(['version_conflict', 'document_conflict', 'document_exists']).toContain(code)
  for (const name of names) {
    const visits = reported.get(name)!
    expect(visits).toBeGreaterThan(0)
    expect(await customers[0]!.get(name)).toMatchObject({ data: { visits }, version: visits })
    expect(await store.streams.describe(`order-${name}`)).toMatchObject({ version: visits })
    expect(await store.aggregates(Order).fetchLatest(`order-${name}`)).toMatchObject({ total: visits })
  }
})
