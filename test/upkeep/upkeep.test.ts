import { expect, test } from 'vitest'
import { defineProjection } from '../../src/projections/projection.ts'
import { fakeClock } from '../../src/testing/fakes.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { workerOf } from '../support/run-worker.ts'
import { onServer, openShop, placed, type Shop, shopEvents, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const day = 24 * 60 * 60_000
const nothing = {
  ...{ attempts: 0, idempotencyKeys: 0, deadLetters: 0, history: 0, archivedStreams: 0, archivedEvents: 0 },
}

/** The contents, to be compared with later contents. */
async function rowsOf({ query }: Shop): Promise<unknown> {
  const tables = ['events', 'streams', 'idempotency_keys', 'dead_letters', 'stream_aliases', 'workflow_activity']
  const counts = tables.map(async table => (await query<{ n: number }>(`select count(*) as n from ~${table}`))[0]!.n)
  return Promise.all(counts)
}

async function archived(shop: Shop, stream: string, days: number, events = 2): Promise<void> {
  await shop.store.events.append(
    stream,
    Array.from({ length: events }, () => placed()),
  )
  await shop.store.streams.archive(stream)
  await shop.query(`update ~streams set archived_at = now() - $2::int * interval '1 day' where stream = $1`, [
    stream,
    days,
  ])
}

test('idempotency keys are deleted after their time, and a repeat is a new append then', async () => {
  const { store, query } = await openShop({ retention: { idempotencyKeysMs: day } })
  await store.events.append('order-1', [placed()], { idempotencyKey: 'old' })
  await store.events.append('order-2', [placed()], { idempotencyKey: 'new' })
  await query(`update ~idempotency_keys set created_at = now() - interval '2 days' where key = 'old'`)

  const dry = await store.upkeep({ dryRun: true })
  const report = await store.upkeep()

  expect(dry).toMatchObject({ ...nothing, idempotencyKeys: 1, isDryRun: true })
  expect(report).toMatchObject({ ...nothing, idempotencyKeys: 1, isDryRun: false })
  expect((await store.events.append('order-1', [placed()], { idempotencyKey: 'old' })).repeated).toBe(false)
  expect((await store.events.append('order-2', [placed()], { idempotencyKey: 'new' })).repeated).toBe(true)
})

test('closed dead letters are deleted after some time; open ones stay, however old', async () => {
  const { store, query } = await openShop({ retention: { deadLettersMs: day } })
  const fails = defineProjection('fails', {
    retries: 0,
    onFailure: 'deadLetter',
    on: {
      OrderPlaced: () => {
        throw new Error('no')
      },
    },
  })
  await store.projections.register(fails)
  const first = await store.events.append('order-1', [placed(), placed(), placed()])
  await store.consumers.runUntilIdle()
  await store.deadLetters.resolve('fails', first.eventIds[0]!, { note: 'long ago' })
  await query(`update ~dead_letters set last_failed_at = now() - interval '9 days'`)
  await query(`update ~dead_letters set history = jsonb_set(history, '{-1, at}', '"2001-01-01"') where history <> '[]'`)
  await store.deadLetters.resolve('fails', first.eventIds[1]!, { note: 'just now' })

  const dry = await store.upkeep({ dryRun: true })
  const report = await store.upkeep()

  expect([dry.deadLetters, report.deadLetters]).toEqual([1, 1])
  const left = (await store.deadLetters.list()).items
  expect(left.map(deadLetter => deadLetter.eventId).sort()).toEqual(first.eventIds.slice(1).sort())
})

test('replaced versions of documents are deleted after some time; every moment since then can still be read', async () => {
  const { store, query } = await openShop({ retention: { historyMs: day } })
  const customers = store.documents<{ name: string }>('customers', { history: true })
  for (const name of ['Ann', 'Anna', 'Anne']) await customers.put('c-1', { name })
  await customers.put('c-2', { name: 'Bob' })
  await customers.delete('c-2')
  await query(`update ~customers__history set updated_at = now() - interval '2 days' where version < 3`)
  const dayAgo = new Date(Date.now() - 0.9 * day)

  const dry = await store.upkeep({ dryRun: true })
  const report = await store.upkeep()

  expect([dry.history, report.history]).toEqual([2, 2])
  expect((await customers.history('c-1')).items.map(each => each.version)).toEqual([2, 3])
  expect((await customers.getAt('c-1', { at: dayAgo }))?.data).toEqual({ name: 'Anna' })
  // A deleted version still determines the number of the next document with that id.
  expect(await customers.put('c-2', { name: 'Bobby' })).toBe(3)
})

test('the activity of workflows is deleted after attemptsMs', async () => {
  const { store, query } = await openShop({ retention: { attemptsMs: day } })
  store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
  await using worker = workerOf(store)
  await worker.start()
  await (await store.workflows.publish('OrderPlaced', { total: 1 })).waitUntilSettled({ timeoutMs: 60_000 })
  await query(`update ~workflow_activity set at = now() - interval '2 days'`)
  await query(`update ~workflows set updated_at = now() - interval '2 days'`)

  const dry = await store.upkeep({ dryRun: true })
  const report = await store.upkeep()

  expect(dry.attempts).toBe(report.attempts)
  expect(report.attempts).toBeGreaterThanOrEqual(3)
  expect((await store.upkeep()).attempts).toBe(0)
})

test('events, open dead letters and histories are kept forever by default', async () => {
  const shop = await openShop()
  await archived(shop, 'order-1', 4000)
  const customers = shop.store.documents<{ name: string }>('customers', { history: true })
  await customers.put('c-1', { name: 'Ann' })
  await customers.put('c-1', { name: 'Anna' })
  await shop.query(`update ~customers__history set updated_at = now() - interval '4000 days'`)

  expect(await shop.store.upkeep()).toMatchObject(nothing)
})

test('AB-17: a stream that was archived long ago is deleted with its snapshots and aliases, and its name stays taken', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: day } })
  const { store, query } = shop
  const stream = await store.streams.resolve('ann', { category: 'order' })
  await store.events.append(stream, [placed()], { idempotencyKey: 'first' })
  await archived(shop, stream, 2)
  await archived(shop, 'order-2', 0)
  await store.events.append('order-3', [placed()])
  await query(
    `insert into ~snapshots (stream, version, event_id, state_version, body)
    values ($1, 2, gen_random_uuid(), 1, '{}')`,
    [stream],
  )
  const before = await rowsOf(shop)

  const dry = await store.upkeep({ dryRun: true })

  expect(dry).toMatchObject({ ...nothing, archivedStreams: 1, archivedEvents: 3 })
  expect(await rowsOf(shop)).toEqual(before)

  const report = await store.upkeep()

  expect(report).toMatchObject({ ...nothing, archivedStreams: 1, archivedEvents: 3 })
  const left = await store.events.readAll({ includeArchived: true }).toArray()
  expect(left.map(event => event.stream)).toEqual(['order-2', 'order-2', 'order-3'])
  expect(await query('select * from ~snapshots')).toEqual([])
  expect(await store.streams.describe(stream)).toBeUndefined()
  for (const expected of ['any', 'empty', 3] as const)
    await expect(store.events.append(stream, [placed()], { expected })).rejects.toMatchObject({
      code: 'stream_tombstoned',
    })
  await expect(store.events.append(stream, [placed()], { idempotencyKey: 'first' })).rejects.toMatchObject({
    code: 'stream_tombstoned',
  })
  await store.streams.restore(stream)
  await expect(store.events.append(stream, [placed()])).rejects.toMatchObject({ code: 'stream_tombstoned' })
  expect(await store.streams.resolve('ann', { category: 'order' })).not.toBe(stream)
  expect(await store.upkeep()).toMatchObject(nothing)
})

