/** Workers that die, are considered dead, or do not get the answer to a statement. */
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { complete } from '../../src/workflows/emit.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import type { WorkflowStatus } from '../../src/workflows/status.ts'
import { openDatabase } from '../support/engines.ts'
import { lossyDatabase } from '../support/lossy-database.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { openWorkerProcesses, type WorkerProcessesOptions } from '../support/worker-processes.ts'

/** Too long to expire during the test: the observed effects were not caused by an expired lease. */
const endlessMs = 600_000

/** Lets everything happen that follows from resolved promises. */
const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

test('SB-05: the execution of a killed worker is run by another after the lease, and the attempt is counted', async () => {
  const shop = await openShop()
  const begun = deferred<void>()
  const attempts: string[] = []
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 100,
    register: ({ store, name }) =>
      store.workflows.register(
        defineHandler('pay', {
          events: shopEvents,
          on: 'OrderPlaced',
          run: async (_event, ctx) => {
            attempts.push(`${name} ${ctx.attempt}`)
            if (attempts.length > 1) return
            begun.resolve()
            await new Promise(() => {})
          },
        }),
      ),
  })
  const victim = await workers.start()
  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
  await begun.promise

  workers.kill(victim)
  await workers.start()
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('settled')
  expect(attempts).toEqual(['worker-0 1', 'worker-1 2'])
  expect(await activity(shop)).toEqual(['dispatched', 'started 1', 'failed 1 lost', 'started 2', 'completed 2'])
})

test('a dispatch that a crash of the server undid is made again', async () => {
  const shop = await openShop()
  const flows = shop.store.workflows
  flows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await using dispatching = workerOf(shop.store, { handlers: [] })
  await dispatching.start()
  await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(async () => (await executions(shop)) === 1)

  await shop.query(`
    with gone as (delete from ~workflow_executions),
      forgotten as (delete from ~workflows)
    update ~consumers set checkpoint = 0 where name = 'workflows'`)
  await flows.publish('OrderPlaced', { total: 2 })

  await waitUntil(async () => (await executions(shop)) === 2)
})

test('an event that kills its workers becomes a dead letter in the end', async () => {
  const shop = await openShop()
  let begun = deferred<void>()
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 100,
    register: ({ store }) =>
      store.workflows.register(
        defineHandler('pay', {
          on: 'OrderPlaced',
          run: async () => {
            begun.resolve()
            await new Promise(() => {})
          },
        }),
      ),
  })
  let victim = await workers.start()
  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })

  for (let crashes = 0; crashes < 4; crashes++) {
    await begun.promise
    begun = deferred<void>()
    workers.kill(victim)
    victim = await workers.start()
  }
  const status = await flow.waitUntilSettled()

  expect(status.state).toBe('failed')
  expect(await shop.query('select reason, attempts from ~dead_letters')).toEqual([{ reason: 'crashed', attempts: 5 }])
})

test('executions that a killed worker held in a lane are free with its head, in order', async () => {
  const shop = await openShop()
  const done: number[] = []
  const begun = deferred<void>()
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 100,
    register: ({ store, name }) =>
      store.workflows.register(
        defineHandler('pay', {
          events: shopEvents,
          on: 'OrderPlaced',
          ordered: true,
          run: async event => {
            if (name === 'worker-0' && event.data.total === 2) {
              begun.resolve()
              await new Promise(() => {})
            }
            done.push(event.data.total)
          },
        }),
      ),
  })
  shop.store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', ordered: true, run: () => {} }))
  for (const total of [1, 2, 3, 4]) await placed(shop, total)
  const victim = await workers.start()
  await begun.promise

  workers.kill(victim)
  await workers.start()
  await shop.store.workflows.get('order').waitUntilSettled()

  expect(done).toEqual([1, 2, 3, 4])
  expect(await shop.query('select * from ~workflow_lanes')).toEqual([])
})

test('when the process that dispatches is killed, another dispatches after the lease of its worker', async () => {
  const shop = await openShop()
  const seen: string[] = []
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 100,
    register: ({ store, name }) =>
      store.workflows.register(
        defineHandler('pay', {
          on: 'OrderPlaced',
          run: async () => {
            seen.push(name)
          },
        }),
      ),
  })
  const victim = await workers.start()
  await (await shop.store.workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  workers.kill(victim)
  await workers.start()
  await (await shop.store.workflows.publish('OrderPlaced', { total: 2 })).waitUntilSettled()

  expect(seen).toEqual(['worker-0', 'worker-1'])
})

