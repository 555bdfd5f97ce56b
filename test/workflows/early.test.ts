/** Quick executions that run before anything of them is stored. */
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { inconsistentCounters } from '../support/counters-consistency.ts'
import { openDatabase } from '../support/engines.ts'
import { lossyDatabase } from '../support/lossy-database.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { watchedDatabase } from '../support/watched-database.ts'
import { openWorkerProcesses } from '../support/worker-processes.ts'

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

/** What belongs to the runner, to other processes, and to the looks of this test. */
const besides = new Set(['database.notify', 'runners.heartbeat', 'workflows.status', 'workflows.due'])

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
    return watched.labels.filter(label => !besides.has(label)).join(', ') === 'events.append, workflows.dispatch'
  })

  const { correlationId } = await workflows.publish('OrderPlaced', { total: 1 }, { attributes: { region: 'eu' } })
  await workflows.get(correlationId).waitUntilSettled()
  const looks = deferred<void>()
  watched.hold = { label: 'workflows.status', until: looks.promise }
  const status = await (await workflows.publish('OrderPaid', { method: 'card' }, { correlationId })).waitUntilSettled()
  looks.resolve()
  expect(status).toEqual(await workflows.get(correlationId).status())
  expect(status.attributes).toEqual({ region: 'eu' })
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
  // Without a look: the call that stores its end says that the workflow is settled.
  const looks = deferred<void>()
  watched.hold = { label: 'workflows.status', until: looks.promise }
  const settled = slow.waitUntilSettled()
  hold.resolve()
  expect((await settled).state).toBe('settled')
  looks.resolve()
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
  await shop.query(`update ~consumers set lease_until = now() - interval '1 second' where name = 'workflows'`)
  await flow.waitUntilSettled()

  expect(runs).toEqual([flow.correlationId, flow.correlationId])
  expect((await history(shop, flow.correlationId)).match(/completed/g)).toHaveLength(1)
  expect(await inconsistentCounters(shop)).toEqual([])
})

/** Whether nothing of it was stored before its execution had ended: then all lines of its history are of one call. */
async function wasEarly({ query }: Shop, correlationId: string): Promise<boolean> {
  const [row] = await query<{ moments: number }>(
    `select count(distinct at)::int as moments from ~workflow_activity where correlation_id = $1`,
    [correlationId],
  )
  return row!.moments === 1
}

test('an event that kills its process is set aside: only the first death comes before there is a row to count it', async () => {
  const shop = await openShop()
  const { workflows } = shop.store
  let begun = deferred<void>()
  let deaths = 0
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 100,
    register: ({ store }) =>
      store.workflows.register(
        defineHandler('pay', {
          events: shopEvents,
          on: 'OrderPlaced',
          run({ data }) {
            if (data.total !== 99) return undefined
            deaths++
            begun.resolve()
            return new Promise<never>(() => {})
          },
        }),
      ),
  })
  let victim = await workers.start()
  await waitUntil(async () => {
    const quick = await victim.store.workflows.publish('OrderPlaced', { total: 1 })
    await quick.waitUntilSettled()
    return wasEarly(shop, quick.correlationId)
  })

  await victim.store.workflows.publish('OrderPlaced', { total: 99 })
  for (;;) {
    await Promise.race([begun.promise, waitUntil(isSetAside)])
    if (await isSetAside()) break
    begun = deferred<void>()
    workers.kill(victim)
    victim = await workers.start()
  }
  const after = await victim.store.workflows.publish('OrderPlaced', { total: 1 })

  expect((await workflows.get(after.correlationId).waitUntilSettled()).state).toBe('settled')
  expect(await shop.query('select reason from ~dead_letters')).toEqual([{ reason: 'crashed' }])
  // Four of them are counted, and one more if the first ran before it had a row.
  expect([4, 5]).toContain(deaths)

  async function isSetAside(): Promise<boolean> {
    return (await shop.query('select from ~dead_letters')).length > 0
  }
})

test('two processes that take the dispatcher from each other store each end once', async () => {
  const shop = await openShop()
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 2_000,
    register: ({ store }) => store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} })),
  })
  const both = [await workers.start(), await workers.start()]
  const flows: string[] = []

  for (let round = 0; round < 8; round++) {
    const published = both.flatMap(({ store }) =>
      Array.from({ length: 10 }, () => store.workflows.publish('OrderPlaced', { total: round })),
    )
    await shop.query(
      `update ~consumers set lease_until = clock_timestamp() - interval '1 second' where name = 'workflows'`,
    )
    flows.push(...(await Promise.all(published)).map(({ correlationId }) => correlationId))
  }
  for (const id of flows) await shop.store.workflows.get(id).waitUntilSettled()

  expect(
    await shop.query(
      `select correlation_id, count(*) from ~workflow_activity where kind = 'completed' group by 1 having count(*) <> 1`,
    ),
  ).toEqual([])
  expect(await shop.query(`select count(*)::int as n from ~workflow_activity where kind = 'completed'`)).toEqual([
    { n: flows.length },
  ])
  expect(await inconsistentCounters(shop)).toEqual([])
})
