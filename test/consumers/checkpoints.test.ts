/**
 * A checkpoint stands for events that were applied. A server that took over without the last writes has an earlier one, with
 * the same fence; here the row is set back by hand, together with the effects that would have been lost with it.
 */
import { expect, onTestFinished, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { runUntilIdle } from '../../src/consumers/run/run.ts'
import { readStatus } from '../../src/consumers/status.ts'
import { waitForConsumer } from '../../src/consumers/wait-for.ts'
import type { Database } from '../../src/database/database.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { effectsOf, makeEffects, openConsumerParts, recorder } from '../support/consumer-parts.ts'
import { openDatabase } from '../support/engines.ts'
import { connect, onServer, openShop, outcome, paid, placed, type Shop, shopEvents, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function openWorkshop() {
  const shop = await openShop()
  await makeEffects(shop)
  return { shop, consumers: openConsumerParts(shop) }
}

async function setBack({ query }: Shop, name: string, checkpoint = 0): Promise<void> {
  await query('update ~consumers set checkpoint = $1 where name = $2', [checkpoint, name])
}

const positions = async (shop: Shop): Promise<number[]> =>
  (await effectsOf(shop, 'totals')).map(effect => effect.position)

test('an idle consumer does not save its cursor over a row that is behind: the events between are applied', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals', { types: ['OrderPlaced'] }))
  await consumers.start()
  await shop.store.events.append('order-1', [placed(), placed(), placed()])
  await waitForConsumer(consumers, 'totals', 3)

  await setBack(shop, 'totals')
  await shop.query('delete from ~effects')
  // It does not want this one, so only its cursor moves.
  await shop.store.events.append('order-1', paid)
  await waitForConsumer(consumers, 'totals', 4)

  expect(await positions(shop)).toEqual([1, 2, 3])
})

test('a batch is not applied over a row that is behind: the events between are applied before it', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals'))
  await consumers.start()
  await shop.store.events.append('order-1', [placed(), placed(), placed()])
  await waitForConsumer(consumers, 'totals', 3)

  await setBack(shop, 'totals', 1)
  await shop.query('delete from ~effects where position > 1')
  await shop.store.events.append('order-1', paid)
  await waitForConsumer(consumers, 'totals', 4)

  expect(await positions(shop)).toEqual([1, 2, 3, 4])
})

test('a batch that fails at an event is not saved over a row that is behind', async () => {
  const { shop, consumers } = await openWorkshop()
  let isBroken = true
  const before = (event: { position: number }): void => {
    if (event.position === 4 && isBroken) throw new Error('out of stock')
  }
  consumers.register(recorder(shop, 'totals', { before, retries: 0, onFailure: 'skip' }))
  await consumers.start()
  await shop.store.events.append('order-1', [placed(), placed(), placed()])
  await waitForConsumer(consumers, 'totals', 3)

  await setBack(shop, 'totals', 1)
  await shop.query('delete from ~effects where position > 1')
  await shop.store.events.append('order-1', [paid, paid])
  await waitForConsumer(consumers, 'totals', 5)
  isBroken = false

  expect(await positions(shop)).toEqual([1, 2, 3, 5])
})

test.runIf(onServer)('by hand, too, a consumer whose row is set back meanwhile begins at the row', async () => {
  const { shop, consumers } = await openWorkshop()
  const client = await connect()
  await shop.store.events.append('order-1', [placed(), placed(), placed()])
  let isSetBack = false
  const totals = recorder(shop, 'totals', {
    batchSize: 1,
    async before(event) {
      if (event.position < 3 || isSetBack) return
      isSetBack = true
      await client.query(shop.named('delete from ~effects'))
      await client.query(shop.named('update ~consumers set checkpoint = 0'))
    },
  })

  await runUntilIdle(consumers, [totals])

  expect(await positions(shop)).toEqual([1, 2, 3])
})

test('a subscription does not save its cursor over a row that is behind: the events between are delivered again', async () => {
  const shop = await openShop()
  const delivered: number[] = []
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    types: ['OrderPlaced'],
    run: event => void delivered.push(event.position),
  })
  await shop.store.register(mailer)
  await shop.store.start()
  await shop.store.events.append('order-1', [placed(), placed()])
  await shop.store.consumers.waitFor(mailer, 2)

  await setBack(shop, 'mailer/default')
  await shop.store.events.append('order-1', paid)
  await shop.store.consumers.waitFor(mailer, 3)

  expect(delivered).toEqual([1, 2, 1, 2])
})

test('an acknowledgement is not saved over a row that is behind: the events between are delivered again', async () => {
  const shop = await openShop()
  const delivered: number[] = []
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    run: event => void delivered.push(event.position),
  })
  await shop.store.register(mailer)
  await shop.store.start()
  await shop.store.events.append('order-1', [placed(), placed()])
  await shop.store.consumers.waitFor(mailer, 2)

  await setBack(shop, 'mailer/default')
  await shop.store.events.append('order-1', paid)
  await shop.store.consumers.waitFor(mailer, 3)

  expect(delivered).toEqual([1, 2, 3, 1, 2, 3])
})

