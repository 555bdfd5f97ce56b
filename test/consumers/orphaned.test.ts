/** Consumers whose code is gone: a projection that was replaced by its next version, a subscription that no code follows. */
import { expect, test } from 'vitest'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { openShop, outcome, placed, type Shop, shopEvents } from '../support/shop.ts'

const totals = (version: number, lifecycle: 'async' | 'inline' = 'async') =>
  defineTableProjection('totals', {
    ...{ events: shopEvents, version, lifecycle },
    columns: { id: 'text', cents: 'integer' },
    primaryKey: ['id'],
    on: { OrderPlaced: ({ data }, row) => row({ id: 'all' }, { increment: { cents: data.total } }) },
  })

/** Version 1 has run, and only version 2 is deployed since; its code was last seen an hour ago. */
async function deployNextVersion(lifecycle: 'async' | 'inline' = 'async'): Promise<{ shop: Shop; url: string }> {
  const shop = await openShop()
  const before = await shop.sibling({ migrate: true })
  await before.register(totals(1, lifecycle))
  if (lifecycle === 'async') await before.consumers.runUntilIdle()
  await before.close()
  await shop.query(`update ~consumers set seen_at = now() - interval '1 hour'`)
  if (lifecycle === 'async') {
    await shop.store.register(totals(2))
    await shop.store.events.append('order-1', [placed(), placed()])
    await shop.query(`update ~events set created_at = now() - interval '10 minutes'`)
    await shop.store.consumers.runUntilIdle('totals@2')
  }
  const { url } = await shop.store.server({ port: 0, cacheMs: 0 })
  return { shop, url }
}

const tablesOf = async ({ query, schema }: Shop): Promise<string[]> =>
  (
    await query<{ name: string }>(
      `select table_name::text as name from information_schema.tables
        where table_schema = '${schema}' and table_name like '%totals%' order by 1`,
    )
  ).map(row => row.name)

test('a projection that no process has registered for a while is orphaned: shown, and never a reason for 503', async () => {
  const { shop, url } = await deployNextVersion()

  const response = await fetch(`${url}/health/ready`)
  const { items } = await shop.store.consumers.list()
  const { findings } = await shop.store.doctor()

  expect(response.status).toBe(200)
  expect(items.map(({ name, isOrphaned, lag }) => [name, isOrphaned, lag])).toEqual([
    ['totals', true, 2],
    ['totals@2', false, 0],
  ])
  expect(findings.filter(({ check, level }) => check.startsWith('consumers.') && level !== 'ok')).toEqual([
    expect.objectContaining({
      check: 'consumers.orphaned',
      message: expect.stringContaining('consumer "totals"'),
      fix: expect.stringContaining('call store.consumers.remove("totals").'),
    }),
  ])
})

test('an orphaned consumer whose checkpoint is beyond the head does not make the store unready', async () => {
  const { shop, url } = await deployNextVersion()
  await shop.query(`update ~consumers set checkpoint = 1000 where name = 'totals'`)

  expect((await fetch(`${url}/health/ready`)).status).toBe(200)
})

test('a consumer is not orphaned while a process has its code, although no runner runs it', async () => {
  const { shop, url } = await deployNextVersion()
  await shop.store.register(totals(1))

  const response = await fetch(`${url}/health/ready`)

  expect([response.status, await response.json()]).toMatchObject([503, { reasons: ['consumer_lag'] }])
  expect(await shop.store.consumers.status('totals')).toMatchObject({ isOrphaned: false })
})

test('a consumer is not orphaned while a runner of another process has it, also if it is paused', async () => {
  const { shop } = await deployNextVersion()
  const other = await shop.sibling({ migrate: true })
  await other.register(totals(1))
  await other.consumers.pause('totals')
  await other.start()
  await shop.query(`update ~consumers set seen_at = now() - interval '1 hour'`)

  expect(await shop.store.consumers.status('totals')).toMatchObject({ isOrphaned: false, isPaused: true })
})

test('removing an orphaned projection leaves its tables, unless they are to be dropped', async () => {
  const { shop } = await deployNextVersion()
  const all = await tablesOf(shop)
  await shop.store.consumers.remove('totals')
  const left = await tablesOf(shop)
  const other = await deployNextVersion()

  await other.shop.store.consumers.remove('totals', { dropTables: true })

  expect(all).toEqual(['totals', 'totals_v2'])
  expect(left).toEqual(all)
  expect(await tablesOf(other.shop)).toEqual(['totals_v2'])
  expect((await other.shop.store.consumers.list()).items.map(({ name }) => name)).toEqual(['totals@2'])
})

test('an inline projection is not orphaned: the processes that append have its code, and may have no runner', async () => {
  const { shop } = await deployNextVersion('inline')

  const { isOrphaned, state } = await shop.store.consumers.status('totals')
  const { findings } = await shop.store.doctor()

  expect([isOrphaned, state]).toEqual([false, 'inline'])
  expect(findings.find(({ check }) => check === 'consumers.orphaned')).toMatchObject({ level: 'ok' })
})

test('an inline projection that is removed no longer refuses the appends of processes without its code', async () => {
  const { shop } = await deployNextVersion('inline')
  const before = await outcome(shop.store.events.append('order-1', placed()))

  await shop.store.consumers.remove('totals', { dropTables: true })
  await shop.store.events.append('order-1', placed())

  expect(before.error).toMatchObject({ code: 'inline_projection_unknown' })
  expect(await tablesOf(shop)).toEqual([])
})

test('a subscription that is orphaned is removed by its name, and has no tables to drop', async () => {
  const { store, query } = await openShop()
  await store.subscriptions.create('mailer')
  await query(`update ~consumers set seen_at = now() - interval '1 hour'`)

  const { isOrphaned } = await store.consumers.status('mailer')
  const { error } = await outcome(store.consumers.remove('mailer', { dropTables: true }))
  await store.consumers.remove('mailer')

  expect(isOrphaned).toBe(true)
  expect(error).toMatchObject({
    code: 'invalid_option',
    message: expect.stringContaining('only projections have tables'),
  })
  expect((await store.consumers.list()).items).toEqual([])
})
