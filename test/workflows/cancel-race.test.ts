import { expect, test } from 'vitest'
import { type Deferred, deferred } from '../../src/core/abort.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'

const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

async function turns(count: number): Promise<void> {
  for (let n = 0; n < count; n++) await turn()
}

interface End {
  readonly execution: string
  readonly handler: string
  readonly kind: string
  readonly emitted: boolean
}

function endsOf({ query }: Shop): Promise<End[]> {
  return query<End>(`
    select a.execution, a.handler, a.kind, exists (
      select from ~events as e where e.correlation_id = a.correlation_id and e.type = 'OrderPaid') as emitted
    from ~workflow_activity as a
    where a.kind in ('completed', 'cancelled')`)
}

test('of a simultaneous completion and cancellation exactly one counts', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  const returned = new Map<string, Deferred<void>>()
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (event, ctx) => {
        await turns(event.data.total % 3)
        returned.get(ctx.correlationId)!.resolve()
        // In every other round the cancellation has a head start.
        await turns((Number(ctx.correlationId.split('-')[1]) % 2) * 40)
        return ctx.emit('OrderPaid', { method: 'card' })
      },
    }),
  )
  flows.register(
    defineHandler('count', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: () => 'all',
      run: event => turns(event.data.total % 3),
    }),
  )
  flows.register(defineHandler('ship', { on: 'OrderPaid', ordered: true, run: () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()

  const race = async (round: number): Promise<void> => {
    const all = await Promise.all(
      Array.from({ length: 60 }, async (_, total) => {
        const correlationId = `order-${round}-${total}`
        const isReturned = deferred<void>()
        returned.set(correlationId, isReturned)
        const flow = await flows.publish('OrderPlaced', { total }, { correlationId })
        await isReturned.promise
        await turns((total % 10) * (1 + round))
        await flow.cancel()
        return flow
      }),
    )
    for (const flow of all) await flow.waitUntilSettled({ timeoutMs: 100_000 })
  }
  let ends: End[] = []
  let payments: End[] = []
  // Until each of them was first at least once.
  for (let round = 0; round < 20 && new Set(payments.map(end => end.kind)).size < 2; round++) {
    await race(round)
    ends = await endsOf(shop)
    payments = ends.filter(({ handler }) => handler === 'pay')
  }

  expect(new Set(ends.map(end => end.execution)).size).toBe(ends.length)
  for (const end of payments) expect(end.emitted).toBe(end.kind === 'completed')
  expect(new Set(payments.map(end => end.kind))).toEqual(new Set(['cancelled', 'completed']))
  expect(await shop.query('select * from ~workflow_executions')).toEqual([])
  expect(await shop.query('select * from ~workflow_lanes')).toEqual([])
  expect(await inconsistentCounters(shop)).toEqual([])
})
