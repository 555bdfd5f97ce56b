import { expect, test } from 'vitest'
import type { RecordedEvent } from '../../../src/events/definition.ts'
import { defineProjection, type Projection, type ProjectionContext } from '../../../src/projections/projection.ts'
import type { Store } from '../../../src/store.ts'
import { cutLog } from '../../../src/transfer/backup/cut-log.ts'
import { defineHandler } from '../../../src/workflows/handler.ts'
import { workerOf } from '../../support/run-worker.ts'
import { openShop, paid, placed, type Shop, type ShopMap, shipped, shopEvents, take } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'

/** Cuts the log while no store uses it, and opens it again. */
async function cutAndReopen(shop: Shop, position: number) {
  await shop.store.close()
  const cut = await cutLog(shop, position)
  return { cut, store: await shop.sibling() }
}

test('streams get the versions of their events, keys and snapshots of removed events are removed, positions continue', async () => {
  const shop = await openShop()
  const { store, query } = shop
  await store.events.append('order-1', [placed(1), placed(2)], { idempotencyKey: 'kept' })
  await store.events.append('order-2', [placed(3)])
  await store.events.append('order-1', [paid], { idempotencyKey: 'cut' })
  await store.streams.tombstone('order-2')
  await store.events.append('order-3', [placed(4)])
  await query(`insert into ~snapshots (stream, version, event_id, state_version, body)
    values ('order-1', 2, gen_random_uuid(), 1, '{}'), ('order-1', 3, gen_random_uuid(), 2, '{}')`)

  const { cut, store: after } = await cutAndReopen(shop, 3)

  expect(cut).toMatchObject({ events: 3, projections: [] })
  expect(await after.streams.describe('order-1')).toMatchObject({ version: 2, lastPosition: 2 })
  expect(await after.streams.describe('order-2')).toMatchObject({ version: 1, state: 'open' })
  expect(await after.streams.describe('order-3')).toBeUndefined()
  expect(await query('select version from ~snapshots')).toEqual([{ version: 2 }])
  expect(await query('select key from ~idempotency_keys')).toEqual([{ key: 'kept' }])
  expect(await after.schema.check()).toMatchObject({ isHealthy: true })
  const again = await after.events.append('order-1', [paid], { idempotencyKey: 'cut', expected: 2 })
  expect(again).toMatchObject({ version: 3, position: 7, repeated: false })
  await after.events.append('order-2', [paid], { expected: 1 })
  await after.events.append('order-3', [placed()], { expected: 'empty' })
})

test('repeating a cut changes nothing, and a cut at the end changes nothing at all', async () => {
  const shop = await openShop()
  await shop.store.events.append('order-1', [placed(), placed()])

  const { cut } = await cutAndReopen(shop, 2)

  expect(cut).toMatchObject({ events: 0, projections: [], removedWorkflows: 0, cancelledWorkflows: 0 })
  expect(await cutLog(shop, 1)).toMatchObject({ events: 1 })
  expect(await cutLog(shop, 1)).toMatchObject({ events: 0 })
})

async function totalOf({ query }: Shop, name: string): Promise<number | undefined> {
  return (await query<{ total: number }>(`select total::bigint as total from ~${name}`))[0]?.total
}

/** The total of all orders, maintained in three ways. */
function register(store: Store<ShopMap>, { named }: Shop): Promise<void>[] {
  const add = (to: string) => (event: RecordedEvent, ctx: ProjectionContext) =>
    ctx.tx.query(
      `insert into ${to === 'by_hand' ? named('~by_hand') : ctx.table(to)} as t (id, total) values (1, $1)
        on conflict (id) do update set total = t.total + excluded.total`,
      [(event.data as { total: number }).total],
    )
  const columns = { id: 'integer', total: 'bigint' } as const
  const owning = (name: string): Projection =>
    defineProjection(name, { tables: { [name]: { columns, primaryKey: ['id'] } }, on: { OrderPlaced: add(name) } })
  const reset = ({ tx }: ProjectionContext) => tx.query(named('delete from ~by_hand'))
  return [
    store.projections.register(owning('beside')),
    store.projections.register(defineProjection('in_place', { reset, on: { OrderPlaced: add('by_hand') } })),
    store.projections.register({ ...owning('inlined'), lifecycle: 'inline' }),
  ]
}