test.each([
  ['success', 'is no second one', 'settled', ['worker-1']],
  ['failure', 'does not undo the other’s success', 'settled', ['worker-1']],
] as const)('SB-06: the late %s of an attempt that was taken over %s', async (late, _what, state, written) => {
  const shop = await openShop()
  await shop.query('create table ~receipts (worker text)')
  const goOn = deferred<void>()
  const begun = deferred<void>()
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 100,
    register: ({ store, name }) =>
      store.workflows.register(
        defineHandler('pay', {
          on: 'OrderPlaced',
          retries: 3,
          backoff: { baseMs: 1 },
          run: async () => {
            if (name === 'worker-0') {
              begun.resolve()
              await goOn.promise
              if (late === 'failure') throw new Error('no money')
            }
            return complete(tx => tx.query(shop.named('insert into ~receipts values ($1)'), [name]))
          },
        }),
      ),
  })
  const paused = await workers.start()
  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
  await begun.promise
  paused.database.pause()
  await workers.start()
  await flow.waitUntilSettled()

  goOn.resolve()
  await turn()
  paused.database.resume()
  await waitUntil(() => paused.database.lateOutcomes().refused > 0, { what: 'the late outcome' })

  expect(paused.database.lateOutcomes().accepted).toBe(0)
  expect(await flow.status()).toMatchObject({ state, pending: 0 })
  expect((await shop.query('select worker from ~receipts')).map(row => row.worker)).toEqual(written)
})

test('SB-06: the late success of an attempt does not change an execution that was dead-lettered meanwhile', async () => {
  const shop = await openShop()
  const goOn = deferred<void>()
  const begun = deferred<void>()
  await using workers = await openWorkerProcesses(shop, {
    leaseMs: 100,
    register: ({ store, name }) =>
      store.workflows.register(
        defineHandler('pay', {
          events: shopEvents,
          on: 'OrderPlaced',
          retries: 0,
          run: async (_, { emit }) => {
            if (name !== 'worker-0') throw new Error('no money')
            begun.resolve()
            await goOn.promise
            return emit('OrderPaid', { method: 'card' })
          },
        }),
      ),
  })
  const paused = await workers.start()
  const flow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
  await begun.promise
  paused.database.pause()
  await workers.start()
  await flow.waitUntilSettled()

  goOn.resolve()
  await turn()
  paused.database.resume()
  await waitUntil(() => paused.database.lateOutcomes().refused > 0, { what: 'the late outcome' })

  expect(await flow.status()).toMatchObject({ state: 'failed', deadLetters: 1, lastType: 'OrderPlaced' })
})

test('SB-07: a handler that takes longer than the lease is not taken over while its worker lives', async () => {
  const leaseMs = 1_000
  const shop = await openShop()
  const attempts: string[][] = []
  await using workers = await openWorkerProcesses(shop, {
    leaseMs,
    register: ({ store }) =>
      store.workflows.register(
        defineHandler('pay', {
          events: shopEvents,
          on: 'OrderPlaced',
          run: async (event, ctx) => {
            attempts[event.data.total]!.push(ctx.executionId)
            await waitUntil(async () => (await startedBefore(shop, 1.5 * leaseMs)) > 0)
            return ctx.emit('OrderPaid', { method: 'card' })
          },
        }),
      ),
  })
  await workers.start()
  await workers.start()

  // On a machine that stalls longer than the lease one of them is sometimes considered dead: not each time.
  const run = async (total: number): Promise<WorkflowStatus> => {
    attempts[total] = []
    return (await shop.store.workflows.publish('OrderPlaced', { total })).waitUntilSettled()
  }
  let status = await run(0)
  for (let round = 1; round < 10 && attempts.at(-1)!.length > 1; round++) status = await run(round)

  expect(attempts.at(-1)).toHaveLength(1)
  expect(status).toMatchObject({ state: 'settled', lastType: 'OrderPaid' })
})

test('a worker that others considered dead returns, and works again', async () => {
  const shop = await openShop()
  const seen: string[] = []
  await using workers = await openWorkerProcesses(shop, recorder(seen, { leaseMs: 100 }))
  const paused = await workers.start()
  const id = paused.worker.id
  const serving = () => shop.query(`select 1 from ~runners where id = $1 and routes <> '{}'`, [id])
  paused.database.pause()
  const other = await workers.start()
  await waitUntil(async () => (await serving()).length === 0)

  paused.database.resume()
  await waitUntil(async () => (await serving()).length === 1)
  await other.worker.stop()
  await (await shop.store.workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled()

  expect(seen).toEqual(['worker-0 1'])
  expect(paused.worker.id).toBe(id)
})

test('executions claimed by a call whose answer was lost are free again soon, and the attempt does not count', async () => {
  const lossy = lossyDatabase(await openDatabase())
  const shop = await openShop({ database: lossy.database })
  const attempts: number[] = []
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      timeoutMs: endlessMs,
      run: async (_event, ctx) => {
        attempts.push(ctx.attempt)
      },
    }),
  )
  await using worker = workerOf(shop.store, { leaseMs: 600, pollMs: 100 })
  await flows.sync()
  await placed(shop, 1)

  lossy.loseAnswerTo('workflows.claim')
  await worker.start()
  await waitUntil(() => attempts.length > 0)
  await flows.get('order').waitUntilSettled()

  expect(lossy.counts().lost).toBe(1)
  expect(attempts).toEqual([1])
})

