import { expect, onTestFinished, test } from 'vitest'
import { replayRequested } from '../../src/consumers/dead-letters/replay.ts'
import { take as takeLease } from '../../src/consumers/row.ts'
import { deferred } from '../../src/core/abort.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { defineUpcaster } from '../../src/events/read/upcast.ts'
import { openConsumerParts } from '../support/consumer-parts.ts'
import { postgresUrl } from '../support/engines.ts'
import { connect, onServer, outcome, paid, placed, shipped } from '../support/shop.ts'
import { type FailedEvents, mailer, openFailedEvents } from './failed-events.ts'

/** A mailer that writes one row for each event it applies. */
async function withMails(shop: FailedEvents) {
  await shop.query('create table ~mails (event_id uuid, attempt integer, is_replay boolean)')
  return mailer(async ([event], { tx, attempt, isReplay }) => {
    await tx.query(shop.named('insert into ~mails values ($1, $2, $3)'), [event!.id, attempt, isReplay])
  })
}

const mailed = async (shop: FailedEvents) =>
  (await shop.query<{ event_id: string }>('select event_id from ~mails')).map(row => row.event_id)

const checkpointOf = async (shop: FailedEvents) =>
  (await shop.query<{ checkpoint: number }>('select checkpoint from ~consumers'))[0]!.checkpoint

test('RB-14: a retry applies that event only, and does not move the checkpoint', async () => {
  const shop = await openFailedEvents()
  const consumer = await withMails(shop)
  const event = await shop.fail('order-1', placed())
  await shop.store.events.append('order-1', [paid, shipped()])
  const hold = await shop.hold()
  await shop.query('update ~consumers set checkpoint = 3')
  await shop.deadLetters.retry('mailer', event.id)

  const result = await replayRequested(shop, consumer, hold)

  expect(result).toMatchObject({ replayed: 1, failed: 0 })
  expect(await shop.query('select * from ~mails')).toEqual([{ event_id: event.id, attempt: 2, is_replay: true }])
  expect(await checkpointOf(shop)).toBe(3)
  const deadLetter = await shop.deadLetters.show('mailer', event.id)
  expect(deadLetter).toMatchObject({ state: 'replayed', attempts: 2, retryAt: undefined })
  expect(deadLetter.history).toMatchObject([{ from: 'retrying', to: 'replayed' }])
})

test('a replayed dead letter is opened again when its event fails once more', async () => {
  const shop = await openFailedEvents()
  const consumer = await withMails(shop)
  const event = await shop.fail('order-1', placed())
  await shop.deadLetters.retry('mailer', event.id)
  await replayRequested(shop, consumer, await shop.hold())

  await shop.failAgain(event)

  const deadLetter = await shop.deadLetters.show('mailer', event.id)
  expect(deadLetter).toMatchObject({ state: 'open', attempts: 3 })
  expect(deadLetter.history.map(change => change.to)).toEqual(['replayed', 'open'])
})

test('AB-10: the lowest position comes first, and only requested dead letters that are due', async () => {
  const shop = await openFailedEvents()
  const consumer = await withMails(shop)
  const events = []
  for (let n = 0; n < 5; n++) events.push(await shop.fail(`order-${n}`, placed(n)))
  const [first, second, , fourth, later] = events
  await shop.deadLetters.retryAll({ of: 'mailer', stream: 'order-4' })
  await shop.query(`update ~dead_letters set retry_at = now() + interval '1 hour' where event_id = $1`, [later!.id])
  for (const event of [fourth, first, second]) await shop.deadLetters.retry('mailer', event!.id)

  const result = await replayRequested(shop, consumer, await shop.hold())

  expect(result).toMatchObject({ replayed: 3, failed: 0 })
  expect(result.nextInMs).toBeGreaterThan(3_000_000)
  expect(await mailed(shop)).toEqual([first!.id, second!.id, fourth!.id])
  expect((await shop.deadLetters.stats()).items).toMatchObject([{ open: 2, replayed: 3 }])
})

test('a dead letter that fails again is open, with the error, one more attempt and no request', async () => {
  const shop = await openFailedEvents()
  await withMails(shop)
  const event = await shop.fail('order-1', placed())
  const hold = await shop.hold()
  await shop.deadLetters.retry('mailer', event.id)
  const failing = mailer(async ([given], { tx }) => {
    await tx.query(shop.named('insert into ~mails values ($1)'), [given!.id])
    throw new Error('still declined')
  })

  const first = await replayRequested(shop, failing, hold)
  const second = await replayRequested(shop, failing, hold)

  expect([first, second]).toEqual([
    { replayed: 0, failed: 1, nextInMs: undefined },
    { replayed: 0, failed: 0, nextInMs: undefined },
  ])
  expect(await mailed(shop)).toEqual([])
  const deadLetter = await shop.deadLetters.show('mailer', event.id)
  expect(deadLetter).toMatchObject({ state: 'open', attempts: 2, retryAt: undefined })
  expect(deadLetter.errors.map(error => error.message)).toEqual(['declined', 'still declined'])
})