/** From now on the schema seems to be on a server that has taken over. */
async function failOver({ query }: Shop): Promise<void> {
  const replace = (text: string) =>
    query(`create or replace function ~timeline(p_column anyelement) returns text
      language plpgsql immutable parallel safe cost 1 as $body$${text}$body$`)
  const [row] = await query<{ body: string }>(
    `select prosrc as body from pg_proc where oid = '~timeline(anyelement)'::regprocedure`,
  )
  onTestFinished(async () => void (await replace(row!.body)))
  await replace(`begin return 'another'; end`)
}

test('an acknowledgement from before a fail-over is not saved: another event may have the position of its own', async () => {
  const shop = await openShop()
  const delivered: number[] = []
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    types: ['OrderPlaced'],
    async run({ data }) {
      delivered.push(data.total)
      if (delivered.length > 1) return
      await failOver(shop)
      await shop.query(`update ~events set event_id = gen_random_uuid(), data = '{"total": 2}' where position = 1`)
    },
  })
  await shop.store.register(mailer)
  await shop.store.start()

  await shop.store.events.append('order-1', placed(1))
  await shop.store.consumers.waitFor(mailer, 1)

  expect(delivered).toEqual([1, 2])
})

test('a batch that was read before a fail-over is not applied after it', async () => {
  const { shop, consumers } = await openWorkshop()
  const seen: number[] = []
  const totals = recorder(shop, 'totals')
  await shop.store.events.append('order-1', [placed(), placed()])
  consumers.register({
    ...totals,
    async handle(events, ctx) {
      seen.push(events.length)
      if (seen.length === 1) await ctx.tx.query(shop.named(`alter function ~timeline(anyelement) rename to before`))
      if (seen.length === 1)
        await ctx.tx.query(
          shop.named(`create function ~timeline(p_column anyelement) returns text
            language plpgsql immutable as $body$begin return 'another'; end$body$`),
        )
      await totals.handle(events, ctx)
    },
  })

  await consumers.start()
  await waitForConsumer(consumers, 'totals', 2)

  expect(seen).toEqual([2, 2])
  expect(await positions(shop)).toEqual([1, 2])
})

test('the dispatcher of workflows does not save its cursor over a row that is behind: no handler misses an event', async () => {
  const shop = await openShop()
  const handled: number[] = []
  const charge = defineHandler('charge', {
    events: shopEvents,
    on: ['OrderPlaced', 'OrderPaid'],
    run: event => void handled.push(event.position),
  })
  await shop.store.register(charge)
  await shop.store.start()
  await shop.store.events.append('order-1', [placed(), placed()])
  await waitUntil(() => handled.length === 2)
  await shop.store.consumers.waitFor('workflows', 2)

  await setBack(shop, 'workflows')
  await shop.query('delete from ~workflow_executions')
  await shop.query('delete from ~workflows')
  await shop.store.events.append('order-2', paid)
  await waitUntil(() => handled.length === 5)

  expect(handled.slice(0, 2)).toEqual([1, 2])
  expect(handled.slice(2).sort()).toEqual([1, 2, 3])
})

test('what was read before a fail-over, and is another event after it, is not dispatched', async () => {
  const database = await openDatabase()
  let isOther = false
  const run: Database['run'] = async statement => {
    if (statement.label === 'workflows.dispatch' && !isOther) {
      isOther = true
      await shop.query(`
        update ~events
        set event_id = gen_random_uuid(), correlation_id = 'another', data = '{"total": 2}'
        where position = (select max(position) from ~events)`)
    }
    return database.run(statement)
  }
  const handled: number[] = []
  const charge = defineHandler('charge', {
    events: shopEvents,
    on: 'OrderPlaced',
    run: ({ data }) => void handled.push(data.total),
  })
  const shop: Shop = await openShop({ database: { ...database, run }, handlers: [charge] })
  await shop.store.start()

  // The first pages of a dispatcher are stored in a transaction.
  while (!isOther) {
    const workflow = await shop.store.workflows.publish('OrderPlaced', { total: 1 })
    await waitUntil(async () => isOther || (await workflow.status()).isSettled)
  }

  await waitUntil(() => handled.includes(2), { what: 'the event that is in the log' })
})

