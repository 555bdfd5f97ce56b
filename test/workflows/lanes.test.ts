import { expect, test } from 'vitest'
import { defineHandler } from '../../src/workflows/handler.ts'
import { openShop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

test('SB-01: an ordered handler runs one at a time and in the order of the log, per workflow', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen = new Map<string, number[]>()
  const running = new Set<string>()
  const attempts = new Set<number>()
  let most = 0
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      run: async (event, ctx) => {
        expect(running.has(ctx.correlationId)).toBe(false)
        running.add(ctx.correlationId)
        attempts.add(ctx.attempt)
        most = Math.max(most, running.size)
        // No handler continues before a second lane has begun.
        await waitUntil(() => most > 1)
        await turn()
        seen.set(ctx.correlationId, [...(seen.get(ctx.correlationId) ?? []), event.data.total])
        running.delete(ctx.correlationId)
      },
    }),
  )
  await using worker = flows.worker({ concurrency: 8 })
  await worker.start()

  const published: Promise<unknown>[] = []
  for (let total = 1; total <= 25; total++)
    for (const order of ['a', 'b', 'c', 'd'])
      published.push(flows.publish('OrderPlaced', { total }, { correlationId: order }))
  await Promise.all(published)
  for (const order of ['a', 'b', 'c', 'd']) await flows.get(order).waitUntilSettled({ timeoutMs: 100_000 })

  const inOrder = Array.from({ length: 25 }, (_, at) => at + 1)
  for (const order of ['a', 'b', 'c', 'd']) expect(seen.get(order)).toEqual(inOrder)
  expect(most).toBeGreaterThan(1)
  expect([...attempts]).toEqual([1])
})

test('a key function makes lanes across workflows', async () => {
  const { store, query } = await openShop()
  const flows = store.workflows
  const seen = { odd: [] as number[], even: [] as number[] }
  const keyOf = (total: number): 'odd' | 'even' => (total % 2 === 1 ? 'odd' : 'even')
  const running = new Set<string>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: event => keyOf(event.data.total),
      run: async event => {
        const key = keyOf(event.data.total)
        expect(running.has(key)).toBe(false)
        running.add(key)
        await turn()
        seen[key].push(event.data.total)
        running.delete(key)
      },
    }),
  )
  await using worker = flows.worker({ concurrency: 8 })
  await worker.start()

  const all = []
  for (let total = 1; total <= 30; total++) all.push(await flows.publish('OrderPlaced', { total }))
  for (const flow of all) await flow.waitUntilSettled({ timeoutMs: 100_000 })

  expect(seen.odd).toEqual(Array.from({ length: 15 }, (_, at) => 2 * at + 1))
  expect(seen.even).toEqual(Array.from({ length: 15 }, (_, at) => 2 * at + 2))
  expect(await query('select * from ~workflow_lanes')).toEqual([])
})

test('a head that fails blocks its lane until it is retried, and no other lane', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: string[] = []
  const backoff = { baseMs: 5, factor: 1 }
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      retries: 100_000,
      backoff,
      run: (event, ctx) => {
        if (ctx.correlationId === 'a' && event.data.total === 1 && !seen.includes('b3')) throw new Error('not yet')
        seen.push(`${ctx.correlationId}${event.data.total}`)
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  for (const total of [1, 2, 3])
    for (const correlationId of ['a', 'b']) await flows.publish('OrderPlaced', { total }, { correlationId })
  await flows.get('a').waitUntilSettled()
  await flows.get('b').waitUntilSettled()

  expect(seen.filter(each => each.startsWith('a'))).toEqual(['a1', 'a2', 'a3'])
  expect(seen.filter(each => each.startsWith('b'))).toEqual(['b1', 'b2', 'b3'])
})

test('a key function that fails is a failure of its event, and of no other', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const seen: number[] = []
  const keyOf = (total: number): string => {
    if (total === 2) throw new Error('no key')
    return 'all'
  }
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: event => keyOf(event.data.total),
      run: event => {
        seen.push(event.data.total)
      },
    }),
  )
  await using worker = flows.worker()
  await worker.start()

  for (const total of [1, 2, 3]) await flows.publish('OrderPlaced', { total })
  await waitUntil(() => seen.length === 2)
  await waitUntil(async () => (await store.deadLetters.list()).length === 1)

  expect(seen).toEqual([1, 3])
  expect((await store.deadLetters.list())[0]).toMatchObject({ lastError: { message: 'no key' } })
})
