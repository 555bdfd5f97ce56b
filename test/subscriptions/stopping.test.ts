import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import type { Database } from '../../src/database/database.ts'
import { OutcomeUnknown } from '../../src/database/errors.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { openDatabase } from '../support/engines.ts'
import { runSubscription } from '../support/run-subscription.ts'
import { openShop, outcome, paid, placed, shipped, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { groupStatus, several } from './deliveries.ts'

test('RB-77: leaving the loop releases the lease immediately and leaves nothing open', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', [placed(), paid])

  for await (const _ of store.subscribe('mailer')) break

  expect(await query('select owner, lease_until from ~consumers')).toEqual([{ owner: null, lease_until: null }])
  expect(await query('select * from ~runners')).toEqual([])
})

test('a subscription ends quietly with its signal, while it waits and before it begins', async () => {
  const { store, query } = await openShop()
  const abort = new AbortController()
  const waiting = take(store.subscribe('mailer', { signal: abort.signal }), 1)
  await waitUntil(async () => (await query('select 1 from ~consumers where owner is not null')).length === 1)

  abort.abort('closing time')
  const late = await take(store.subscribe('mailer', { signal: abort.signal }), 1)

  expect([await waiting, late]).toEqual([[], []])
  expect(await query('select 1 from ~consumers where owner is not null')).toEqual([])
})

test('a stop ends the iteration, may be repeated, and unacknowledged events go to the next consumer', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  const mailer = store.subscribe('mailer', { ack: 'manual' })
  const deliveries = mailer[Symbol.asyncIterator]()
  const [one, two] = await several(deliveries, 2)
  const waiting = deliveries.next()

  await Promise.all([mailer.stop(), mailer.stop()])
  const late = await outcome(one!.ack())

  expect(await waiting).toEqual({ done: true, value: undefined })
  expect(late.error).toMatchObject({ code: 'lease_lost' })
  expect(two!.signal.aborted).toBe(true)
  expect(await take(store.subscribe('mailer'), 1)).toMatchObject([{ version: 1 }])
})

test('a stop lets a running callback end, and its event is done', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-1', placed())
  let isStarted = false
  let goOn = (): void => {}
  const mailer = runSubscription(store, 'mailer', {
    drainMs: 60_000,
    run: () => {
      isStarted = true
      return new Promise<void>(resolve => {
        goOn = resolve
      })
    },
  })
  await waitUntil(() => isStarted)

  const stopping = mailer.stop()
  goOn()
  await stopping
  await mailer.ended

  expect(await store.consumers.status('mailer')).toMatchObject({ checkpoint: position })
})

test('a callback that never returns does not keep a stop from ending', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())
  let signal: AbortSignal | undefined
  const mailer = defineSubscription('mailer', {
    run: event => {
      signal = event.signal
      return new Promise<void>(() => {})
    },
  })
  await store.register(mailer)
  const runner = await store.start({ only: [mailer] })
  await waitUntil(() => signal !== undefined)

  await runner.stop({ timeoutMs: 10 })

  expect(signal!.aborted).toBe(true)
  expect(await take(store.subscribe('mailer'), 1)).toMatchObject([{ version: 1 }])
})

test('a runner that cannot start, and gives back a partition in the middle of a statement, does not pause its subscription', async () => {
  const database = await openDatabase()
  const answer = deferred<void>()
  let isAsked = false
  const breaking: Database = {
    ...database,
    async run(statement) {
      if (statement.label === 'subscriptions.row') {
        isAsked = true
        await answer.promise
      }
      return database.run(statement)
    },
    transaction: (work, options) =>
      database.transaction(async tx => {
        const run: typeof tx.run = async statement => {
          if (statement.label === 'consumers.take' && statement.values.includes('totals')) {
            await waitUntil(() => isAsked)
            throw new OutcomeUnknown({ eventIds: [], reason: 'The answer was lost.' })
          }
          return tx.run(statement)
        }
        return work({ ...tx, run })
      }, options),
  }
  const { store, query } = await openShop({ database: breaking })
  await store.register(
    defineSubscription('mailer', { run: () => {} }),
    defineProjection('totals', { on: { OrderPlaced: async () => {} } }),
  )

  const { error } = await outcome(store.start({ only: ['subscriptions', 'projections'] }))
  answer.resolve()

  expect(error).toMatchObject({ code: 'outcome_unknown' })
  expect(await query('select paused_at, owner from ~consumers where kind = $1', ['subscription'])).toEqual([
    { paused_at: null, owner: null },
  ])
})

test('closing the store stops its subscriptions', async () => {
  const { store, sibling, query } = await openShop()
  await store.events.append('order-1', placed())
  const closing = await sibling({ closeMs: 30_000 })
  const seen: number[] = []
  const mailer = runSubscription(closing, 'mailer', { run: event => void seen.push(event.version) })
  const waiting = outcome(take(closing.subscribe('other'), 5))
  await waitUntil(
    async () => seen.length === 1 && (await groupStatus(store, 'other')).partitions[0]!.owner !== undefined,
  )

  await closing.close()
  await mailer.ended
  await waiting

  expect(await query('select 1 from ~consumers where owner is not null')).toEqual([])
  expect(await store.consumers.status('mailer')).toMatchObject({ lag: 0 })
})

test('a subscription cannot begin inside an open transaction of the store', async () => {
  const { store } = await openShop()

  const iterating = await outcome(store.transaction(() => take(store.subscribe('mailer'), 1)))
  const calling = await outcome(store.transaction(() => runSubscription(store, 'mailer', { run: () => {} }).ended))

  expect(iterating.error).toMatchObject({ code: 'inside_transaction' })
  expect(calling.error).toMatchObject({ code: 'inside_transaction' })
})

test('an ephemeral subscription stores nothing, begins now, and has nothing to acknowledge', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', placed())
  const before = store.metrics().settles_total
  const live = take(store.subscribe('view', { durable: false, types: ['OrderPaid', 'OrderShipped'] }), 2)
  await waitUntil(() => store.metrics().settles_total >= before + 2)

  await store.events.append('order-1', [paid, placed(), shipped()])
  const seen = await live
  await seen[0]!.ack()
  await seen[1]!.nack()
  const all = await take(store.subscribe('view', { durable: false, from: 'start' }), 1)

  expect(seen.map(event => event.version)).toEqual([2, 4])
  expect(all).toMatchObject([{ version: 1, deliveries: 1 }])
  expect(await query('select * from ~consumers')).toEqual([])
})

test('an ephemeral callback can be stopped, and fails with the error it throws', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  const seen: number[] = []
  const live = { durable: false, from: 'start' } as const

  const view = runSubscription(store, 'view', { ...live, run: event => void seen.push(event.version) })
  await waitUntil(() => seen.length === 2)
  await view.stop()
  const broken = runSubscription(store, 'broken-view', {
    ...live,
    run: () => {
      throw new Error('no screen')
    },
  })

  expect((await outcome(broken.ended)).error).toMatchObject({ message: 'no screen' })
  await store.events.append('order-1', shipped())
  expect(seen).toEqual([1, 2])
})