test('a stream longer than a chunk is deleted in several chunks, and progress is reported', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: day } })
  await archived(shop, 'order-1', 2, 1000)
  await archived(shop, 'order-2', 2, 700)
  const reported: number[] = []

  const report = await shop.store.upkeep({
    onProgress: ({ kind, rows }) => kind === 'archivedEvents' && reported.push(rows),
  })

  expect(report).toMatchObject({ archivedStreams: 2, archivedEvents: 1700 })
  expect(reported).toEqual([1000, 1700])
})

test('AB-17: nothing is deleted past the slowest consumer: not a paused projection, not a group, not a rebuild', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: day } })
  const { store, query } = shop
  await archived(shop, 'order-1', 2)
  await archived(shop, 'order-2', 2)
  await store.projections.register(defineProjection('totals', { on: { OrderPlaced: () => {} } }))
  await store.consumers.runUntilIdle()
  await store.subscriptions.create('mailer', { from: 2, partitions: 2, group: 'eu' })

  const first = await store.upkeep()

  expect(first).toMatchObject({ archivedStreams: 1, archivedEvents: 2, slowest: { name: 'mailer/eu#0', position: 2 } })
  await store.consumers.remove('mailer')
  await query(`update ~consumers set state = 'emptying'`)
  expect(await store.upkeep()).toMatchObject({ archivedStreams: 0, slowest: { name: 'totals', position: 0 } })
  await query(`update ~consumers set definition = '{}', state = 'active', paused_at = now(), checkpoint = 3`)
  expect(await store.upkeep()).toMatchObject({ archivedStreams: 0, slowest: { name: 'totals', position: 3 } })
  await store.consumers.reset('totals', 4)
  expect(await store.upkeep()).toMatchObject({ archivedStreams: 1, archivedEvents: 2 })
})

