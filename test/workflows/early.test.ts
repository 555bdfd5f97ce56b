/** Quick executions that run before anything of them is stored. */
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import type { Database } from '../../src/database/database.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { openDatabase } from '../support/engines.ts'
import { lossyDatabase } from '../support/lossy-database.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** Passes a statement on, and shows it before and holds it back as long as the test says. */
function watchedDatabase(database: Database): {
  readonly database: Database
  readonly labels: string[]
  hold: { readonly label: string; readonly until: Promise<unknown> } | undefined
} {
  const watched = {
    labels: [] as string[],
    hold: undefined as { readonly label: string; readonly until: Promise<unknown> } | undefined,
    database: {
      ...database,
      async run(statement) {
        watched.labels.push(statement.label)
        if (watched.hold?.label === statement.label) await watched.hold.until
        return database.run<never>(statement)
      },
      async runArrays(statement) {
        watched.labels.push(statement.label)
        return database.runArrays(statement)
      },
    } as Database,
  }
  return watched
}

/** The lines of history of the last workflow, in order. */
function history({ query }: Shop, correlationId: string): Promise<string> {
  return query<{ line: string }>(
    `select concat_ws(' ', handler, kind, outcome, attempt) as line
    from ~workflow_activity
    where correlation_id = $1
    order by position`,
    [correlationId],
  ).then(rows => rows.map(({ line }) => line).join(', '))
}

/**
 * The first page of a dispatcher gets rows, and so do those of a handler that a busy machine has stopped for a while: until
 * one goes without.
 */
async function warmUp({ store }: Shop, { labels }: { labels: string[] }): Promise<void> {
  await waitUntil(async () => {
    labels.length = 0
    await (await store.workflows.publish('OrderPlaced', { total: 0 })).waitUntilSettled()
    return !labels.includes('workflows.complete')
  })
}

