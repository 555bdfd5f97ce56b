/** A dispatcher that is far behind passes over parts of the log that concern no workflow. */
import { expect, test } from 'vitest'
import type { ImportedEvent } from '../../src/events/import/import.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { onServer, openShop, paid, placed, shipped, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const count = 25_000

/** Events that no handler wants; `others` take the places given. */
function history(others: Record<number, ImportedEvent> = {}): ImportedEvent[] {
  return Array.from({ length: count }, (_, n) => others[n] ?? { stream: `order-${n % 1_000}`, ...paid })
}

/** A shop whose handler has begun, and whose runner has not. */
async function givenHandler() {
  const seen: string[] = []
  const ship = defineHandler('ship', {
    events: shopEvents,
    on: 'OrderPlaced',
    run: event => void seen.push(event.stream),
  })
  const shop = await openShop({ handlers: [ship] })
  await shop.store.workflows.sync()
  const checkpoint = async (): Promise<number> => {
    const [row] = await shop.query<{ checkpoint: number }>(
      `select checkpoint from ~consumers where kind = 'dispatcher'`,
    )
    return row!.checkpoint
  }
  return { ...shop, seen, checkpoint }
}

test('what no handler wants is passed over without being read, and a publish behind it is settled', async () => {
  const { store, seen } = await givenHandler()
  await store.events.import(history())
  const before = store.metrics().events_read_total

  await using _runner = await store.start({ only: ['handlers'] })
  const workflow = await store.workflows.publish('OrderPlaced', { total: 5 }, { stream: 'order-late' })
  await workflow.waitUntilSettled({ timeoutMs: 60_000 })

  expect(seen).toEqual(['order-late'])
  expect(store.metrics().events_read_total - before).toBeLessThan(count / 2)
})

test('an event in the middle that a handler wants is handled, wherever it lies', async () => {
  const { store, seen } = await givenHandler()
  const places = [0, 2_499, 2_500, 9_999, 10_000, 12_345, 20_000, count - 1]
  await store.events.import(
    history(Object.fromEntries(places.map(at => [at, { stream: `order-at-${at}`, ...placed(at) }]))),
  )

  await using _runner = await store.start({ only: ['handlers'] })

  await waitUntil(() => seen.length === places.length)
  expect([...seen].sort()).toEqual(places.map(at => `order-at-${at}`).sort())
})

test('an event of a workflow that is there counts for it, also if no handler wants the event', async () => {
  const { store, seen, checkpoint } = await givenHandler()
  const workflow = await store.workflows.publish('OrderPlaced', { total: 5 }, { stream: 'order-early' })
  {
    await using _runner = await store.start({ only: ['handlers'] })
    await workflow.waitUntilSettled({ timeoutMs: 60_000 })
  }
  const correlationId = workflow.correlationId
  const { position } = await store.events.import(
    history({ 12000: { stream: 'order-early', ...shipped(), correlationId } }),
  )

  await using _runner = await store.start({ only: ['handlers'] })
  await waitUntil(async () => (await checkpoint()) >= position)

  expect(seen).toEqual(['order-early'])
  expect(await store.workflows.get(correlationId).status()).toMatchObject({ lastType: 'OrderShipped' })
})

// Embedded less is passed over at once than on a server, so that fewer events show it.
if (!onServer) {
  test('a handler of all types gets every event: nothing is passed over', async () => {
    let seen = 0
    const audit = defineHandler('audit', { events: shopEvents, on: '*', inline: true, run: () => void seen++ })
    const { store } = await openShop({ handlers: [audit] })
    await store.workflows.sync()
    // A little more than would be passed over at once.
    const few = history().slice(0, 2_600)
    await store.events.import(few)

    await using _runner = await store.start({ only: ['handlers'] })

    await waitUntil(() => seen >= few.length, { deadlineMs: 120_000 })
    expect(seen).toBe(few.length)
  })
}