test('a dead letter that fails does not prevent the replay of the next one', async () => {
  const shop = await openFailedEvents()
  const working = await withMails(shop)
  const bad = await shop.fail('order-1', placed(1))
  const good = await shop.fail('order-2', placed(2))
  await shop.deadLetters.retryAll({ of: 'mailer' })
  await shop.query('update ~dead_letters set retry_at = now()')
  const consumer = mailer(async (events, ctx) => {
    if (events[0]!.id === bad.id) await ctx.tx.query('select 1 / 0')
    await working.handle(events, ctx)
  })

  const result = await replayRequested(shop, consumer, await shop.hold())

  expect(result).toMatchObject({ replayed: 1, failed: 1 })
  expect(await mailed(shop)).toEqual([good.id])
  expect((await shop.deadLetters.show('mailer', bad.id)).lastError).toMatchObject({ code: '22012' })
})

test('an SQL error that the handler swallows is still a failure', async () => {
  const shop = await openFailedEvents()
  const event = await shop.fail('order-1', placed())
  await shop.deadLetters.retry('mailer', event.id)
  const careless = mailer(async (_, { tx }) => {
    await tx.query('select 1 / 0').catch(() => {})
  })

  const result = await replayRequested(shop, careless, await shop.hold())

  expect(result).toMatchObject({ replayed: 0, failed: 1 })
  expect(await shop.deadLetters.show('mailer', event.id)).toMatchObject({ state: 'open', attempts: 2 })
})

test('a handler that does not return is cut off, and the dead letter records that', async () => {
  const shop = await openFailedEvents()
  const event = await shop.fail('order-1', placed())
  await shop.deadLetters.retry('mailer', event.id)
  const reported = deferred<unknown>()
  const stuck = mailer(
    (_, { signal }) => {
      const report = (): void => reported.resolve(signal.reason)
      if (signal.aborted) report()
      signal.addEventListener('abort', report)
      return new Promise(() => {})
    },
    { timeoutMs: 100 },
  )

  const result = await replayRequested(shop, stuck, await shop.hold())

  expect(result).toMatchObject({ replayed: 0, failed: 1 })
  expect(await reported.promise).toMatchObject({ code: 'consumer_timeout', consumer: 'mailer', timeoutMs: 100 })
  expect((await shop.deadLetters.show('mailer', event.id)).lastError).toMatchObject({ code: 'consumer_timeout' })
})

test('an event that cannot be decoded fails again, without a call of its handler', async () => {
  const shop = await openFailedEvents()
  const event = await shop.fail('order-1', placed())
  await shop.deadLetters.retry('mailer', event.id)
  const broken = defineUpcaster('OrderPlaced', {
    from: 1,
    to: 2,
    run: () => {
      throw new Error('no currency known')
    },
  })
  let isCalled = false
  const consumer = mailer(async () => {
    isCalled = true
  })

  const result = await replayRequested(openConsumerParts(shop, { upcasters: [broken] }), consumer, await shop.hold())

  expect(result).toMatchObject({ replayed: 0, failed: 1 })
  expect(isCalled).toBe(false)
  expect((await shop.deadLetters.show('mailer', event.id)).lastError).toMatchObject({
    code: 'upcaster_failed',
    causes: ['Error: no currency known'],
  })
})

test('a dead letter whose event was deleted reports that', async () => {
  const shop = await openFailedEvents()
  const event = await shop.fail('order-1', placed())
  await shop.query('delete from ~events')
  await shop.deadLetters.retry('mailer', event.id)

  const result = await replayRequested(shop, await withMails(shop), await shop.hold())

  expect(result).toMatchObject({ replayed: 0, failed: 1 })
  const deadLetter = await shop.deadLetters.show('mailer', event.id)
  expect(deadLetter.event).toBeUndefined()
  expect(deadLetter.lastError.message).toContain('no longer in the log')
})

test('AB-10: a dead letter left in the middle by a former holder is replayed by the next, once', async () => {
  const shop = await openFailedEvents()
  const consumer = await withMails(shop)
  const event = await shop.fail('order-1', placed())
  await shop.deadLetters.retry('mailer', event.id)
  const former = await shop.hold()
  await shop.query(`update ~dead_letters set state = 'retrying', fence = $1`, [former.lease.fence])

  const result = await replayRequested(shop, consumer, await shop.hold())
  const again = await replayRequested(shop, consumer, await shop.hold())

  expect([result.replayed, again.replayed]).toEqual([1, 0])
  expect(await mailed(shop)).toEqual([event.id])
})