test('AB-17: a consumer that has read nothing yet counts: everything is kept for it', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: day } })
  const { store } = shop
  await archived(shop, 'order-1', 2)
  await store.subscriptions.create('mailer', { from: 'start' })

  const report = await store.upkeep()

  expect(report).toMatchObject({ ...nothing, slowest: { name: 'mailer/default', position: 0 } })
  expect(await take(store.subscribe('mailer'), 2)).toMatchObject([{ stream: 'order-1' }, { stream: 'order-1' }])
  await store.consumers.remove('mailer')
  expect(await store.upkeep()).toMatchObject({ archivedStreams: 1, archivedEvents: 2 })
})

test('an open dead letter alone keeps its stream, until it is closed', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: day } })
  const { store } = shop
  await store.projections.register(
    defineProjection('fails', {
      events: shopEvents,
      retries: 0,
      onFailure: 'deadLetter',
      on: {
        OrderPlaced: event => {
          if (event.data.total === 13) throw new Error('no')
        },
      },
    }),
  )
  const { eventIds } = await store.events.append('order-1', [placed(13)])
  await archived(shop, 'order-1', 2)
  await archived(shop, 'order-2', 2)
  await store.consumers.runUntilIdle()

  const report = await store.upkeep()

  expect(report).toMatchObject({ archivedStreams: 1, archivedEvents: 2, slowest: { name: 'fails', position: 5 } })
  expect(await store.events.read('order-1', { includeArchived: true }).toArray()).toHaveLength(3)
  await store.deadLetters.resolve('fails', eventIds[0]!, { note: 'paid by hand' })
  expect(await store.upkeep()).toMatchObject({ archivedStreams: 1, archivedEvents: 3 })
})

test('events that a workflow or a handler that catches up still needs are kept', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: day } })
  const { store, query } = shop
  const flows = store.workflows
  flows.register(
    defineHandler('wait', {
      events: shopEvents,
      on: 'OrderPlaced',
      run: async (_event, ctx) => void (await ctx.sleep('long', 60_000)),
    }),
  )
  await using worker = workerOf(store)
  await worker.start()
  await flows.publish('OrderPlaced', { total: 1 }, { correlationId: 'flow-1', stream: 'order-1' })
  await waitUntil(
    async () => (await query(`select * from ~workflow_executions where state = 'suspended'`)).length === 1,
  )
  await store.streams.archive('order-1')
  await query(`update ~streams set archived_at = now() - interval '2 days'`)

  expect((await store.upkeep()).archivedStreams).toBe(0)

  await worker.stop()
  await flows.get('flow-1').cancel()
  await query(`update ~workflow_routes set backfill_position = 0`)
  expect(await store.upkeep()).toMatchObject({ archivedStreams: 0, slowest: { name: 'handler wait', position: 0 } })
  await query(`update ~workflow_routes set backfill_position = null`)
  expect((await store.upkeep()).archivedStreams).toBe(1)
})

