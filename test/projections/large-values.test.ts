/** Rows and states that people look at have a limit in bytes. */
import { expect, test } from 'vitest'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { openShop, shopEvents } from '../support/shop.ts'

const note = 'a'.repeat(900_000)

test('pages of rows and of states that end by their bytes lose none and repeat none', async () => {
  const notes = defineTableProjection('notes', {
    events: shopEvents,
    columns: { position: 'bigint', note: 'text' },
    primaryKey: ['position'],
    on: { OrderPlaced: ({ position, data }, row) => row({ position }, { set: { note: data.note ?? '' } }) },
  })
  const order = defineAggregate('order', {
    events: shopEvents,
    initial: () => ({ total: 0, note: '' }),
    evolve: { OrderPlaced: (_, { data }) => ({ total: data.total, note: data.note ?? '' }) },
  })
  const { store } = await openShop({ projections: [notes], aggregates: [order] })
  for (let total = 1; total <= 15; total++)
    await store.events.append('order-1', { type: 'OrderPlaced', data: { total, note } })
  await store.consumers.runUntilIdle(notes)

  const pages: number[][] = []
  for (let after: string | undefined, isFirst = true; isFirst || after !== undefined; isFirst = false) {
    const page = await store.projections.rows(notes, { after })
    pages.push(page.items.map(({ position }) => Number(position)))
    after = page.next
  }
  const steps = await store.states.steps(order, 'order-1', { from: 2, to: 15 })
  const rest = await store.states.steps(order, 'order-1', { from: 2 + steps.length, to: 15 })

  expect(pages.map(page => page.length)).toEqual([10, 5])
  expect(pages.flat()).toEqual(Array.from({ length: 15 }, (_, n) => n + 1))
  expect([...steps, ...rest].map(({ version }) => version)).toEqual(Array.from({ length: 14 }, (_, n) => n + 2))
  expect([steps.length, rest.length]).toEqual([10, 4])
  expect(await store.states.at(order, 'order-1')).toMatchObject({ version: 15, state: { total: 15 } })
})