test('a holder that has lost the lease replays nothing, and takes nothing from the new holder', async () => {
  const shop = await openFailedEvents()
  const consumer = await withMails(shop)
  const [mine, open] = [await shop.fail('order-1', placed()), await shop.fail('order-2', placed())]
  for (const { id } of [mine, open]) await shop.deadLetters.retry('mailer', id)
  const former = await shop.hold()
  const { lease } = await shop.hold()
  await shop.query(`update ~dead_letters set state = 'retrying', fence = $1 where event_id = $2`, [
    lease.fence,
    mine.id,
  ])

  const { error } = await outcome(replayRequested(shop, consumer, former))

  expect(error).toMatchObject({ code: 'lease_lost', consumer: 'mailer', fence: former.lease.fence })
  expect(await mailed(shop)).toEqual([])
  const states = (await shop.deadLetters.list()).items.map(deadLetter => deadLetter.state)
  expect(states).toEqual(['retrying', 'open'])
})

test('no more dead letters are begun than requested, and none once the lease is to be released', async () => {
  const shop = await openFailedEvents()
  for (let n = 0; n < 5; n++) await shop.fail(`order-${n}`, placed(n))
  await shop.deadLetters.retryAll({ of: 'mailer' })
  await shop.query('update ~dead_letters set retry_at = now()')
  const hold = await shop.hold()
  const draining = mailer(async () => hold.drained.abort())

  const limited = await replayRequested(shop, await withMails(shop), hold, { limit: 2 })
  const drained = await replayRequested(shop, draining, hold)

  expect(limited).toMatchObject({ replayed: 2, failed: 0 })
  expect(drained).toMatchObject({ replayed: 1, failed: 0 })
  expect((await shop.deadLetters.stats()).items).toMatchObject([{ open: 2, retrying: 0, replayed: 3 }])
})

if (onServer) {
  test('RB-15: a retry needs only one connection', async () => {
    const database = await openPostgres({ url: postgresUrl(), maxConnections: 1 })
    onTestFinished(() => database.close(1_000))
    const shop = await openFailedEvents()
    const consumer = await withMails(shop)
    const event = await shop.fail('order-1', placed())
    await shop.deadLetters.retry('mailer', event.id)

    const result = await replayRequested(openConsumerParts(shop, { database }), consumer, await shop.hold())

    expect(result).toMatchObject({ replayed: 1, failed: 0 })
    expect(await mailed(shop)).toEqual([event.id])
  })

  test('RB-15: a connection that is cut in the middle leaves the dead letter to be replayed, once', async () => {
    const shop = await openFailedEvents()
    const consumer = await withMails(shop)
    const event = await shop.fail('order-1', placed())
    await shop.deadLetters.retry('mailer', event.id)
    const hold = await shop.hold()
    const client = await connect()
    const cut = mailer(async (events, ctx) => {
      await consumer.handle(events, ctx)
      const [row] = await ctx.tx.query<{ pid: number }>('select pg_backend_pid() as pid')
      await client.query('select pg_terminate_backend($1::integer)', [row!.pid])
      return new Promise(() => {})
    })

    const { error } = await outcome(replayRequested(shop, cut, hold))
    const between = await mailed(shop)
    const result = await replayRequested(shop, consumer, hold)

    expect(error).toMatchObject({ code: 'connection_lost' })
    expect(between).toEqual([])
    expect(result).toMatchObject({ replayed: 1, failed: 0 })
    expect(await mailed(shop)).toEqual([event.id])
  })

  test('a lease that is lost while the handler runs undoes its writes', async () => {
    const shop = await openFailedEvents()
    const consumer = await withMails(shop)
    const event = await shop.fail('order-1', placed())
    await shop.deadLetters.retry('mailer', event.id)
    const former = await shop.hold()
    const [begun, go] = [deferred<void>(), deferred<void>()]
    const paused = mailer(async (events, ctx) => {
      await consumer.handle(events, ctx)
      begun.resolve()
      await go.promise
    })

    const losing = outcome(replayRequested(shop, paused, former))
    await begun.promise
    await shop.query(`update ~consumers set lease_until = now() - interval '1 second'`)
    const taken = await takeLease(shop.log, 'mailer', 'somebody else', 30_000)
    go.resolve()

    expect(taken).toMatchObject({ owner: 'somebody else' })
    expect((await losing).error).toMatchObject({ code: 'lease_lost' })
    expect(await mailed(shop)).toEqual([])
    expect(await replayRequested(shop, consumer, await shop.hold())).toMatchObject({ replayed: 1, failed: 0 })
    expect(await mailed(shop)).toEqual([event.id])
  })
}
