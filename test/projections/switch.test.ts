import { randomBytes } from 'node:crypto'
import { expect, onTestFinished, test } from 'vitest'
import { consumer } from '../../src/consumers/consumer.ts'
import { type Lease, newOwner, take } from '../../src/consumers/row.ts'
import { applyTail } from '../../src/projections/rebuild/switch.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { connect, onServer, openShop, outcome, placed, waitersFor } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { orders, totalRows, totals } from './read-models.ts'

test('all granted privileges are kept', async () => {
  const shop = await openShop()
  const role = `reader_${randomBytes(6).toString('hex')}`
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', placed(1))
  await shop.store.consumers.runUntilIdle()
  await shop.query(`create role ${role}`)
  onTestFinished(async () => {
    await shop.query(`drop owned by ${role}`)
    await shop.query(`drop role ${role}`)
  })
  await shop.query(`grant select on ~order_totals to ${role}`)
  await shop.query(`grant delete on ~order_totals to ${role} with grant option`)
  await shop.query(`grant update (total) on ~order_totals to ${role}`)
  const privileges = `
    select
      has_table_privilege($1, $2, 'select') as selects,
      has_table_privilege($1, $2, 'delete with grant option') as deletes,
      has_table_privilege($1, $2, 'insert') as inserts,
      has_column_privilege($1, $2, 'total', 'update') as total,
      has_column_privilege($1, $2, 'orders', 'update') as orders`

  await shop.store.projections.rebuild('order-totals')

  expect(await shop.query(privileges, [role, shop.named('~order_totals')])).toEqual([
    { selects: true, deletes: true, inserts: false, total: true, orders: false },
  ])
})

test('a table that a view depends on is not switched, and the view is named', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', placed(1))
  await shop.store.consumers.runUntilIdle()
  await shop.query('create view ~best_orders as select * from ~order_totals where total > 100')

  const rebuilding = shop.store.projections.rebuild('order-totals')

  await expect(rebuilding).rejects.toMatchObject({ code: 'views_depend' })
  await expect(rebuilding).rejects.toThrow(/view .*best_orders/)
  await shop.query('drop view ~best_orders')
  await shop.store.projections.rebuild('order-totals')
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 1, total: '1' }])
})

test('a foreign key or a trigger of the user is named as well', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.consumers.runUntilIdle()
  await shop.query('create table ~notes (stream text references ~order_totals)')

  await expect(shop.store.projections.rebuild('order-totals')).rejects.toThrow(/constraint notes_stream_fkey/)

  await shop.query('drop table ~notes')
  await shop.query(`create trigger remember before update on ~order_totals
    for each row execute function suppress_redundant_updates_trigger()`)
  await expect(shop.store.projections.rebuild('order-totals')).rejects.toThrow(/trigger remember/)
})

test.runIf(onServer)('the switch waits for a reader in short tries, and appends continue', async () => {
  const shop = await openShop()
  await shop.store.projections.register(totals())
  await shop.store.events.append('order-1', placed(1))
  await shop.store.consumers.runUntilIdle()
  const reader = await connect()
  await reader.query('begin')
  await reader.query(shop.named('select * from ~order_totals'))

  const rebuilding = outcome(shop.store.projections.rebuild('order-totals'))

  await waitUntil(async () => (await waitersFor(reader)) > 0, { what: 'the switch waiting for the reader' })
  await waitUntil(async () => (await waitersFor(reader)) === 0, { what: 'the switch standing back' })
  await shop.store.events.append('order-1', placed(2))
  await reader.query('commit')
  expect((await rebuilding).error).toBeUndefined()
  expect(await totalRows(shop)).toEqual([{ stream: 'order-1', orders: 2, total: '3' }])
})

test('rebuilt while others write and a runner follows, each event counts once', async () => {
  const shop = await openShop()
  const writer = await shop.sibling()
  await shop.store.projections.register(totals())
  await shop.store.projections.register(orders)
  await using _runner = await shop.store.start()
  let isWriting = true
  let written = 0
  const writing = (async () => {
    for (; isWriting || written < 50; written++) await writer.events.append(`order-${written % 7}`, placed(1))
  })()

  await shop.store.projections.rebuild('order-totals')
  await shop.store.projections.rebuild('orders')
  isWriting = false
  await writing

  const { position } = await shop.store.events.append('order-0', placed(1))
  await shop.store.consumers.waitFor('order-totals', position)
  await shop.store.consumers.waitFor('orders', position)
  const sums = await shop.query(`
    select
      (select sum(orders)::integer from ~order_totals) as totals,
      (select sum((body ->> 'total')::integer)::integer from ~orders) as documents`)
  expect(sums).toEqual([{ totals: written + 1, documents: written + 1 }])
})

test('the last events of a switch are applied in batches as large as the projection has applied in time before', async () => {
  const { store, query, ...shop } = await openShop()
  const { log } = openConsumerParts({ store, query, ...shop })
  await store.events.append(
    'order-1',
    Array.from({ length: 20 }, () => placed(1)),
  )
  await query(`
    insert into ~consumers (name, kind, checkpoint, batch_limit)
    values ('order-totals', 'projection', 0, 8)`)
  const sizes: number[] = []
  const handle = async (events: readonly unknown[]): Promise<void> => void sizes.push(events.length)
  const shadow = consumer({ name: 'order-totals', kind: 'projection', filter: {}, handle })
  const lease = (await take(log, 'order-totals', newOwner(log), 30_000)) as Lease
  const tail = { log, projection: totals(), shadow, lease, goal: undefined, turnMs: 60_000 }

  const { isWhole, events } = await log.database.transaction(tx => applyTail(tail, tx))

  expect([isWhole, events, sizes]).toEqual([true, 20, [8, 8, 4]])
})
