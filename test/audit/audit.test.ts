import { hostname, userInfo } from 'node:os'
import { expect, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { Store } from '../../src/store.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { defineSchedule } from '../../src/workflows/schedules/schedule.ts'
import { openShop, placed, type ShopMap, shopEvents } from '../support/shop.ts'

const sales = (name = 'sales') =>
  defineDocumentProjection(name, { events: shopEvents, initial: () => ({}), evolve: { OrderPlaced: order => order } })

async function entries(store: Store<ShopMap>): Promise<[string, string | undefined, object, string][]> {
  const { items } = await store.audit.list()
  return items
    .map(({ action, target, parameters, outcome }) => [action, target, parameters, outcome] as never)
    .reverse() as never
}

test('the actions of operators are recorded with their parameters and their outcome', async () => {
  const { store } = await openShop({ projections: [sales()], actor: 'ada' })
  await store.events.append('order-1', placed())

  await store.consumers.pause('sales')
  await store.consumers.resume(sales())
  await store.consumers.reset('sales', 1)
  await store.projections.rebuild('sales')
  await store.streams.archive('order-1', { reason: 'old' })
  await store.deadLetters.retryAll({ of: { consumer: 'sales' } }, { perSecond: 10 })
  await store.consumers.remove('sales')

  expect(await entries(store)).toEqual([
    ['consumers.pause', 'sales', {}, 'done'],
    ['consumers.resume', 'sales', {}, 'done'],
    ['consumers.reset', 'sales', { position: 1 }, 'done'],
    ['projections.rebuild', 'sales', {}, 'done'],
    ['streams.archive', 'order-1', { reason: 'old' }, 'done'],
    ['deadLetters.retryAll', 'sales', { of: { consumer: 'sales' }, perSecond: 10 }, 'done'],
    ['consumers.remove', 'sales', {}, 'done'],
  ])
  const [newest] = (await store.audit.list({ limit: 1 })).items
  expect(newest).toMatchObject({ actor: 'ada', startedAt: expect.any(Date), endedAt: expect.any(Date) })
})

test('the actions on handlers, schedules and workflows are recorded', async () => {
  const charge = defineHandler('charge', { events: shopEvents, on: 'OrderPlaced', run: () => undefined })
  const nightly = defineSchedule('nightly', { events: shopEvents, cron: '0 3 * * *', run: () => undefined })
  const { store } = await openShop({ handlers: [charge], schedules: [nightly] })
  const workflow = await store.workflows.publish('OrderPlaced', { total: 5 })

  await store.workflows.handlers.pause(charge)
  await store.workflows.schedules.pause('nightly')
  await workflow.cancel({ reason: 'fraud' })
  await store.workflows.lanes.unpark(charge, { key: 'eu' }).catch(() => {})

  expect(await entries(store)).toMatchObject([
    ['handlers.pause', 'charge', {}, 'done'],
    ['schedules.pause', 'nightly', {}, 'done'],
    ['workflows.cancel', workflow.correlationId, { reason: 'fraud' }, 'done'],
    ['lanes.unpark', 'charge', { key: 'eu' }, expect.any(String)],
  ])
})

test('an action that failed is recorded with its error', async () => {
  const { store } = await openShop()

  await expect(store.consumers.pause('sales')).rejects.toMatchObject({ code: 'consumer_not_found' })

  const { items } = await store.audit.list({ outcome: 'failed' })
  expect(items).toMatchObject([
    { action: 'consumers.pause', target: 'sales', error: { code: 'consumer_not_found', message: /sales/ } },
  ])
})

test('an action shows as running until it has ended', async () => {
  const { store } = await openShop()

  const result = await store.audit.record({ action: 'documents.put', target: 'customers/ada' }, async () => {
    const { items } = await store.audit.list()
    expect(items).toMatchObject([{ action: 'documents.put', outcome: 'running', endedAt: undefined }])
    return { version: 2 }
  })

  expect(result).toEqual({ version: 2 })
  expect((await store.audit.list()).items).toMatchObject([{ outcome: 'done', result: { version: 2 } }])
})

test('an action in a transaction is recorded if and only if the transaction commits', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())
  await store.events.append('order-2', placed())

  await store.transaction(tx => store.streams.archive('order-1', { tx }))
  const failing = store.transaction(async tx => {
    await store.streams.archive('order-2', { tx })
    throw new Error('the customer came back')
  })

  await expect(failing).rejects.toThrow('came back')
  expect(await entries(store)).toEqual([['streams.archive', 'order-1', {}, 'done']])
})

