import { expect, test } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Store } from '../../src/store.ts'
import { batch, emit } from '../../src/workflows/emit.ts'
import { DuplicateSchedule, ScheduleNotFound } from '../../src/workflows/errors.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { workerOf } from '../support/run-worker.ts'
import { openShop, type Shop, type ShopMap, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const placed = () => emit('OrderPlaced', { total: 1 })
const soon = { pollMs: 50 }

async function historyOf(store: Store<ShopMap>, name: string): Promise<[string, string][]> {
  const runs = (await store.workflows.schedules.history(name)).items
  return runs.map(({ dueAt, outcome }) => [dueAt.toISOString(), outcome])
}

/** As if it had been due since then. */
async function overdue({ query }: Shop, name: string, since: string): Promise<void> {
  await query(`update ~workflow_schedules set next_at = now() - $2::interval where name = $1`, [name, since])
}

test('a schedule publishes the events it returns, each run into its own workflow', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  const paid: string[] = []
  flows.register(
    defineHandler('pay', { events: shopEvents, on: 'OrderPlaced', run: event => void paid.push(event.correlationId) }),
  )
  flows.register(
    defineSchedule('restock', {
      events: shopEvents,
      everyMs: 20,
      run: ({ dueAt, emit }) => [
        emit('OrderPlaced', { total: dueAt.getTime() }),
        emit('OrderPlaced', { total: 2 }, { key: 'second', headers: { by: 'clock' } }),
      ],
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(() => paid.length >= 4)
  const [run] = (await flows.schedules.history('restock')).items.slice(-1)
  await waitUntil(() => paid.filter(id => id === run!.correlationId).length === 2)
  const events = await store.events.read(`workflow-${run!.correlationId}`).toArray()

  expect(new Set(paid).size).toBeGreaterThan(1)
  expect(run).toMatchObject({ schedule: 'restock', outcome: 'completed', isManual: false, error: undefined })
  expect(events.map(event => event.id)).toEqual(run!.eventIds)
  expect(events).toMatchObject([
    { data: { total: run!.dueAt.getTime() }, correlationId: run!.correlationId },
    {
      data: { total: 2 },
      headers: { by: 'clock', workflow: { schedule: 'restock', dueAt: run!.dueAt.toISOString() } },
    },
  ])
})

test('the next due time follows from the last one, however long a run takes', async () => {
  const { store } = await openShop()
  const dues: number[] = []
  store.workflows.register(
    defineSchedule('restock', {
      everyMs: 30,
      missed: 'all',
      run: async ({ dueAt }) => {
        dues.push(dueAt.getTime())
        await new Promise(resolve => setTimeout(resolve, 5))
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(() => dues.length >= 5)

  expect(dues.slice(0, 5)).toEqual([0, 1, 2, 3, 4].map(n => dues[0]! + n * 30))
})

test('the clock of a process decides nothing', async () => {
  const wrong = { ...systemClock, now: () => new Date(Date.now() + 10 * 365 * 86_400_000) }
  const { store, query } = await openShop({ clock: wrong })
  const dues: Date[] = []
  store.workflows.register(defineSchedule('restock', { everyMs: 20, run: ({ dueAt }) => void dues.push(dueAt) }))
  store.workflows.register(defineSchedule('nightly', { cron: '0 3 * * *', run: () => void dues.push(wrong.now()) }))
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(() => dues.length >= 3)
  const [late] = await query(`select bool_or(due_at > started_at) as early, bool_or(started_at > now()) as wrong
    from ~workflow_schedule_runs`)
  const [nightly] = (await store.workflows.schedules.list()).items

  expect(late).toEqual({ early: false, wrong: false })
  expect(nightly!.nextAt!.getTime() - Date.now()).toBeLessThanOrEqual(86_400_000)
})

test('AB-18: a long run is not started again meanwhile', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const begun: string[] = []
  let end = (): void => {}
  for (const each of [store, other])
    each.workflows.register(
      defineSchedule('stocktaking', {
        everyMs: 20,
        run: async ({ dueAt }) => {
          begun.push(dueAt.toISOString())
          if (begun.length === 1) await new Promise<void>(resolve => (end = resolve))
        },
      }),
    )
  let ticks = 0
  for (const each of [store, other])
    each.workflows.register(defineSchedule('tick', { everyMs: 20, run: () => void ticks++ }))
  await using one = workerOf(store, soon)
  await using two = workerOf(other, soon)
  await Promise.all([one.start(), two.start()])

  await waitUntil(() => begun.length > 0)
  await waitUntil(() => ticks > 10)
  const meanwhile = [...begun]
  const [running] = (await store.workflows.schedules.list()).items
  end()
  await waitUntil(() => begun.length > 1)

  expect(meanwhile).toHaveLength(1)
  expect(running).toMatchObject({ name: 'stocktaking', isRunning: true, lastAt: undefined })
  expect(new Set(begun).size).toBe(begun.length)
})

test('AB-18: two processes run each due time of a schedule exactly once', async () => {
  const shop = await openShop()
  const stores = [shop.store, await shop.sibling()]
  const dues: number[] = []
  for (const store of stores)
    store.workflows.register(
      defineSchedule('restock', {
        everyMs: 20,
        missed: 'all',
        run: ({ dueAt }) => {
          dues.push(dueAt.getTime())
          return placed()
        },
      }),
    )
  const workers = stores.map(store => workerOf(store, soon))
  await Promise.all(workers.map(worker => worker.start()))

  await waitUntil(() => dues.length >= 25)
  await Promise.all(workers.map(worker => worker.stop()))

  const [first] = dues
  const events = await shop.query(`select headers->'workflow'->>'dueAt' as due from ~events order by position`)
  expect(dues).toEqual(dues.map((_, n) => first! + n * 20))
  expect(events).toEqual(dues.map(due => ({ due: new Date(due).toISOString() })))
})

test('AB-19: a one-time schedule runs once, and stays listed as done', async () => {
  const { store } = await openShop()
  const at = new Date(Date.now() + 50)
  let runs = 0
  store.workflows.register(
    defineSchedule('opening', {
      at,
      run: () => {
        runs++
        return placed()
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(async () => (await store.workflows.schedules.list()).items[0]!.state === 'done')
  const [status] = (await store.workflows.schedules.list()).items

  expect(status).toMatchObject({ name: 'opening', nextAt: undefined, lastAt: at, lastOutcome: 'completed' })
  expect(status!.definition).toMatchObject({ at: at.toISOString(), missed: 'once', timeoutMs: 30_000 })
  expect(await historyOf(store, 'opening')).toEqual([[at.toISOString(), 'completed']])
  expect(runs).toBe(1)
})

test('AB-20: after a restart nothing is run again, and everything continues', async () => {
  const shop = await openShop()
  const { query, sibling } = shop
  const at = new Date(Date.now() - 1000)
  const runs: string[] = []
  const open = async (start = at): Promise<Store<ShopMap>> => {
    const store = await sibling()
    store.workflows.register(
      defineSchedule('opening', {
        at: start,
        run: ({ dueAt }) => void runs.push(`opening ${dueAt.getTime() - at.getTime()}`),
      }),
    )
    store.workflows.register(
      defineSchedule('nightly', { cron: '0 3 * * *', timeZone: 'Europe/Berlin', run: () => void runs.push('nightly') }),
    )
    await workerOf(store, soon).start()
    return store
  }
  const state = () => query('select name, next_at, fence from ~workflow_schedules order by name')
  const first = await open()
  await waitUntil(async () => (await historyOf(first, 'opening')).length === 1)
  await first.close()
  const before = await state()

  const second = await open()
  await second.workflows.schedules.trigger('nightly')
  await waitUntil(() => runs.length === 2)
  await second.close()
  const after = await state()
  const third = await open(new Date(at.getTime() + 1))
  await waitUntil(() => runs.length === 3)
  await third.close()
  const fourth = await open()
  await waitUntil(async () => (await fourth.workflows.schedules.list()).items[1]!.state === 'done')

  expect(after).toMatchObject(before.map(({ name, next_at }) => ({ name, next_at })))
  expect(after[1]).toEqual(before[1])
  expect(runs).toEqual(['opening 0', 'nightly', 'opening 1'])
})

test('AB-21: a run that fails is recorded, and the next one comes when it is due', async () => {
  const { store } = await openShop()
  let runs = 0
  store.workflows.register(
    defineSchedule('restock', {
      events: shopEvents,
      everyMs: 20,
      timeoutMs: 20,
      run: async ({ emit }) => {
        runs++
        if (runs === 1) throw new Error('the supplier is closed', { cause: new Error('holiday') })
        if (runs === 2) await new Promise(() => {})
        if (runs === 3) return batch([placed()]) as never
        if (runs === 4) return emit('OrderPlaced', { total: 1n as never })
        if (runs === 5) return emit('OrderPlaced', { total: 5 }, { stream: 'order-5', expected: 7 })
        return placed()
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(() => runs >= 7)
  const history = (await store.workflows.schedules.history('restock', { limit: 1_000 })).items.toReversed().slice(0, 6)

  expect(history.map(({ outcome, error }) => [outcome, error?.code ?? error?.message])).toEqual([
    ['failed', 'the supplier is closed'],
    ['failed', 'schedule_timeout'],
    ['failed', 'invalid_schedule_result'],
    ['failed', 'invalid_event'],
    ['failed', 'version_conflict'],
    ['completed', undefined],
  ])
  expect(history[0]!.error!.causes).toEqual(['Error: holiday'])
  expect(history[5]!.eventIds).toHaveLength(1)
})

test.each([
  ['once', [['completed', 5]]],
  ['all', [5, 65, 125, 185].map(minutes => ['completed', minutes])],
  ['skip', [['skipped', 5]]],
] as const)('AB-21: due times missed while no worker ran are made up for: %s', async (missed, expected) => {
  const shop = await openShop()
  const { store } = shop
  store.workflows.register(defineSchedule('stocktaking', { everyMs: 3_600_000, missed, run: placed }))
  await store.workflows.sync()
  await overdue(shop, 'stocktaking', '185 minutes')
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(async () => (await historyOf(store, 'stocktaking')).length >= expected.length)
  const now = Date.now()
  const [status] = (await store.workflows.schedules.list()).items
  const runs = (await store.workflows.schedules.history('stocktaking')).items

  const minutesSince = ({ dueAt }: { dueAt: Date }): number => Math.round((now - dueAt.getTime()) / 60_000)
  expect(runs.map(run => [run.outcome, minutesSince(run)])).toEqual(expected)
  expect(minutesSince({ dueAt: status!.nextAt! })).toBe(-55)
})

test('a one-time schedule whose time has passed is run late, unless it is configured to skip', async () => {
  const { store } = await openShop()
  const at = new Date('2026-01-01T03:00:00Z')
  const ran: string[] = []
  store.workflows.register(defineSchedule('late', { at, run: ({ name }) => void ran.push(name) }))
  store.workflows.register(defineSchedule('never', { at, missed: 'skip', run: ({ name }) => void ran.push(name) }))
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(async () => (await store.workflows.schedules.list()).items.every(({ state }) => state === 'done'))

  expect(ran).toEqual(['late'])
  expect(await historyOf(store, 'never')).toEqual([[at.toISOString(), 'skipped']])
})

test('changed times begin anew; any other change does not affect them', async () => {
  const { store, sibling } = await openShop()
  const register = async (of: Store<ShopMap>, cron: string, timeoutMs: number) => {
    of.workflows.register(defineSchedule('nightly', { cron, timeoutMs, run: placed }))
    return (await of.workflows.schedules.list()).items[0]!
  }
  store.workflows.register(defineSchedule('restock', { everyMs: 3_600_000, run: placed }))
  const first = await register(store, '0 3 * * *', 1000)
  const interval = (await store.workflows.schedules.list()).items[1]!.nextAt

  const second = await register(await sibling(), '0 3 * * *', 2000)
  const third = await register(await sibling(), '30 4 * * *', 2000)

  expect(first.nextAt!.toISOString()).toMatch(/T03:00:00.000Z$/)
  expect(second.nextAt).toEqual(first.nextAt)
  expect(second.definition.timeoutMs).toBe(2000)
  expect(third.nextAt!.toISOString()).toMatch(/T04:30:00.000Z$/)
  expect((await store.workflows.schedules.list()).items[1]!.nextAt).toEqual(interval)
})

test('a paused schedule does not run, and continues with its next due time', async () => {
  const shop = await openShop()
  const { store } = shop
  const dues: number[] = []
  let ticks = 0
  store.workflows.register(
    defineSchedule('restock', { everyMs: 3_600_000, run: ({ dueAt }) => void dues.push(dueAt.getTime()) }),
  )
  store.workflows.register(defineSchedule('tick', { everyMs: 10, run: () => void ticks++ }))
  await store.workflows.schedules.pause('restock')
  await overdue(shop, 'restock', '90 minutes')
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(() => ticks > 3)
  const [paused] = (await store.workflows.schedules.list()).items
  await store.workflows.schedules.resume('restock')
  await store.workflows.schedules.resume('restock')
  const [resumed] = (await store.workflows.schedules.list()).items

  expect(dues).toEqual([])
  expect(paused).toMatchObject({ state: 'paused', pausedAt: expect.any(Date) })
  expect(resumed!.state).toBe('active')
  expect(resumed!.nextAt!.getTime()).toBe(paused!.nextAt!.getTime() + 2 * 3_600_000)
})

test('a run can be requested by hand, also while the schedule is paused and by a process without its code', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const asked: boolean[] = []
  store.workflows.register(
    defineSchedule('nightly', {
      cron: '0 3 * * *',
      run: ({ isManual }) => {
        asked.push(isManual)
        return placed()
      },
    }),
  )
  await store.workflows.schedules.pause('nightly')
  await using worker = workerOf(store)
  await worker.start()

  const runs = [
    await other.workflows.schedules.trigger('nightly'),
    ...(await Promise.all([1, 2].map(() => store.workflows.schedules.trigger('nightly')))),
  ]
  await waitUntil(async () => (await historyOf(store, 'nightly')).length === 3)
  const history = (await store.workflows.schedules.history('nightly')).items.toReversed()
  const [status] = (await other.workflows.schedules.list()).items

  const byTime = runs.sort((a, b) => a.dueAt.getTime() - b.dueAt.getTime())
  expect(history).toMatchObject(byTime.map(run => ({ ...run, isManual: true, outcome: 'completed' })))
  expect(asked).toEqual([true, true, true])
  expect(status).toMatchObject({ state: 'paused', lastAt: byTime[2]!.dueAt, triggered: 0, isHere: false })
  expect(await store.workflows.get(runs[0]!.correlationId).waitForEvent('OrderPlaced')).toMatchObject({
    data: { total: 1 },
  })
})

test('a schedule without code stays listed, and runs when a worker has the code', async () => {
  const shop = await openShop()
  const { store, sibling } = shop
  let ticks = 0
  store.workflows.register(defineSchedule('restock', { everyMs: 3_600_000, run: placed }))
  await store.workflows.sync()
  await overdue(shop, 'restock', '1 second')
  const other = await sibling()
  other.workflows.register(defineSchedule('tick', { everyMs: 10, run: () => void ticks++ }))
  await using stranger = workerOf(other)
  await stranger.start()
  await waitUntil(() => ticks > 3)
  const [waiting] = (await other.workflows.schedules.list()).items

  await using worker = workerOf(store)
  await worker.start()
  await waitUntil(async () => (await historyOf(store, 'restock')).length === 1)

  expect(waiting).toMatchObject({ name: 'restock', isHere: false, state: 'active', lastAt: undefined })
})

test('all runs of a schedule can be part of one workflow', async () => {
  const { store } = await openShop()
  store.workflows.register(defineSchedule('restock', { everyMs: 10, correlationId: 'stock', run: placed }))
  await using worker = workerOf(store)
  await worker.start()

  await waitUntil(async () => (await store.events.read('workflow-stock').toArray()).length >= 2)
  const events = await store.events.read('workflow-stock').toArray()

  expect(new Set(events.map(({ correlationId }) => correlationId))).toEqual(new Set(['stock']))
})

test('the history is read in pages, latest first, and is deleted with the schedule', async () => {
  const { store, query } = await openShop()
  const { schedules } = store.workflows
  store.workflows.register(defineSchedule('nightly', { cron: '0 3 * * *', run: placed }))
  await store.workflows.sync()
  await query(`insert into ~workflow_schedule_runs (schedule, due_at, is_manual, started_at, outcome, correlation_id)
    select 'nightly', '2026-01-01Z'::timestamptz + n * interval '1 day', m, now(), 'completed', 'c'
    from generate_series(1, 3) as n, unnest(array[true, false]) as m`)

  const first = await schedules.history('nightly', { limit: 3 })
  const second = await schedules.history('nightly', { limit: 3, after: first.next })
  const old = (await schedules.history('nightly', { dueBefore: new Date('2026-01-03Z') })).items
  await schedules.delete('nightly')

  expect([...first.items, ...second.items].map(run => [run.dueAt.getUTCDate(), run.isManual])).toEqual(
    [4, 3, 2].flatMap(day => [true, false].map(isManual => [day, isManual])),
  )
  expect(old.map(run => run.dueAt.getUTCDate())).toEqual([2, 2])
  expect((await schedules.list()).items).toEqual([])
  await expect(schedules.history('nightly')).rejects.toThrow(ScheduleNotFound)
  expect(await query('select from ~workflow_schedule_runs')).toEqual([])
})

test('invalid schedules are refused when they are defined', async () => {
  const { store } = await openShop()
  const flows = store.workflows
  flows.register(defineSchedule('nightly', { cron: '0 3 * * *', run: placed }))

  expect(() => flows.register(defineSchedule('nightly', { everyMs: 1000, run: placed }))).toThrow(DuplicateSchedule)
  expect(() => flows.register(defineSchedule('', { everyMs: 1000, run: placed }))).toThrow('is empty')
  expect(() => flows.register(defineSchedule('a', { cron: 'x', run: placed }))).toThrow(
    expect.objectContaining({ option: 'cron' }),
  )
  expect(() => flows.register(defineSchedule('a', { cron: '0 3 * * *', timeZone: 'Nowhere', run: placed }))).toThrow(
    expect.objectContaining({ option: 'timeZone' }),
  )
  expect(() => flows.register(defineSchedule('a', { everyMs: 1, run: placed }))).toThrow(
    expect.objectContaining({ option: 'everyMs' }),
  )
  expect(() => flows.register(defineSchedule('a', { everyMs: 1000, missed: 'twice' as never, run: placed }))).toThrow(
    expect.objectContaining({ option: 'missed' }),
  )
  expect(() => flows.register(defineSchedule('a', { everyMs: 1000, timeoutMs: 0, run: placed }))).toThrow(
    expect.objectContaining({ option: 'timeoutMs' }),
  )
  expect(() => flows.register(defineSchedule('a', { everyMs: 1000, correlationId: '', run: placed }))).toThrow(
    'Correlation id',
  )
  expect(() => flows.register(defineSchedule('a', { everyMs: 1000, run: 7 as never }))).toThrow(
    expect.objectContaining({ option: 'run' }),
  )
})

test('an unknown schedule name is refused with the nearest one', async () => {
  const { store } = await openShop()
  const { schedules } = store.workflows
  store.workflows.register(defineSchedule('nightly', { cron: '0 3 * * *', run: placed }))

  for (const call of ['pause', 'resume', 'trigger', 'history', 'delete'] as const) {
    const failure = await schedules[call]('nightyl').catch((error: unknown) => error)
    expect(failure).toMatchObject({ code: 'schedule_not_found', schedule: 'nightyl', nearest: 'nightly' })
  }
  await expect(schedules.history('nightly', { limit: 0 })).rejects.toThrow(expect.objectContaining({ option: 'limit' }))
  await expect(schedules.history('nightly', { dueBefore: new Date('x') })).rejects.toThrow(
    expect.objectContaining({ option: 'dueBefore' }),
  )
})
