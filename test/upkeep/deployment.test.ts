import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineAggregate } from '../../src/aggregates/aggregate.ts'
import { defineCollection } from '../../src/documents/collection.ts'
import { defineEvents } from '../../src/events/definition.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { Finding } from '../../src/upkeep/doctor/doctor.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import type { HandlerContext } from '../../src/workflows/steps/context.ts'
import { workerOf } from '../support/run-worker.ts'
import { onServer, openShop, placed, type Shop, shopEvents } from '../support/shop.ts'
import { untilSuspended } from '../support/suspended-executions.ts'

type Run = (ctx: HandlerContext) => Promise<void>

const worker = { pollMs: 20 }

function shipping(run: Run, version = 1) {
  return defineHandler('shipping', {
    ...{ events: shopEvents, on: 'OrderPlaced', version },
    run: (_event, ctx) => run(ctx as unknown as HandlerContext),
  })
}

const pickThenPack: Run = async ctx => {
  await ctx.step('pick', () => 'picked')
  await ctx.step('pack', () => 'packed')
  await ctx.waitForEvent('OrderPaid')
}

/** The findings of one check of a program with these definitions, which changes nothing. */
async function found(shop: Shop, check: string, code: object): Promise<Finding[]> {
  const next = await shop.sibling({ ...code, register: false, migrate: 'manual' })
  const { isSafe, findings } = await next.checkDeployment()
  expect(findings.map(finding => finding.check)).toContain(check)
  const troubles = findings.filter(finding => finding.check === check && finding.level !== 'ok')
  if (troubles.some(({ level }) => level === 'error')) expect(isSafe).toBe(false)
  return troubles
}

/** Workflows whose execution waits after these steps. */
async function waiting(shop: Shop, run: Run, count: number): Promise<string[]> {
  shop.store.workflows.register(shipping(run))
  await using running = workerOf(shop.store, worker)
  await running.start()
  for (let number = 0; number < count; number++) await shop.store.workflows.publish('OrderPlaced', { total: number })
  await untilSuspended(shop, count)
  const { items } = await shop.store.workflows.executions.list({ state: 'suspended' })
  return items.map(({ executionId }) => executionId).sort()
}

test('two steps that changed places would park exactly the executions that have recorded them', async () => {
  const shop = await openShop()
  const ids = await waiting(shop, pickThenPack, 3)
  const packThenPick: Run = async ctx => {
    await ctx.step('pack', () => 'packed')
    await ctx.step('pick', () => 'picked')
    await ctx.waitForEvent('OrderPaid')
  }
  // One that has recorded nothing fits any code.
  await shop.store.workflows.publish('OrderPlaced', { total: 9 })

  const [finding, ...others] = await found(shop, 'executions.steps', { handlers: [shipping(packThenPick)] })

  expect(others).toEqual([])
  expect(finding).toMatchObject({
    level: 'error',
    message: expect.stringMatching(/^3 open executions of handler "shipping" version 1 would be parked/),
    fix: expect.stringContaining('version: 2'),
  })
  expect([...finding!.of!].sort()).toEqual(ids)
})

test('the same code, and code that only does more after the recorded steps, fits; and no step of it is run', async () => {
  const shop = await openShop()
  await waiting(shop, pickThenPack, 2)
  const effects: string[] = []
  const longer: Run = async ctx => {
    await ctx.step('pick', () => effects.push('pick'))
    await ctx.step('pack', () => effects.push('pack'))
    await ctx.waitForEvent('OrderPaid')
    await ctx.step('send', () => effects.push('send'))
  }

  expect(await found(shop, 'executions.steps', { handlers: [shipping(pickThenPack)] })).toEqual([])
  expect(await found(shop, 'executions.steps', { handlers: [shipping(longer)] })).toEqual([])
  expect(effects).toEqual([])
  const { items } = await shop.store.workflows.executions.list()
  expect(items.map(({ state }) => state)).toEqual(['suspended', 'suspended'])
})

test('code that throws where its recorded steps are answered is a warning', async () => {
  const shop = await openShop()
  await waiting(shop, pickThenPack, 1)
  const broken: Run = async ctx => {
    await ctx.step('pick', () => 'picked')
    throw new Error('the shelf is not there')
  }

  expect(await found(shop, 'executions.steps', { handlers: [shipping(broken)] })).toMatchObject([
    { level: 'warning', message: expect.stringContaining('the shelf is not there') },
  ])
})

test('a handler, a version and a schedule that no process would run are named', async () => {
  const shop = await openShop()
  await waiting(shop, pickThenPack, 2)
  await shop.store.register(
    defineSchedule('nightly', { cron: '0 3 * * *', run: () => undefined }),
    defineHandler('mailing', { events: shopEvents, on: 'OrderPaid', run() {} }),
  )

  const handlers = await found(shop, 'handlers.code', { handlers: [shipping(pickThenPack, 2)] })
  const schedules = await found(shop, 'schedules.code', {})

  expect(handlers.map(({ level, message }) => [level, message])).toEqual([
    ['error', 'No process would run handler "mailing" version 1. It is given OrderPaid.'],
    ['error', 'No process would run handler "shipping" version 1. It has 2 open executions.'],
  ])
  expect(schedules).toMatchObject([{ level: 'error', message: expect.stringContaining('"nightly"') }])
})

