/**
 * A server that exists but does not answer, like one behind a broken network: callers must not wait forever.
 */
import { expect, test } from 'vitest'
import { openStore } from '../../src/store.ts'
import { judgeAppends, recordAppends } from '../../src/verify/record-appends.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { followLog } from './log-follower.ts'
import { times } from './seeded-random.ts'
import { startProxy } from './tcp-proxy.ts'

const one = { type: 'OrderPlaced', data: { total: 1 } }

test.concurrent('a listener whose connection has fallen silent detects it, and receives notifications again', async () => {
  const schema = freshSchema()
  await using direct = await openStore({ url: postgresUrl(), schema, channel: schema, migrate: true })
  await using proxy = await startProxy(postgresUrl())
  await using store = await openStore({ url: proxy.url, schema, channel: schema, pollMs: 600_000 })
  const tail = followLog(store)
  await waitUntil(() => proxy.links.some(link => link.carried(/listen "/)), { what: 'listening' })
  const first = await direct.events.append('order-1', one)
  await tail.reached(first.position)
  const silent = proxy.links.find(link => link.carried(/listen "/))!
  silent.hold('up')
  silent.hold('down')

  const unheard = await direct.events.append('order-1', one)
  await tail.reached(unheard.position)
  const received = await direct.events.append('order-1', one)
  await tail.reached(received.position)
  await tail.stop()
}, 120_000)

test.concurrent('a listener whose LISTEN is never confirmed tries again', async () => {
  const schema = freshSchema()
  await using direct = await openStore({ url: postgresUrl(), schema, channel: schema, migrate: true })
  await using proxy = await startProxy(postgresUrl())
  proxy.loseAnswerTo(/listen "/)
  await using store = await openStore({ url: proxy.url, schema, channel: schema, pollMs: 600_000 })
  const tail = followLog(store)
  await waitUntil(() => proxy.links.some(link => link.carried(/listen "/)), { what: 'the first attempt' })
  proxy.loseAnswerTo(/never/)
  const first = proxy.links.find(link => link.carried(/listen "/))
  await waitUntil(() => proxy.links.some(link => link !== first && link.carried(/listen "/)), {
    what: 'the second one',
  })

  const received = await direct.events.append('order-1', one)
  await tail.reached(received.position)
  await tail.stop()
}, 120_000)

test('connections that have fallen silent are closed after answerTimeoutMs, and the work continues', async () => {
  await using proxy = await startProxy(postgresUrl())
  const options = { url: proxy.url, schema: freshSchema(), pollMs: 50, answerTimeoutMs: 2_000, listen: false }
  // Directly: a statement that takes longer is not silence.
  await (await openStore({ url: postgresUrl(), schema: options.schema, migrate: true, listen: false })).close()
  await using store = await openStore(options)
  const tail = followLog(store)
  const orders = recordAppends(store, 'shop')
  const first = await orders.append('order-1', one)
  await tail.reached(first.position)
  proxy.hold('up')
  proxy.hold('down')

  const results = await Promise.all(times(20, at => orders.append(`order-${at}`, one)))
  for (const { position } of results) await tail.reached(position)
  await tail.stop()
  const delivery = { name: 'the follower', from: 0, cursor: tail.positions.at(-1)!, positions: tail.positions }
  expect(await judgeAppends(store, [orders], { deliveries: [delivery] })).toEqual([])
  expect(tail.positions.length).toBe(21)
}, 120_000)

test('a store closes within closeMs although the server does not answer', async () => {
  await using proxy = await startProxy(postgresUrl())
  const schema = freshSchema()
  const options = { url: proxy.url, schema, channel: schema, closeMs: 300 }
  await using store = await openStore({ ...options, migrate: true })
  const orders = recordAppends(store, 'shop')
  const tail = followLog(store)
  await tail.reached((await orders.append('order-1', one)).position)
  proxy.hold('up', { newLinks: true })
  proxy.hold('down', { newLinks: true })
  const outcomes = times(5, at => orders.append(`order-${at}`, one).catch(error => error))
  await waitUntil(() => proxy.links.some(link => /events\.append/.test(link.heldUp)), { what: 'appends under way' })
  const transaction = store.transaction(tx => tx.query('select 1')).catch(error => error)
  const reading = store.events
    .readAll()
    .toArray()
    .catch(error => error)

  let isClosed = false
  void store.close().then(() => {
    isClosed = true
  })
  await waitUntil(() => isClosed, { what: 'closing' })
  for (const error of await Promise.all(outcomes)) expect(error.code).toMatch(/outcome_unknown|store_closed/)
  expect((await transaction).code).toMatch(/store_closed|connection_lost/)
  expect((await reading).code).toMatch(/store_closed|connection_lost/)
  await expect(tail.failed).rejects.toMatchObject({ code: 'store_closed' })

  await using direct = await openStore({ url: postgresUrl(), schema, listen: false })
  expect(await judgeAppends(direct, [orders])).toEqual([])
}, 120_000)