test('projections beyond the position are rebuilt before they continue; other consumers continue from there', async () => {
  const shop = await openShop()
  const { store, query } = shop
  await query('create table ~by_hand (id integer primary key, total bigint)')
  await Promise.all(register(store, shop))
  await store.subscriptions.create('mailer', { from: 'start' })
  await store.events.append('order-1', [placed(1), placed(10), placed(100)])
  await store.consumers.runUntilIdle()
  await take(store.subscribe('mailer'), 3)
  const before = await Promise.all(['beside', 'by_hand', 'inlined'].map(name => totalOf(shop, name)))

  const { cut, store: after } = await cutAndReopen(shop, 2)

  expect(before).toEqual([111, 111, 111])
  expect(cut.projections).toEqual(['beside', 'in_place', 'inlined'])
  const { findings } = await after.doctor()
  expect(findings.filter(({ check, level }) => check === 'consumers.rebuilds' && level === 'warning')).toHaveLength(3)
  await Promise.all(register(after, shop))
  expect(await totalOf(shop, 'inlined')).toBe(11)
  await using _runner = await after.start()
  const { position } = await after.events.append('order-1', [placed(1000)])
  for (const name of ['beside', 'in_place']) await after.consumers.waitFor(name, position)
  for (const name of ['beside', 'by_hand', 'inlined']) expect(await totalOf(shop, name)).toBe(1011)
  expect(await take(after.subscribe('mailer'), 1)).toMatchObject([{ position, data: { total: 1000 } }])
  expect((await after.doctor()).findings.find(({ check }) => check === 'consumers.rebuilds')?.level).toBe('ok')
})

test('workflows begun later are removed, running executions are cancelled, and the rest continues', async () => {
  const shop = await openShop()
  const { query } = shop
  const handle = (store: Store<ShopMap>): string[] => {
    const shippedTo: string[] = []
    store.workflows.register(
      defineHandler('pay', {
        events: shopEvents,
        on: 'OrderPlaced',
        run: async (_event, ctx) => {
          await ctx.waitForEvent('OrderPaid')
          return ctx.emit('OrderShipped', { parcel: ctx.correlationId })
        },
      }),
    )
    store.workflows.register(
      defineHandler('tell', {
        events: shopEvents,
        on: 'OrderShipped',
        run: event => void shippedTo.push(event.data.parcel),
      }),
    )
    return shippedTo
  }
  const { workflows } = shop.store
  handle(shop.store)
  const worker = workerOf(shop.store)
  await worker.start()
  const suspended = async (): Promise<number> =>
    (await query(`select * from ~workflow_executions where state = 'suspended'`)).length
  for (const id of ['settled', 'waits', 'hit'])
    await workflows.publish('OrderPlaced', { total: 1 }, { correlationId: id })
  await waitUntil(async () => (await suspended()) === 3)
  await workflows.get('settled').signal('OrderPaid', { method: 'card' })
  await workflows.get('settled').waitUntilSettled({ timeoutMs: 60_000 })
  const position = (await query<{ p: number }>('select max(position) as p from ~events'))[0]!.p
  await shop.store.events.append('other', [{ ...shipped(), correlationId: 'hit' }])
  await workflows.publish('OrderPlaced', { total: 2 }, { correlationId: 'new' })
  await waitUntil(async () => (await suspended()) === 3)
  await worker.stop()

  const { cut, store: after } = await cutAndReopen(shop, position)

  expect(cut).toMatchObject({ events: 2, removedWorkflows: 1, cancelledWorkflows: 1 })
  const reported = handle(after)
  await using again = workerOf(after)
  await again.start()
  await after.workflows.get('waits').signal('OrderPaid', { method: 'card' })
  await after.workflows.get('waits').waitUntilSettled({ timeoutMs: 60_000 })
  expect(reported).toEqual(['waits'])
  expect(await after.workflows.get('hit').status()).toMatchObject({
    state: 'cancelled',
    reason: `The log was cut at position ${position}.`,
  })
  expect(await query(`select * from ~workflows where correlation_id = 'new'`)).toEqual([])
  expect(await query(`select * from ~workflow_activity where correlation_id = 'new'`)).toEqual([])
  expect((await after.workflows.get('settled').status()).state).toBe('settled')
  const fresh = await after.workflows.publish('OrderPlaced', { total: 2 }, { correlationId: 'new' })
  await fresh.signal('OrderPaid', { method: 'card' })
  await fresh.waitUntilSettled({ timeoutMs: 60_000 })
  expect(reported).toEqual(['waits', 'new'])
})