test('a consumer without code is a warning', async () => {
  const shop = await openShop()
  const orders = defineDocumentProjection('orders', { initial: () => ({ count: 0 }), evolve: order => order })
  await shop.store.register(orders)
  await shop.store.consumers.runUntilIdle()

  expect(await found(shop, 'consumers.code', {})).toMatchObject([
    { level: 'warning', message: expect.stringContaining('"orders"') },
  ])
  expect(await found(shop, 'consumers.code', { projections: [orders] })).toEqual([])
})

test('stored events that a new schema or upcaster refuses are found, by type and version', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-1', [placed(), { type: 'OrderPaid', data: { method: 'card' } }])
  const money = z.object({ total: z.number(), currency: z.string() })
  const events = defineEvents({ OrderPlaced: money, OrderPaid: z.object({ method: z.string() }) })
  const addCurrency = defineUpcaster('OrderPlaced', {
    ...{ from: 1, to: 2 },
    run: (data: object) => ({ ...data, currency: 'EUR' }),
  })
  const fails = defineUpcaster('OrderPlaced', {
    ...{ from: 1, to: 2 },
    run() {
      throw new Error('no currency is known')
    },
  })

  expect(await found(shop, 'events.read', { events })).toMatchObject([
    { level: 'error', message: expect.stringMatching(/OrderPlaced version 1 .*data\.currency/) },
  ])
  expect(await found(shop, 'events.read', { events, upcasters: [addCurrency] })).toEqual([])
  expect(await found(shop, 'events.read', { upcasters: [fails] })).toMatchObject([
    { message: expect.stringContaining('OrderPlaced') },
  ])
  expect(await found(shop, 'events.read', { events: defineEvents({ OrderPlaced: z.any() }) })).toMatchObject([
    { message: expect.stringContaining('Type OrderPaid is not among the events that are defined') },
  ])
})

const count = (by: number, version = 1) =>
  defineDocumentProjection('counts', {
    ...{ version, initial: () => ({ events: 0 }) },
    evolve: document => ({ events: document.events + by }),
  })
const order = (by: number, stateVersion = 1) =>
  defineAggregate('order', {
    initial: () => ({ events: 0 }),
    evolve: state => ({ events: state.events + by }),
    snapshots: { every: 2 },
    stateVersion,
  })

test('a projection and an aggregate whose code has changed without a new version are found', async () => {
  const shop = await openShop()
  await shop.store.register(count(1), order(1))
  for (const id of ['order-1', 'order-2']) await shop.store.decide(order(1), id, () => [placed(), placed()])
  await shop.store.consumers.runUntilIdle()

  const same = { projections: [count(1)], aggregates: [order(1)] }
  const changed = { projections: [count(2)], aggregates: [order(2)] }
  const raised = { projections: [count(2, 2)], aggregates: [order(2, 2)] }

  for (const check of ['projections.fold', 'aggregates.fold']) {
    expect(await found(shop, check, same)).toEqual([])
    const [finding, ...others] = await found(shop, check, changed)
    expect(others).toEqual([])
    expect(finding).toMatchObject({ level: 'error', of: ['order-1', 'order-2'] })
    expect(await found(shop, check, raised)).toEqual([])
  }
})

test('the steps of the next sync are listed, with those that make writers wait', async () => {
  const shop = await openShop()
  const counts = count(1)
  const visits = (indexes: 'city'[]) => defineCollection<{ city: string }>('visits', { indexes, gin: false })
  const ofVisits = { collections: [visits(['city'])] }

  expect(await found(shop, 'schema.sync', {})).toEqual([])
  expect(await found(shop, 'schema.sync', { projections: [counts] })).toMatchObject([
    {
      level: 'warning',
      message: expect.stringMatching(/of a sync would run: table counts.* None of them makes writers wait/),
      fix: expect.stringContaining('rillflow schema sync'),
    },
  ])

  // The index of a table that is new, too, or of one without rows is made in a moment.
  const moment = [{ message: expect.stringContaining('None of them makes writers wait') }]
  expect(await found(shop, 'schema.sync', ofVisits)).toMatchObject(moment)
  const stored = shop.store.documents(visits([]))
  await shop.store.schema.sync()
  expect(await found(shop, 'schema.sync', ofVisits)).toMatchObject(moment)
  await stored.put('visit-1', { city: 'Paris' })
  const [filled] = await found(shop, 'schema.sync', ofVisits)
  // On a server it is built while writers write.
  expect(filled!.message).toMatch(
    onServer ? /None of them makes writers wait/ : /Writers wait while index \w+ is made\./,
  )
})