test('a position beyond the head is refused everywhere', async () => {
  const { store, sibling } = await openShop()
  await store.events.append('order-1', placed())
  const beyond = { events: shopEvents, on: { OrderPlaced: async () => {} }, from: 9 }
  const mailer = { events: shopEvents, run: () => {}, from: 9 }
  const totals = (from: number | 'start') =>
    defineProjection('totals', { ...beyond, tables: { totals: { columns: { id: 'text' }, primaryKey: ['id'] } }, from })
  await store.projections.register(totals('start'))
  await store.schema.sync()
  const later = await sibling()
  await later.projections.register(totals(9))

  const refused = await Promise.all([
    outcome(store.consumers.reset('totals', 9)),
    outcome(later.projections.rebuild('totals')),
    outcome(store.register(defineProjection('sales', beyond)).then(() => store.consumers.runOnce('sales'))),
    outcome(store.register(defineProcessor('printer', beyond)).then(() => store.consumers.runOnce('printer'))),
    outcome(store.register(defineSubscription('mailer', mailer)).then(() => store.consumers.runOnce('mailer'))),
    outcome(store.subscriptions.create('letters', { from: 9 })),
  ])

  for (const { error } of refused)
    expect(error).toMatchObject({ code: 'invalid_option', message: expect.stringContaining('the log ends at 1') })
  expect(await store.consumers.status('totals')).toMatchObject({ checkpoint: 0, isBeyondHead: false })
  for (const read of [store.events.readAll({ from: 9 }), store.events.tail({ from: 9 })])
    await expect(take(read, 1)).rejects.toMatchObject({ code: 'log_rewound', cursor: 9, head: 1 })
})

test('a consumer that is registered late, to begin beyond the head, does not stop the others of its runner', async () => {
  const { shop, consumers } = await openWorkshop()
  consumers.register(recorder(shop, 'totals'))
  await consumers.start()

  consumers.register({ ...recorder(shop, 'audit'), from: 9 })
  await shop.store.events.append('order-1', [placed(), paid])
  await waitForConsumer(consumers, 'totals', 2)

  const other = openConsumerParts(shop)
  other.register({ ...recorder(shop, 'audit'), from: 9 })
  expect((await outcome(other.start())).error).toMatchObject({ code: 'invalid_option', option: 'from' })
})

test('in a runner, too, a checkpoint beyond the head does not stop the other consumers', async () => {
  const { shop, consumers } = await openWorkshop()
  for (const name of ['audit', 'totals']) consumers.register(recorder(shop, name))
  await shop.store.events.append('order-1', placed())
  await runUntilIdle(consumers, consumers.list())
  await shop.query("update ~consumers set checkpoint = 1000 where name = 'audit'")

  await consumers.start()
  await shop.store.events.append('order-1', paid)
  await waitForConsumer(consumers, 'totals', 2)

  expect(await positions(shop)).toEqual([1, 2])
  await waitUntil(async () => (await readStatus(consumers.log, { names: ['audit'] }))[0]?.lastError !== undefined)
  expect((await readStatus(consumers.log, { names: ['audit'] }))[0]).toMatchObject({
    ...{ isBeyondHead: true, checkpoint: 1000, lastError: { code: 'checkpoint_beyond_head' } },
  })
})

test('a checkpoint beyond the head does not stop the other consumers', async () => {
  const { shop, consumers } = await openWorkshop()
  const [audit, totals] = [recorder(shop, 'audit'), recorder(shop, 'totals')]
  await shop.store.events.append('order-1', placed())
  await runUntilIdle(consumers, [audit, totals])
  await shop.query("update ~consumers set checkpoint = 1000 where name = 'audit'")
  await shop.store.events.append('order-1', paid)

  const { error } = await outcome(runUntilIdle(consumers, [audit, totals]))

  expect(error).toMatchObject({ code: 'checkpoint_beyond_head', consumer: 'audit', checkpoint: 1000 })
  expect(await positions(shop)).toEqual([1, 2])
})

test('a checkpoint beyond the head is unhealthy, and doctor names it', async () => {
  const { store, query } = await openShop()
  const totals = defineProjection('totals', { events: shopEvents, on: { OrderPlaced: async () => {} } })
  await store.projections.register(totals)
  await store.subscriptions.create('mailer')
  await store.events.append('order-1', placed())
  await store.consumers.runUntilIdle()
  const { url } = await store.server({ port: 0, cacheMs: 0 })
  const before = await fetch(`${url}/health/ready`)

  await query('update ~consumers set checkpoint = 1000')
  const response = await fetch(`${url}/health/ready`)
  const { isHealthy, findings } = await store.doctor()

  expect(before.status).toBe(200)
  expect([response.status, await response.json()]).toMatchObject([503, { reasons: ['checkpoint_beyond_head'] }])
  expect(await store.consumers.status(totals)).toMatchObject({ isBeyondHead: true })
  expect(isHealthy).toBe(false)
  const found = findings.filter(({ check }) => check === 'consumers.checkpoints')
  expect(found.map(({ level, fix }) => [level, fix])).toEqual([
    ['error', expect.stringContaining('store.consumers.reset("mailer", position, { group: "default" })')],
    ['error', expect.stringContaining('store.projections.rebuild("totals")')],
  ])
})
