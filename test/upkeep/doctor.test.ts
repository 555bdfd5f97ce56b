import { expect, test } from 'vitest'
import { defineProjection } from '../../src/projections/projection.ts'
import type { DoctorOptions, Finding } from '../../src/upkeep/doctor/doctor.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { postgresUrl } from '../support/engines.ts'
import { drawTo } from '../support/numbers.ts'
import { workerOf } from '../support/run-worker.ts'
import { connect, onServer, openShop, placed, type Shop } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** The findings of one check. */
async function troubles({ store }: Pick<Shop, 'store'>, check: string, options?: DoctorOptions): Promise<Finding[]> {
  const { findings } = await store.doctor(options)
  expect(findings.map(finding => finding.check)).toContain(check)
  return findings.filter(finding => finding.check === check && finding.level !== 'ok')
}

test('a healthy store is reported as healthy, with the list of checks', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed()])

  const { isHealthy, findings } = await store.doctor()

  // The tests' own servers are fast, and may lose everything.
  expect(isHealthy).toBe(findings.every(({ level }) => level !== 'error'))
  const all = [...new Set(findings.map(finding => finding.check))]
  expect(all).toEqual([
    ...['schema', 'server.version', 'server.durability', 'server.tls', 'server.connections'],
    ...['server.settings', 'server.wake_ups'],
    ...['transactions.old', 'transactions.prepared', 'transactions.unfinished', 'transactions.slots'],
    ...['log.held_back', 'tables.dead_rows'],
    ...['tables.age', 'documents.too_large', 'events.too_large'],
    ...['consumers.stopped', 'consumers.lag', 'consumers.checkpoints', 'consumers.orphaned', 'consumers.leases'],
    ...['consumers.rebuilds', 'dead_letters', 'workflows.without_code', 'workflows.workers', 'workflows.parked'],
    ...['workflows.lanes'],
  ])
  for (const { level, fix, check } of findings)
    if (level === 'ok') expect(fix).toBeUndefined()
    else expect(check).toBe('server.durability')
})

test('it reports which data the embedded database may lose, and a server', async () => {
  const shop = await openShop()
  if (onServer) {
    const settings = await shop.query<{ name: string }>(`select name from pg_settings
      where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off' order by name`)
    const found = await troubles(shop, 'server.durability')
    expect(found.map(({ message }) => /setting (\w+)/.exec(message)?.[1])).toEqual(settings.map(each => each.name))
  } else {
    expect(await troubles(shop, 'server.durability')).toMatchObject([
      { level: 'warning', message: expect.stringContaining('memory'), fix: expect.stringContaining('folder') },
    ])
  }
})

test.runIf(onServer)('a role without synchronous commits is found', async () => {
  const shop = await openShop()
  const url = new URL(postgresUrl())
  url.searchParams.set('options', '-c synchronous_commit=off')
  const other = await shop.sibling({ url: url.href })

  expect(await troubles({ store: other }, 'server.durability')).toContainEqual(
    expect.objectContaining({ message: expect.stringContaining('synchronous_commit'), level: 'warning' }),
  )
})

test('a missing index, an invalid one and a sequence that is behind are errors', async () => {
  const shop = await openShop({ schema: undefined })
  await shop.store.events.append('order-1', [placed(), placed()])
  await shop.query('drop index ~events_correlation')
  await shop.query(`update pg_index set indisvalid = false where indexrelid = '~events_event_id'::regclass`)
  await drawTo(shop.query, 'events_position', 1)

  const found = await troubles(shop, 'schema')

  await drawTo(shop.query, 'events_position', 2)
  await shop.query(`update pg_index set indisvalid = true where indexrelid = '~events_event_id'::regclass`)
  await shop.query('create index events_correlation on ~events (correlation_id, position)')
  expect(found.map(({ level }) => level)).toEqual(['error', 'error', 'error'])
  for (const text of [
    'events_correlation is missing',
    'events_event_id is invalid',
    'sequence events_position is at 1',
  ])
    expect(found.map(({ message }) => message).join()).toContain(text)
  expect(await troubles(shop, 'schema')).toEqual([])
})

test.runIf(onServer)('a transaction that holds back the log is named, with the statement that ends it', async () => {
  const shop = await openShop()
  const client = await connect()
  await client.query('begin')
  await client.query(shop.named('select ~announce()'))
  const pid = (await client.query('select pg_backend_pid() as pid')).rows[0].pid
  await waitUntil(async () => (await troubles(shop, 'log.held_back')).length === 1)

  const [found] = await troubles(shop, 'log.held_back')

  await client.query('rollback')
  expect(found).toMatchObject({ level: 'warning', fix: `Run: select pg_terminate_backend(${pid}).` })
  expect(await troubles(shop, 'log.held_back')).toEqual([])
})