test('the actor is the one of the call, of the store, or the user of the system', async () => {
  const { store, sibling } = await openShop({ projections: [sales()] })
  const other = await sibling({ actor: 'night-shift' })

  await store.consumers.pause('sales')
  await other.consumers.resume('sales')
  await other.audit.withActor('grace@shop', () => other.consumers.pause('sales'))

  const actors = (await store.audit.list()).items.map(({ actor }) => actor)
  expect(actors).toEqual(['grace@shop', 'night-shift', `${userInfo().username}@${hostname()}`])
  expect(() => store.audit.withActor('a\0b', () => 1)).toThrow(expect.objectContaining({ code: 'invalid_name' }))
})

test('the list is filtered, and continues where a page ended', async () => {
  const { store } = await openShop({ projections: [sales(), sales('returns')] })
  const began = new Date(Date.now() - 60_000)
  for (const name of ['sales', 'returns', 'sales']) await store.consumers.pause(name)
  await store.streams.archive('order-9').catch(() => {})

  const first = await store.audit.list({ limit: 3, since: began })
  const second = await store.audit.list({ limit: 3, after: first.next })

  expect([...first.items, ...second.items].map(({ target }) => target)).toEqual([
    'order-9',
    'sales',
    'returns',
    'sales',
  ])
  expect(second.next).toBeUndefined()
  expect((await store.audit.list({ action: 'consumers', target: 'sales' })).items).toHaveLength(2)
  expect((await store.audit.list({ action: 'consumers.pause' })).items).toHaveLength(3)
  expect((await store.audit.list({ actor: 'nobody-else' })).items).toEqual([])
  await expect(store.audit.list({ actr: 'ada' } as never)).rejects.toMatchObject({ code: 'invalid_option' })
})

test('names that cannot be stored, long text and the data of events do not stop the record or get into it', async () => {
  const { store } = await openShop()
  const secret = '4111 1111 1111 1111'

  await expect(store.consumers.pause('a\0b\ud800')).rejects.toThrow()
  await store.deadLetters
    .retry('charge', '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001', { data: { card: secret } })
    .catch(() => {})
  await store.streams.archive('order-1', { reason: 'x'.repeat(100_000) }).catch(() => {})

  const { items } = await store.audit.list()
  expect(items.map(({ target }) => target)).toEqual(['order-1', 'charge', 'a\ufffdb\ufffd'])
  expect(JSON.stringify(items)).not.toContain(secret)
  expect(JSON.stringify(items).length).toBeLessThan(10_000)
})

test('an action that cannot be recorded is refused', async () => {
  const { store, query } = await openShop({ projections: [sales()] })
  await store.consumers.pause('sales')
  await query(`alter table ~audit add constraint refused check (actor <> 'mallory')`)

  await expect(store.audit.withActor('mallory', () => store.consumers.resume('sales'))).rejects.toThrow()

  expect(await store.consumers.status('sales')).toMatchObject({ isPaused: true })
  await query('alter table ~audit drop constraint refused')
})

test('retention deletes old entries of the audit', async () => {
  const { store, query } = await openShop({ projections: [sales()], retention: { auditMs: 60_000 } })
  await store.consumers.pause('sales')
  await query(`update ~audit set started_at = ~later(started_at, -120000)`)
  await store.consumers.resume('sales')

  expect(await store.upkeep({ dryRun: true })).toMatchObject({ audit: 1 })
  expect(await store.upkeep()).toMatchObject({ audit: 1 })

  expect((await entries(store)).map(([action]) => action)).toEqual(['consumers.resume', 'store.upkeep'])
})