test('a lane continues when the answer to the completion of its head is lost', async () => {
  const lossy = lossyDatabase(await openDatabase())
  const shop = await openShop({ database: lossy.database })
  const done: number[] = []
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      timeoutMs: endlessMs,
      run: async event => {
        done.push(event.data.total)
      },
    }),
  )
  await using worker = workerOf(shop.store, { leaseMs: 600, pollMs: 100 })
  await flows.sync()
  for (const total of [1, 2, 3]) await placed(shop, total)

  lossy.loseAnswerTo('workflows.complete')
  await worker.start()
  await waitUntil(() => lossy.counts().lost === 1)
  await flows.get('order').waitUntilSettled()

  expect(done).toEqual([1, 2, 3])
})

test('SB-39: an outcome that cannot be stored at first is stored later, and the handler is not run again', async () => {
  const lossy = lossyDatabase(await openDatabase())
  const shop = await openShop({ database: lossy.database })
  await shop.query('create table ~receipts (total integer)')
  const runs: number[] = []
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      timeoutMs: endlessMs,
      run: async (event, { emit }) => {
        runs.push(event.data.total)
        if (event.data.total === 1) return undefined
        if (event.data.total === 2) return emit('OrderPaid', { method: 'card' })
        return complete(tx => tx.query(shop.named('insert into ~receipts values ($1)'), [event.data.total]))
      },
    }),
  )
  await using worker = workerOf(shop.store, { leaseMs: 600, pollMs: 100 })
  await worker.start()

  lossy.refuse('workflows.hold', 3)
  lossy.refuse('workflows.complete', 3)
  for (const total of [1, 2, 3]) await placed(shop, total)
  await waitUntil(() => lossy.counts().refused === 6)
  await flows.get('order').waitUntilSettled()

  expect(runs.sort()).toEqual([1, 2, 3])
  expect(await shop.query('select total from ~receipts')).toEqual([{ total: 3 }])
})

test('a completion whose commit was not answered is stored once', async () => {
  const lossy = lossyDatabase(await openDatabase())
  const shop = await openShop({ database: lossy.database })
  await shop.query('create table ~receipts (total integer)')
  const flows = shop.store.workflows
  let runs = 0
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      timeoutMs: endlessMs,
      run: async (event, { emit }) => {
        runs++
        const text = shop.named('insert into ~receipts values ($1)')
        return complete(tx => tx.query(text, [event.data.total]), emit('OrderPaid', { method: 'card' }))
      },
    }),
  )
  await using worker = workerOf(shop.store, { leaseMs: 600, pollMs: 100 })
  await worker.start()

  lossy.loseAnswerTo('workflows.hold')
  const flow = await flows.publish('OrderPlaced', { total: 1 })
  await waitUntil(() => lossy.counts().lost === 1)
  await flow.waitUntilSettled()

  expect(runs).toBe(1)
  expect(await shop.query('select total from ~receipts')).toEqual([{ total: 1 }])
  expect(await shop.query(`select 1 from ~events where type = 'OrderPaid'`)).toHaveLength(1)
})

test('when the writes of a head are refused, the next of its lane runs once, after it', async () => {
  const shop = await openShop()
  const done: number[] = []
  const flows = shop.store.workflows
  flows.register(
    defineHandler('pay', {
      events: shopEvents,
      on: 'OrderPlaced',
      ordered: true,
      retries: 0,
      run: async event => {
        done.push(event.data.total)
        if (event.data.total !== 1) return undefined
        return complete(async () => {
          throw new Error('no room')
        })
      },
    }),
  )
  await using worker = workerOf(shop.store)
  await flows.sync()
  for (const total of [1, 2, 3]) await placed(shop, total)

  await worker.start()
  await waitUntil(() => done.includes(3))
  const status = await flows.get('order').waitUntilSettled()

  expect(done).toEqual([1, 2, 3])
  expect(status).toMatchObject({ state: 'failed', deadLetters: 1 })
})

function recorder(seen: string[], options: Omit<WorkerProcessesOptions, 'register'>): WorkerProcessesOptions {
  return {
    ...options,
    register: ({ store, name }) =>
      store.workflows.register(
        defineHandler('pay', {
          events: shopEvents,
          on: 'OrderPlaced',
          run: async (_event, ctx) => {
            seen.push(`${name} ${ctx.attempt}`)
          },
        }),
      ),
  }
}

async function placed({ store }: Shop, total: number): Promise<void> {
  await store.workflows.publish('OrderPlaced', { total }, { correlationId: 'order' })
}

async function startedBefore({ query }: Shop, ms: number): Promise<number> {
  const text = `select 1 from ~workflow_executions where started_at < clock_timestamp() - make_interval(secs => $1)`
  return (await query(text, [ms / 1000])).length
}

/** The activity of the executions, line by line. */
async function activity({ query }: Shop): Promise<string[]> {
  const rows = await query<{ line: string }>(`
    select kind || case when attempt = 0 then '' else ' ' || attempt end || coalesce(' ' || outcome, '') as line
    from ~workflow_activity
    order by position`)
  return rows.map(({ line }) => line)
}

async function executions({ query }: Shop): Promise<number> {
  return (await query('select 1 from ~workflow_executions')).length
}