test('a quick execution leaves no row, but the same history and counters, and its caller is answered with it', async () => {
  const watched = watchedDatabase(await openDatabase())
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await using worker = workerOf(shop.store)
  await worker.start()
  await warmUp(shop, watched)

  // A handler that a busy machine has stopped for a while does not count as quick.
  await waitUntil(async () => {
    watched.labels.length = 0
    const flow = await workflows.publish('OrderPlaced', { total: 1 })
    const status = await flow.waitUntilSettled()

    expect(status).toMatchObject({ state: 'settled', isSettled: true, pending: 0, lastType: 'OrderPlaced' })
    expect(await flow.status()).toEqual(status)
    expect(await history(shop, flow.correlationId)).toBe('pay dispatched 0, pay started 1, pay completed 1')
    return !watched.labels.some(label => /^workflows\.(claim|complete|hold)$/.test(label))
  })
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('an execution that takes long gets a row, and does not keep others waiting', async () => {
  const watched = watchedDatabase(await openDatabase())
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  const hold = deferred<void>()
  workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: ({ data }) => (data.total === 99 ? hold.promise : undefined),
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  await warmUp(shop, watched)

  const slow = await workflows.publish('OrderPlaced', { total: 99 })
  const quick = await workflows.publish('OrderPlaced', { total: 1 })
  await quick.waitUntilSettled()

  expect(await shop.query('select state, attempt from ~workflow_executions')).toEqual([
    { state: 'running', attempt: 1 },
  ])
  hold.resolve()
  await slow.waitUntilSettled()
  expect(await history(shop, slow.correlationId)).toBe('pay dispatched 0, pay started 1, pay completed 1')
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('events that it emits, its steps and its failures are stored as those of any other execution', async () => {
  const watched = watchedDatabase(await openDatabase())
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  const tries: number[] = []
  workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      backoff: { baseMs: 1, jitter: 0 },
      async run({ data }, { step, emit, attempt, now, uuid }) {
        if (data.total === 0) return undefined
        const drawn = [now().toISOString(), uuid()]
        const method = await step('charge', () => 'card' as const)
        const first = await step('drawn', () => drawn)
        expect(first).toEqual(drawn)
        tries.push(attempt)
        if (attempt === 1) throw new Error('declined')
        return emit('OrderPaid', { method })
      },
    }),
  )
  workflows.register(defineHandler('ship', { on: 'OrderPaid', run: () => {} }))
  await using worker = workerOf(shop.store, { pollMs: 10 })
  await worker.start()
  await warmUp(shop, watched)

  const flow = await workflows.publish('OrderPlaced', { total: 5 })
  await flow.waitUntilSettled()

  expect(tries).toEqual([1, 2])
  expect(await history(shop, flow.correlationId)).toBe(
    [
      'pay dispatched 0, pay started 1, pay failed retry 1, pay started 2, pay completed 2',
      'ship dispatched 0, ship started 1, ship completed 1',
    ].join(', '),
  )
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('an end does not count when the workflow was cancelled meanwhile', async () => {
  const watched = watchedDatabase(await openDatabase())
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  const cancelled = deferred<void>()
  let signal: AbortSignal | undefined
  let runs = 0
  workflows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      async run({ data, correlationId }, ctx) {
        if (data.total === 0) return
        runs++
        signal = ctx.signal
        await workflows.get(correlationId).cancel({ reason: 'changed their mind' })
        cancelled.resolve()
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  await warmUp(shop, watched)

  const flow = await workflows.publish('OrderPlaced', { total: 5 })
  await cancelled.promise
  const status = await flow.waitUntilSettled()

  expect([status.state, runs]).toEqual(['cancelled', 1])
  expect(await history(shop, flow.correlationId)).not.toContain('completed')
  expect(signal).toBeDefined()
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('after a holder that let its lease expire, executions get rows before they run', async () => {
  const watched = watchedDatabase(await openDatabase())
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  const hasRow: boolean[] = []
  workflows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      run: () => void hasRow.push(watched.labels.includes('workflows.dispatch')),
    }),
  )
  const place = async (): Promise<void> => {
    watched.labels.length = 0
    await (await workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()
  }
  {
    await using worker = workerOf(shop.store)
    await worker.start()
    await warmUp(shop, watched)
  }
  expect(hasRow.at(-1)).toBe(false)
  await shop.query(
    `update ~consumers set owner = 'a runner that died', lease_until = now() - interval '1 second'
    where name = 'workflows'`,
  )

  hasRow.length = 0
  await using successor = workerOf(shop.store)
  await successor.start()
  for (let n = 0; n < 5; n++) await place()

  expect(hasRow).toEqual([true, true, true, true, true])
})

test('a handler that is registered while others run gets its events, and theirs are not run again', async () => {
  const watched = watchedDatabase(await openDatabase())
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  const runs: string[] = []
  workflows.register(
    defineHandler('pay', { on: 'OrderPlaced', run: ({ correlationId }) => void runs.push(correlationId) }),
  )
  await using worker = workerOf(shop.store)
  await worker.start()
  await warmUp(shop, watched)
  runs.length = 0
  const registered = deferred<void>()
  watched.hold = { label: 'workflows.dispatch', until: registered.promise }

  const flow = await workflows.publish('OrderPlaced', { total: 1 })
  await waitUntil(() => runs.length > 0)
  workflows.register(defineHandler('count', { on: 'OrderPlaced', from: 'start', run: () => {} }))
  await workflows.sync()
  registered.resolve()
  await flow.waitUntilSettled()

  expect(runs).toEqual([flow.correlationId])
  await waitUntil(async () => (await history(shop, flow.correlationId)).includes('count completed'))
  expect((await history(shop, flow.correlationId)).match(/pay completed/g)).toHaveLength(1)
})

test('an end whose answer was lost counts once, and one that could not be stored is not run again', async () => {
  const lossy = lossyDatabase(await openDatabase())
  const watched = watchedDatabase(lossy.database)
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  const runs = new Map<string, number>()
  workflows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      run: ({ correlationId }) => void runs.set(correlationId, (runs.get(correlationId) ?? 0) + 1),
    }),
  )
  await using worker = workerOf(shop.store, { pollMs: 10 })
  await worker.start()
  await warmUp(shop, watched)

  lossy.loseAnswerTo('workflows.dispatch')
  const answered = await workflows.publish('OrderPlaced', { total: 1 })
  await answered.waitUntilSettled()
  await warmUp(shop, watched)
  lossy.refuse('workflows.dispatch', 1)
  const refused = await workflows.publish('OrderPlaced', { total: 2 })
  await refused.waitUntilSettled()

  expect(lossy.counts()).toEqual({ lost: 1, refused: 1 })
  expect([...runs.values()].filter(times => times !== 1)).toEqual([])
  expect(await history(shop, answered.correlationId)).toBe('pay dispatched 0, pay started 1, pay completed 1')
  expect(await history(shop, refused.correlationId)).toBe('pay dispatched 0, pay started 1, pay completed 1')
  expect(await inconsistentCounters(shop)).toEqual([])
})

test('a process that was stopped for longer than its lease stores nothing of what it has run', async () => {
  const watched = watchedDatabase(await openDatabase())
  const shop = await openShop({ database: watched.database })
  const { workflows } = shop.store
  const runs: string[] = []
  workflows.register(
    defineHandler('pay', { on: 'OrderPlaced', run: ({ correlationId }) => void runs.push(correlationId) }),
  )
  await using worker = workerOf(shop.store, { pollMs: 10 })
  await worker.start()
  await warmUp(shop, watched)
  runs.length = 0
  const awake = deferred<void>()
  watched.hold = { label: 'workflows.dispatch', until: awake.promise }
  const flow = await workflows.publish('OrderPlaced', { total: 1 })
  await waitUntil(() => runs.length > 0)

  await shop.query(
    `update ~consumers
    set owner = 'another process', fence = fence + 1000, lease_until = now() + interval '1 h'
    where name = 'workflows'`,
  )
  watched.hold = undefined
  awake.resolve()
  await waitUntil(() => watched.labels.includes('workflows.dispatch'))
  await new Promise(setImmediate)
  expect(await history(shop, flow.correlationId)).toBe('')
  await shop.query(
    `update ~consumers set lease_until = now() - interval '1 second' where name = 'workflows'`,
  )
  await flow.waitUntilSettled()

  expect(runs).toEqual([flow.correlationId, flow.correlationId])
  expect((await history(shop, flow.correlationId)).match(/completed/g)).toHaveLength(1)
  expect(await inconsistentCounters(shop)).toEqual([])
})
