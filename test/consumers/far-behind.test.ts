/** Consumers that are far behind: they read larger pages, through COPY, and several of them at once. */
import { expect, test } from 'vitest'
import { type Consumer, type ConsumerOptions, consumer } from '../../src/consumers/consumer.ts'
import { runUntilIdle } from '../../src/consumers/run/run.ts'
import { waitForConsumer } from '../../src/consumers/wait-for.ts'
import type { RecordedEvent } from '../../src/events/definition.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import { type ConsumerParts, openConsumerParts, quick } from '../support/consumer-parts.ts'
import { openShop, type Shop } from '../support/shop.ts'

const count = 3_000

async function openFullShop(
  options: Parameters<typeof openConsumerParts>[1] = {},
): Promise<{ shop: Shop; consumers: ConsumerParts; written: RecordedEvent[] }> {
  const shop = await openShop()
  await shop.store.events.import(manyEvents())
  const written: RecordedEvent[] = []
  for await (const event of shop.store.events.readAll()) written.push(event)
  return { shop, consumers: openConsumerParts(shop, options), written }
}

function* manyEvents(): Generator<{ stream: string; type: string; data: object; headers?: Record<string, unknown> }> {
  for (let n = 0; n < count; n++) {
    const note = ['tab\there', 'line\nbreak', 'back\\slash \\N \\.', 'it’s "quoted"', ''][n % 5]
    const headers = n % 7 === 0 ? {} : { headers: { source: note } }
    yield { stream: `order-${n % 40}`, type: n % 3 === 0 ? "It's\\Odd" : 'OrderNoted', data: { n, note }, ...headers }
  }
}

/** Records committed events. */
function keeper(
  name: string,
  given: Partial<Consumer> = {},
  options: ConsumerOptions = { retries: 0 },
): { consumer: Consumer; kept: RecordedEvent[] } {
  const kept: RecordedEvent[] = []
  const handle: Consumer['handle'] = async (events, ctx) => {
    for (const event of events) ctx.at(event)
    ctx.tx.afterCommit(() => void kept.push(...events))
  }
  const made = consumer(
    { name, kind: 'projection', filter: {}, handle },
    { batchSize: 1_000, backoff: quick, ...options },
  )
  return { consumer: { ...made, ...given }, kept }
}

test('a runner that is far behind delivers every event once, in order, unchanged', async () => {
  const { consumers, written } = await openFullShop()
  const all = keeper('all')
  consumers.register(all.consumer)

  await consumers.start()
  await waitForConsumer(consumers, 'all', written.at(-1)!.position)

  expect(all.kept).toEqual(written)
})

test('far behind, only the wanted types are delivered, whatever characters are in their names', async () => {
  const { consumers, written } = await openFullShop()
  const odd = keeper('odd', { filter: { types: ["It's\\Odd"] } })

  await runUntilIdle(consumers, [odd.consumer])

  expect(odd.kept).toEqual(written.filter(event => event.type === "It's\\Odd"))
})

test('far behind, an event that cannot be read is dead-lettered and hides none of the others', async () => {
  const bad = 1_234
  const fail = (data: unknown): unknown => {
    if ((data as { n: number }).n === bad) throw new Error('no')
    return data
  }
  const steps = [defineUpcaster('OrderNoted', { from: 1, to: 2, run: fail })]
  const { shop, consumers, written } = await openFullShop({ upcasters: steps })
  const all = keeper('all')
  consumers.register(all.consumer)

  await consumers.start()
  await waitForConsumer(consumers, 'all', written.at(-1)!.position)

  const numbers = (events: readonly RecordedEvent[]): number[] => events.map(event => (event.data as { n: number }).n)
  expect(numbers(all.kept)).toEqual(numbers(written).filter(n => n !== bad))
  const deadLetters = await shop.query('select position from ~dead_letters')
  expect(deadLetters).toEqual([{ position: written[bad]!.position }])
})

test('far behind, a failed batch is applied again from its checkpoint, and prefetched events are not lost', async () => {
  const { consumers, written } = await openFullShop()
  let failures = 3
  const all = keeper('all', {}, { retries: 5 })
  const handle: Consumer['handle'] = async (events, ctx) => {
    for (const event of events) {
      ctx.at(event)
      if (event.position % 700 === 0 && failures-- > 0) throw new Error('not yet')
    }
    await all.consumer.handle(events, ctx)
  }
  consumers.register({ ...all.consumer, handle })

  await consumers.start()
  await waitForConsumer(consumers, 'all', written.at(-1)!.position)

  expect(all.kept.map(event => event.position)).toEqual(written.map(event => event.position))
})