test.runIf(onServer)('a stream that is being written is skipped until the next run', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: day } })
  await archived(shop, 'order-1', 2)
  const other = await shop.sibling({ retention: { archivedStreamsMs: day } })

  await shop.store.transaction(async tx => {
    await shop.store.events.append('order-1', [placed()], { tx, allowArchived: true })
    expect((await other.upkeep()).archivedStreams).toBe(0)
  })

  expect(await other.upkeep()).toMatchObject({ archivedStreams: 1, archivedEvents: 3 })
})

test('two concurrent runs share the work: everything is deleted once, and nothing is counted twice', async () => {
  const retention = { archivedStreamsMs: day, idempotencyKeysMs: day }
  const shop = await openShop({ retention })
  const other = await shop.sibling({ retention })
  for (const n of [1, 2, 3, 4, 5]) {
    await archived(shop, `order-${n}`, 2, 300)
    await shop.store.events.append(`basket-${n}`, [placed()], { idempotencyKey: `key-${n}` })
  }
  await shop.query(`update ~idempotency_keys set created_at = now() - interval '2 days'`)

  const reports = await Promise.all([shop.store.upkeep(), other.upkeep(), shop.store.upkeep()])

  const sum = (kind: 'archivedEvents' | 'idempotencyKeys'): number => reports.reduce((all, each) => all + each[kind], 0)
  expect([sum('archivedEvents'), sum('idempotencyKeys')]).toEqual([1500, 5])
  expect(await shop.store.events.readAll({ includeArchived: true }).toArray()).toHaveLength(5)
})

test('a consumer continues after the last event it saw was deleted', async () => {
  const shop = await openShop({ retention: { archivedStreamsMs: 0 } })
  const { store } = shop
  await archived(shop, 'order-1', 2, 1)
  const tail = store.events.tail({ from: 'start' })[Symbol.asyncIterator]()
  expect((await tail.next()).value?.stream).toBe('order-1')
  await store.upkeep()

  await store.events.append('order-2', [placed()])

  expect((await tail.next()).value?.stream).toBe('order-2')
  await tail.return?.()
  expect(await take(store.events.tail({ from: 'start' }), 1)).toMatchObject([{ stream: 'order-2' }])
})

test('misuse is refused: an invalid age, a call inside a transaction, a signal that has aborted', async () => {
  await expect(openShop({ retention: { attemptsMs: -1 } })).rejects.toMatchObject({
    code: 'invalid_option',
    option: 'retention.attemptsMs',
  })
  const { store } = await openShop()

  await expect(store.transaction(() => store.upkeep())).rejects.toMatchObject({ code: 'inside_transaction' })
  await expect(store.upkeep({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'aborted' })
})

test.each(['everything', 'upkeep'] as const)(
  'a runner of %s runs retention by itself, first within an hour, and until it ends',
  async what => {
    const clock = fakeClock()
    const { store, query } = await openShop({ clock, retention: { idempotencyKeysMs: 0 } })
    store.workflows.register(defineHandler('pay', { on: 'OrderPlaced', run: () => {} }))
    const keys = async (): Promise<number> => (await query('select * from ~idempotency_keys')).length
    const runner = await store.start(what === 'upkeep' ? { only: ['upkeep'] } : {})
    await store.events.append('order-1', [placed()], { idempotencyKey: 'one' })
    await query(`update ~idempotency_keys set created_at = ~later(created_at, -1000)`)

    clock.advance(60 * 60_000)

    await waitUntil(async () => (await keys()) === 0)
    await runner.stop()
    await store.events.append('order-1', [placed()], { idempotencyKey: 'two' })
    clock.advance(24 * 60 * 60_000)
    expect(await keys()).toBe(1)
  },
)

test.runIf(onServer)('a store on a server is not backed up, and the error names the alternative', async () => {
  const { store } = await openShop()

  await expect(store.backup({ output: '/nowhere' })).rejects.toMatchObject({
    code: 'backup_unsupported',
    message: expect.stringMatching(/pg_dump.*store\.export\(\)/),
  })
})
