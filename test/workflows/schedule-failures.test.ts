/** Schedules whose process, connection or worker fails in the middle of a run. */
import { expect, test } from 'vitest'
import type { Database, Executor } from '../../src/database/database.ts'
import { ConnectionLost } from '../../src/database/errors.ts'
import type { Statement } from '../../src/database/sql.ts'
import { emit } from '../../src/workflows/emit.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { openDatabase } from '../support/engines.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const placed = () => emit('OrderPlaced', { total: 1 })
const soon = { pollMs: 50 }

/** As if it had been due since then. */
async function overdue({ query }: Shop, name: string, since: string): Promise<void> {
  await query(`update ~workflow_schedules set next_at = now() - $2::interval where name = $1`, [name, since])
}

test('AB-18: an interrupted run is taken over, and its late result is refused', async () => {
  const shop = await openShop()
  const { store, query } = shop
  const stores = [store, await shop.sibling()]
  const dues: Date[] = []
  const ends: (() => void)[] = []
  let ticks = 0
  for (const each of stores) {
    each.workflows.register(
      defineSchedule('restock', {
        events: shopEvents,
        everyMs: 3_600_000,
        missed: 'skip',
        run: async ({ dueAt, emit }) => {
          const total = dues.push(dueAt)
          await new Promise<void>(resolve => ends.push(resolve))
          return emit('OrderPlaced', { total })
        },
      }),
    )
    each.workflows.register(defineSchedule('tick', { everyMs: 20, run: () => void ticks++ }))
  }
  await store.workflows.sync()
  await overdue(shop, 'restock', '1 second')
  const workers = stores.map(each => workerOf(each, soon))
  await Promise.all(workers.map(worker => worker.start()))
  await waitUntil(() => dues.length === 1)

  await query(`update ~workflow_schedules set claimed_until = now() - interval '1 second' where name = 'restock'`)
  await waitUntil(() => dues.length === 2)
  const before = ticks
  ends[0]!()
  await waitUntil(() => ticks > before + 5)
  const refused = (await store.workflows.schedules.history('restock')).items
  ends[1]!()
  await Promise.all(workers.map(worker => worker.stop()))

  expect(refused).toEqual([])
  expect(dues).toEqual([dues[0], dues[0]])
  expect(await query('select data from ~events')).toEqual([{ data: { total: 2 } }])
  expect((await store.workflows.schedules.history('restock')).items).toMatchObject([
    { dueAt: dues[0], outcome: 'completed' },
  ])
})

test('AB-18: a run that began on time is taken over, however late that is', async () => {
  const shop = await openShop()
  const { store, query } = shop
  const dues: Date[] = []
  store.workflows.register(
    defineSchedule('nightly', { everyMs: 3_600_000, missed: 'skip', run: ({ dueAt }) => void dues.push(dueAt) }),
  )
  await store.workflows.sync()
  await overdue(shop, 'nightly', '330 minutes')
  await query(`update ~workflow_schedules set next_at = ~to_ms(next_at),
    begun_at = ~to_ms(next_at), owner = 'gone', claimed_until = now() + interval '1 hour'`)
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(async () => (await store.workflows.schedules.history('nightly')).items.length === 2)
  const history = (await store.workflows.schedules.history('nightly')).items.toReversed()

  expect(dues).toEqual([history[0]!.dueAt])
  expect(history.map(({ outcome }) => outcome)).toEqual(['completed', 'skipped'])
  expect(history[1]!.dueAt.getTime() - history[0]!.dueAt.getTime()).toBe(5 * 3_600_000)
})

test('a worker that stops lets runs end; one that it cuts off is free for others immediately', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const taken: string[] = []
  let aborted: unknown
  let begun = 0
  store.workflows.register(
    defineSchedule('stocktaking', {
      at: new Date(),
      timeoutMs: 3_600_000,
      run: async ({ signal }) => {
        begun++
        await new Promise(resolve => signal.addEventListener('abort', resolve))
        aborted = signal.reason
        return placed()
      },
    }),
  )
  other.workflows.register(
    defineSchedule('stocktaking', { at: new Date(), timeoutMs: 3_600_000, run: () => void taken.push('other') }),
  )
  await using worker = workerOf(store)
  await worker.start()
  await waitUntil(() => begun === 1)
  await using successor = workerOf(other, soon)

  await worker.stop({ drainMs: 1 })
  await successor.start()
  await waitUntil(() => taken.length === 1)

  expect(aborted).toBeInstanceOf(Error)
  expect(begun).toBe(1)
})

test('every due time is run and stored once, whichever answer of the database is lost', async () => {
  const { database, unbroken } = breaking(await openDatabase(), [
    ...['workflows.claim_schedules', 'workflows.end_schedule', 'workflows.record_schedule', 'events.append_batch'],
    'commit of workflows.end_schedule',
  ])
  const { store, query } = await openShop({ database })
  const dues: number[] = []
  store.workflows.register(
    defineSchedule('restock', {
      everyMs: 10,
      missed: 'all',
      timeoutMs: 3_600_000,
      run: ({ dueAt }) => {
        dues.push(dueAt.getTime())
        return placed()
      },
    }),
  )
  await using worker = workerOf(store, soon)
  await worker.start()

  await waitUntil(() => dues.length >= 10)
  await worker.stop()

  const runs = await query<{ due_at: Date }>('select due_at, outcome from ~workflow_schedule_runs order by due_at')
  expect(unbroken).toEqual(new Set())
  expect(runs).toEqual(dues.map((_, n) => ({ due_at: new Date(dues[0]! + n * 10), outcome: 'completed' })))
  expect(await query('select from ~events')).toHaveLength(dues.length)
})

/** Loses the answer to the first statement, and to the first commit, with this label. */
function breaking(database: Database, labels: readonly string[]): { database: Database; unbroken: Set<string> } {
  const unbroken = new Set(labels)
  const answer = <T>(label: string, value: T): T => {
    if (unbroken.delete(label)) throw new ConnectionLost({ reason: 'made to break' })
    return value
  }
  const wrapped = (executor: Executor, onStatement: (label: string) => void = () => {}): Executor => ({
    async run<R extends object>(statement: Statement) {
      onStatement(statement.label)
      return answer(statement.label, await executor.run<R>(statement))
    },
    async runArrays(statement) {
      onStatement(statement.label)
      return answer(statement.label, await executor.runArrays(statement))
    },
  })
  return {
    unbroken,
    database: {
      ...database,
      ...wrapped(database),
      async transaction(work, options) {
        const reported: string[] = []
        const result = await database.transaction(
          tx => work({ ...tx, ...wrapped(tx, label => reported.push(label)) }),
          options,
        )
        for (const label of reported) answer(`commit of ${label}`, undefined)
        return result
      },
    },
  }
}