test.runIf(onServer)('old transactions that hold back vacuum are named, also prepared ones', async () => {
  const shop = await openShop()
  const client = await connect()
  await client.query(`set application_name = 'report'`)
  await client.query('begin isolation level repeatable read')
  const pid = (await client.query('select pg_backend_pid() as pid')).rows[0].pid
  const gid = `doctor ${shop.schema}`
  const other = await connect()
  await other.query('begin')
  await other.query(shop.named(`insert into ~stream_aliases (alias, stream) values ('a', 's')`))
  await other.query(`prepare transaction '${gid}'`)

  const old = await troubles(shop, 'transactions.old', { oldTransactionMs: 0 })
  const prepared = await troubles(shop, 'transactions.prepared', { oldTransactionMs: 0 })
  const later = await troubles(shop, 'transactions.old')

  await client.query('rollback')
  await other.query(`rollback prepared '${gid}'`)
  expect(old).toContainEqual(
    expect.objectContaining({
      message: expect.stringContaining(`process ${pid} (report)`),
      fix: expect.stringContaining(`pg_terminate_backend(${pid})`),
    }),
  )
  expect(prepared).toContainEqual(
    expect.objectContaining({ fix: `Run: commit prepared '${gid}', or rollback prepared '${gid}'.` }),
  )
  expect(later).toEqual([])
})

test('consumers that stopped, lag, or were abandoned are found, with the fix', async () => {
  const shop = await openShop()
  const { store, query } = shop
  const fail = () => {
    throw new Error('out of paper')
  }
  await store.projections.register(
    defineProjection('stopped', { retries: 0, onFailure: 'stop', on: { OrderPlaced: fail } }),
  )
  await store.projections.register(defineProjection('paused', { on: { OrderPlaced: () => {} } }))
  await store.subscriptions.create('mailer', { from: 'start' })
  await store.events.append('order-1', [placed()])
  await store.consumers.runUntilIdle()
  await store.consumers.pause('paused')
  await query(`update ~events set created_at = now() - interval '10 minutes'`)
  await query(
    `update ~consumers set owner = 'somebody', lease_until = now() - interval '1 minute' where name = 'paused'`,
  )

  const stopped = await troubles(shop, 'consumers.stopped')
  const lag = await troubles(shop, 'consumers.lag')
  const leases = await troubles(shop, 'consumers.leases')

  expect(stopped).toMatchObject([
    {
      level: 'warning',
      message: expect.stringContaining('"paused" is paused'),
      fix: 'Call store.consumers.resume("paused").',
    },
    { level: 'error', message: expect.stringContaining('out of paper'), fix: expect.stringContaining('"stopped"') },
  ])
  expect(lag).toMatchObject([
    {
      message: expect.stringMatching(/"mailer\/default" is 1 position and 6\d\d s behind, and no runner runs it/),
      fix: expect.stringContaining('store.consumers.remove("mailer", { group: "default" })'),
    },
    {
      message: expect.stringContaining('"stopped" is 1 position'),
      fix: expect.stringContaining('store.consumers.remove("stopped")'),
    },
  ])
  expect(leases).toMatchObject([{ message: expect.stringContaining('"paused" was abandoned by somebody') }])
  expect((await store.doctor()).isHealthy).toBe(false)
  await store.consumers.remove('mailer', { group: 'default' })
  await query(`delete from ~consumers where name = 'stopped'`)
  expect(await troubles(shop, 'consumers.lag')).toEqual([])
})

test('open dead letters, executions without code and dead runners are found', async () => {
  const shop = await openShop()
  const { store, query } = shop
  store.workflows.register(
    defineHandler('pay', {
      on: 'OrderPlaced',
      retries: 0,
      run: () => {
        throw new Error('no money')
      },
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  await (await store.workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled({ timeoutMs: 60_000 })
  await worker.stop()
  await query(`insert into ~workflow_executions (id, position, rank, route, state, correlation_id, worker)
    select gen_random_uuid(), 1, 1, id, 'running', 'flow-1', 'gone' from ~workflow_routes`)

  expect(await troubles(shop, 'dead_letters')).toMatchObject([
    {
      level: 'warning',
      message: 'Handler "pay" has 1 open dead letter.',
      fix: expect.stringContaining('rillflow dead-letters retry pay --all.'),
    },
  ])
  expect(await troubles(shop, 'workflows.without_code')).toMatchObject([
    { message: expect.stringContaining('1 execution waits for version 1 of handler "pay"') },
  ])
  expect(await troubles(shop, 'workflows.workers')).toMatchObject([{ message: expect.stringContaining('Runner gone') }])
})

test('a table that vacuum does not keep up with is found', async () => {
  const shop = await openShop()
  await shop.query('alter table ~stream_aliases set (autovacuum_enabled = false)')
  await shop.query(
    `insert into ~stream_aliases (alias, stream) select n::text, 's' from generate_series(1, 20000) as n`,
  )
  await shop.query('delete from ~stream_aliases')

  // A server reports its statistics ten seconds later, if it is idle meanwhile.
  await waitUntil(async () => (await troubles(shop, 'tables.dead_rows')).length > 0, { deadlineMs: 60_000 })

  const [found] = await troubles(shop, 'tables.dead_rows')
  await shop.query('alter table ~stream_aliases reset (autovacuum_enabled)')
  expect(found).toMatchObject({
    level: 'warning',
    fix: expect.stringContaining(shop.named('vacuum (analyze) ~stream_aliases')),
  })
})

test('a check that fails is a warning, and the other checks are made', async () => {
  const shop = await openShop()
  await shop.query('alter table ~workflow_lanes rename to hidden')

  const { findings } = await shop.store.doctor()

  await shop.query('alter table ~hidden rename to workflow_lanes')
  expect(findings.find(({ check }) => check === 'workflows.lanes')).toMatchObject({
    level: 'warning',
    message: expect.stringContaining('This check could not be made'),
  })
  expect(findings.find(({ check }) => check === 'workflows.workers')).toMatchObject({ level: 'ok' })
})
