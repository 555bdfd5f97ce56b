/** Claims, and the inside of a workflow, have a limit in bytes. */
import { expect, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openDatabase } from '../support/engines.ts'
import { openShop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const note = 'a'.repeat(900_000)
const large = (total: number) => ({ type: 'OrderPlaced', data: { total, note } }) as const

for (const key of [undefined, ({ data }: { data: { total: number } }) => String(data.total % 3)])
  test(`executions whose events are large are claimed within a limit in bytes, and none is lost${key ? ', in lanes' : ''}`, async () => {
    const inner = await openDatabase()
    const claims: number[] = []
    const database: Database = {
      ...inner,
      async runArrays(statement) {
        const rows = await inner.runArrays(statement)
        if (statement.label === 'workflows.claim') claims.push(JSON.stringify(rows).length)
        return rows
      },
    }
    const handled: number[] = []
    const count = defineHandler('count', {
      events: shopEvents,
      on: 'OrderPlaced',
      ...(key === undefined ? {} : { ordered: key }),
      run: ({ data }) => void handled.push(data.note?.length === note.length ? data.total : -1),
    })
    const { store } = await openShop({ database, handlers: [count] })
    await store.workflows.handlers.pause(count)
    for (let total = 0; total < 30; total++) await store.events.append(`order-${total}`, large(total))
    await using _runner = await store.start({ only: ['handlers'] })
    await waitUntil(async () => (await store.workflows.stats()).executions.dispatched === 30)

    await store.workflows.handlers.resume(count)
    await waitUntil(() => handled.length === 30, { what: 'the attempts' })

    expect(handled.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 30 }, (_, total) => total))
    expect(Math.max(...claims)).toBeLessThan(10 * 1024 * 1024)
  })

test('the inside of a workflow is shown up to a limit in bytes, and says what is left out', async () => {
  const { store } = await openShop()
  await store.register(
    defineHandler('weigh', {
      events: shopEvents,
      on: 'OrderPaid',
      async run(_, { step, waitForEvent }) {
        for (let parcel = 0; parcel < 12; parcel++) await step(`weigh-${parcel}`, () => note)
        await waitForEvent('OrderShipped')
      },
    }),
  )
  const workflow = await store.workflows.publish('OrderPaid', { method: 'card' })
  for (let total = 0; total < 12; total++)
    await store.workflows.publish('OrderPlaced', large(total).data, { correlationId: workflow.correlationId })
  await using _runner = await store.start({ only: ['handlers'] })
  await waitUntil(async () => (await workflow.waits()).length === 1, { what: 'the wait' })

  const steps = (await workflow.steps()).filter(({ kind }) => kind === 'step')
  const { roots } = await workflow.tree({ data: true })
  const events = roots.flatMap(root => (root.kind === 'event' && root.type === 'OrderPlaced' ? [root] : []))

  // Ten of 900 000 bytes reach 8 MiB.
  expect(steps.map(({ result, isCut = false }) => [(result as string)?.length, isCut])).toEqual([
    ...Array(10).fill([note.length, false]),
    ...Array(2).fill([undefined, true]),
  ])
  expect(events.map(({ data, isCut = false }) => [data !== undefined, isCut])).toEqual([
    ...Array(10).fill([true, false]),
    ...Array(2).fill([false, true]),
  ])
})
