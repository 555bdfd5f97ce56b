import { expect, test } from 'vitest'
import { record } from '../../src/consumers/dead-letters/row.ts'
import { describeError } from '../../src/consumers/run/failure.ts'
import { outcome, paid, placed, shipped } from '../support/shop.ts'
import { openFailedEvents } from './failed-events.ts'

const nobody = '0190b2f0-6a1c-7def-8123-456789abcdef'

test('AB-09: an event that fails again has one dead letter, with all attempts and the last error', async () => {
  const { deadLetters, fail, failAgain } = await openFailedEvents()
  const event = await fail('order-1', placed(), { error: new Error('declined') })

  await failAgain(event, { error: new TypeError('no total'), attempts: 4 })

  const [deadLetter, ...others] = (await deadLetters.list()).items
  expect(others).toEqual([])
  expect(deadLetter).toMatchObject({ consumer: 'mailer', eventId: event.id, state: 'open', attempts: 5 })
  expect(deadLetter!.lastError).toMatchObject({ name: 'TypeError', message: 'no total', at: expect.any(Date) })
  const { errors } = await deadLetters.show('mailer', event.id)
  expect(errors.map(error => error.message)).toEqual(['declined', 'no total'])
})

test('each consumer has its own dead letter for an event', async () => {
  const { deadLetters, fail, failAgain } = await openFailedEvents()
  const event = await fail('order-1', placed())

  await failAgain(event, { consumer: 'printer' })
  await deadLetters.resolve('printer', event.id, { note: 'printed by hand' })

  expect((await deadLetters.list()).items.map(deadLetter => [deadLetter.consumer, deadLetter.state])).toEqual([
    ['mailer', 'open'],
    ['printer', 'resolved'],
  ])
})

test('a dead letter is rolled back with the transaction it was recorded in', async () => {
  const { store, database, deadLetters, log } = await openFailedEvents()
  const { eventIds } = await store.events.append('order-1', placed())
  const event = (await store.events.get(eventIds[0]!))!

  const failing = database.transaction(async tx => {
    await record(log, { consumer: 'mailer', fence: 1 }, { event, error: 'declined', attempts: 1 }, tx)
    throw new Error('the checkpoint is not ours')
  })

  await expect(failing).rejects.toThrow('not ours')
  expect((await deadLetters.list()).items).toEqual([])
})

test('only the last twenty errors are stored', async () => {
  const { deadLetters, fail, failAgain } = await openFailedEvents()
  const event = await fail('order-1', placed(), { error: new Error('error 1') })

  for (let n = 2; n <= 23; n++) await failAgain(event, { error: new Error(`error ${n}`) })

  const { errors, attempts } = await deadLetters.show('mailer', event.id)
  expect(attempts).toBe(23)
  expect(errors.map(error => error.message)).toEqual(Array.from({ length: 20 }, (_, n) => `error ${n + 4}`))
})

test('any thrown value can be stored', async () => {
  const { deadLetters, fail, failAgain } = await openFailedEvents()
  const circular: Record<string, unknown> = {}
  circular.self = circular
  const endless = new Error('loop')
  endless.cause = endless
  const hostile = new Proxy(
    {},
    {
      get() {
        throw new Error('hands off')
      },
    },
  )
  const thrown = [undefined, null, 'declined', 42n, Symbol('s'), () => 1, circular, endless, hostile, 'NUL \0 \ud800']
  const event = await fail('order-1', placed(), { error: new Error('x'.repeat(100_000)) })

  for (const error of thrown) await failAgain(event, { error })

  const { errors } = await deadLetters.show('mailer', event.id)
  expect(errors).toHaveLength(thrown.length + 1)
  expect(JSON.stringify(errors).length).toBeLessThan(20_000)
  expect(errors[0]!.message).toHaveLength(2_000)
  expect(errors.slice(1, 5).map(error => error.message)).toEqual(['undefined', 'null', 'declined', '42'])
  expect(errors.at(-1)!.message).toBe('NUL \ufffd \ufffd')
})

test('an error is stored with its code and its causes', () => {
  const cause = Object.assign(new Error('duplicate key'), { code: '23505' })

  const described = describeError(new Error('not stored', { cause }))

  expect(described).toMatchObject({ name: 'Error', message: 'not stored', causes: ['Error: duplicate key'] })
  expect(described.stack).toContain('dead-letters.test.ts')
  expect(describeError(cause).code).toBe('23505')
})

test('dead letters are listed by filter', async () => {
  const { deadLetters, fail, query } = await openFailedEvents()
  const first = await fail('order-1', placed())
  await query(`update ~dead_letters set last_failed_at = '2020-01-01'`)
  const second = await fail('order-2', paid)
  const third = await fail('order-1', shipped(), { consumer: 'printer' })
  await deadLetters.resolve('mailer', second.id, { note: 'sent by hand' })
  const ids = async (options: Parameters<typeof deadLetters.list>[0]) =>
    (await deadLetters.list(options)).items.map(deadLetter => deadLetter.eventId)

  expect(await ids({})).toEqual([first.id, second.id, third.id])
  expect(await ids({ of: 'mailer' })).toEqual([first.id, second.id])
  expect(await ids({ state: 'resolved' })).toEqual([second.id])
  expect(await ids({ type: 'OrderShipped' })).toEqual([third.id])
  expect(await ids({ stream: 'order-1' })).toEqual([first.id, third.id])
  expect(await ids({ since: new Date('2021-01-01') })).toEqual([second.id, third.id])
  expect(await ids({ of: 'mailer', type: 'OrderShipped' })).toEqual([])
})

test('dead letters are listed in pages', async () => {
  const { deadLetters, fail, failAgain } = await openFailedEvents()
  const events = []
  for (let n = 0; n < 5; n++) events.push(await fail(`order-${n}`, placed(n)))
  await failAgain(events[0]!, { consumer: 'printer' })
  const seen: string[] = []

  let page = await deadLetters.list({ limit: 2 })
  seen.push(...page.items.map(deadLetter => `${deadLetter.consumer} ${deadLetter.stream}`))
  while (page.next !== undefined) {
    page = await deadLetters.list({ limit: 2, after: page.next })
    seen.push(...page.items.map(deadLetter => `${deadLetter.consumer} ${deadLetter.stream}`))
  }

  expect(seen).toEqual([...[0, 1, 2, 3, 4].map(n => `mailer order-${n}`), 'printer order-0'])
})

test('a list with invalid options is refused', async () => {
  const { deadLetters } = await openFailedEvents()
  const refused = {
    limit: [0, 10_001, 1.5],
    state: ['closed'],
    since: [new Date('never'), '2020-01-01'],
  }

  for (const [option, values] of Object.entries(refused))
    for (const value of values) {
      const { error } = await outcome(deadLetters.list({ [option]: value }))
      expect(error).toMatchObject({ code: 'invalid_option', option })
    }
})

test('dead letters are counted by consumer and state', async () => {
  const { deadLetters, fail } = await openFailedEvents()
  await fail('order-1', placed())
  const second = await fail('order-2', placed())
  await fail('order-3', placed(), { consumer: 'printer' })
  await deadLetters.resolve('mailer', second.id, { note: 'sent by hand' })

  expect((await deadLetters.stats()).items).toEqual([
    { consumer: 'mailer', open: 1, retrying: 0, parked: 0, replayed: 0, resolved: 1 },
    { consumer: 'printer', open: 1, retrying: 0, parked: 0, replayed: 0, resolved: 0 },
  ])
  const first = await deadLetters.stats({ limit: 1 })
  const rest = await deadLetters.stats({ limit: 1, after: first.next })
  expect([first, rest]).toMatchObject([{ items: [{ consumer: 'mailer' }] }, { items: [{ consumer: 'printer' }] }])
  expect(rest.next).toBeUndefined()
})

test('RB-16: a dead letter is shown with the whole event as stored', async () => {
  const { deadLetters, fail } = await openFailedEvents()
  const more = { headers: { region: 'eu' }, correlationId: 'checkout-1', causationId: 'click-1', userId: 'ada' }
  const event = await fail('order-1', placed(7, more))

  const deadLetter = await deadLetters.show('mailer', event.id.toUpperCase())

  expect(deadLetter.event).toEqual(event)
  expect(deadLetter).toMatchObject({
    ...{ consumer: 'mailer', eventId: event.id, position: event.position, stream: 'order-1', version: 1 },
    ...{ type: 'OrderPlaced', state: 'open', attempts: 1, retryAt: undefined, note: undefined, history: [] },
  })
  expect(JSON.parse(JSON.stringify(deadLetter))).toMatchObject({
    position: event.position,
    event: { headers: { region: 'eu' }, position: event.position },
  })
})

test('RB-16: commands on a dead letter that does not exist fail', async () => {
  const { deadLetters, fail } = await openFailedEvents()
  const event = await fail('order-1', placed())

  for (const [consumer, eventId] of [
    ['mailer', nobody],
    ['printer', event.id],
    ['mailer', 'no uuid'],
  ] as const)
    for (const ask of [
      () => deadLetters.show(consumer, eventId),
      () => deadLetters.retry(consumer, eventId),
      () => deadLetters.resolve(consumer, eventId, { note: 'sent by hand' }),
      () => deadLetters.delete(consumer, eventId),
    ]) {
      const { error } = await outcome<unknown>(ask())
      expect(error).toMatchObject({ code: 'dead_letter_not_found', of: consumer, eventId })
    }
  expect((await deadLetters.list()).items).toHaveLength(1)
})

test('a dead letter is resolved with a note, which stays when the event fails again', async () => {
  const { deadLetters, fail, failAgain } = await openFailedEvents()
  const event = await fail('order-1', placed())

  await deadLetters.resolve('mailer', event.id, { note: 'sent by hand' })
  const resolved = await deadLetters.show('mailer', event.id)
  await failAgain(event)
  const reopened = await deadLetters.show('mailer', event.id)

  expect(resolved).toMatchObject({ state: 'resolved', note: 'sent by hand' })
  expect(reopened).toMatchObject({ state: 'open', note: undefined, attempts: 2 })
  expect(reopened.history).toMatchObject([
    { from: 'open', to: 'resolved', note: 'sent by hand', at: expect.any(Date) },
    { from: 'resolved', to: 'open' },
  ])
})

test('a note must not be empty', async () => {
  const { deadLetters, fail } = await openFailedEvents()
  const event = await fail('order-1', placed())

  for (const note of ['', ' ', undefined as never, 'NUL \0', 'x'.repeat(4_001)]) {
    const { error } = await outcome(deadLetters.resolve('mailer', event.id, { note }))
    expect(error).toMatchObject({ code: 'invalid_option', option: 'note' })
  }
  expect(await deadLetters.show('mailer', event.id)).toMatchObject({ state: 'open' })
})

test('a deleted dead letter is gone, and starts anew if the event fails again', async () => {
  const { deadLetters, fail, failAgain } = await openFailedEvents()
  const event = await fail('order-1', placed())

  await deadLetters.delete('mailer', event.id)
  const gone = (await deadLetters.list()).items
  await failAgain(event)

  expect(gone).toEqual([])
  expect(await deadLetters.show('mailer', event.id)).toMatchObject({ attempts: 1, history: [] })
})

for (const [state, refused] of Object.entries({
  retrying: ['retried', 'resolved', 'deleted'],
  replayed: ['retried', 'resolved'],
  resolved: ['retried', 'resolved'],
}))
  test(`a dead letter that is ${state} cannot be ${refused.join(', ')}`, async () => {
    const { deadLetters, fail, hold, query } = await openFailedEvents()
    const event = await fail('order-1', placed())
    const { lease } = await hold()
    await query('update ~dead_letters set state = $1, fence = $2', [state, lease.fence])
    const asked: Record<string, () => Promise<unknown>> = {
      retried: () => deadLetters.retry('mailer', event.id),
      resolved: () => deadLetters.resolve('mailer', event.id, { note: 'sent by hand' }),
      deleted: () => deadLetters.delete('mailer', event.id),
    }

    for (const wanted of refused) {
      const { error } = await outcome(asked[wanted]!())
      expect(error).toMatchObject({ code: 'dead_letter_conflict', eventId: event.id, state, wanted })
    }
    expect(await deadLetters.show('mailer', event.id)).toMatchObject({ state })
  })

test('a dead letter whose retry was interrupted is shown as open', async () => {
  const { deadLetters, fail, hold, query } = await openFailedEvents()
  const event = await fail('order-1', placed())
  const { lease } = await hold()
  await query(`update ~dead_letters set state = 'retrying', fence = $1, retry_at = now()`, [lease.fence])
  await query(`update ~consumers set lease_until = now() - interval '1 second'`)

  await deadLetters.resolve('mailer', event.id, { note: 'sent by hand' })

  expect(await deadLetters.show('mailer', event.id)).toMatchObject({ state: 'resolved', retryAt: undefined })
})

test('a retry that no runner can carry out is refused, and the dead letter stays open', async () => {
  const { deadLetters, fail } = await openFailedEvents()
  const event = await fail('order-1', placed())

  const asked = await deadLetters.retry('mailer', event.id)

  expect(asked).toEqual({ requested: 1, isRunning: false })
  expect(await deadLetters.show('mailer', event.id)).toMatchObject({ state: 'open', retryAt: expect.any(Date) })
})

test('a retry reports whether a runner serves the consumer', async () => {
  const { deadLetters, fail, hold, query } = await openFailedEvents()
  const event = await fail('order-1', placed())
  const running = async () => (await deadLetters.retry('mailer', event.id)).isRunning
  await hold()

  const whileHeld = await running()
  await query('update ~consumers set paused_at = now()')
  const whilePaused = await running()
  await query(`update ~consumers set paused_at = null, lease_until = now() - interval '1 second'`)
  const expired = await running()

  expect([whileHeld, whilePaused, expired]).toEqual([true, false, false])
})

test('a retry of all matching dead letters is spaced by the rate, after those requested before', async () => {
  const { deadLetters, fail } = await openFailedEvents()
  for (let n = 0; n < 4; n++) await fail('order-1', placed(n))
  await fail('order-2', placed())
  await fail('order-1', placed(), { consumer: 'printer' })

  const first = await deadLetters.retryAll({ of: 'mailer', stream: 'order-1', limit: 3 }, { perSecond: 0.02 })
  const second = await deadLetters.retryAll({ of: 'mailer', stream: 'order-1' }, { perSecond: 0.02 })
  const third = await deadLetters.retryAll({ of: 'mailer', stream: 'order-1' }, { perSecond: 0.02 })

  expect([first.requested, second.requested, third.requested]).toEqual([3, 1, 0])
  const due = (await deadLetters.list()).items.map(deadLetter => deadLetter.retryAt?.getTime())
  const [start] = due
  expect(due.map(at => at && at - start!)).toEqual([0, 50_000, 100_000, 150_000, undefined, undefined])
})

test('a retry of all dead letters of an unknown consumer, or at an invalid rate, is refused', async () => {
  const { deadLetters, fail, hold } = await openFailedEvents()
  await fail('order-1', placed())
  await hold()

  const { error } = await outcome(deadLetters.retryAll({ of: 'maile' }))

  expect(error).toMatchObject({ code: 'consumer_not_found', consumer: 'maile', nearest: 'mailer' })
  for (const perSecond of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
    const { error } = await outcome(deadLetters.retryAll({ of: 'mailer' }, { perSecond }))
    expect(error).toMatchObject({ code: 'invalid_option', option: 'perSecond' })
  }
})

test('the dead letters of a subscription are found by its name, and one of several groups by the name of the group', async () => {
  const { deadLetters, fail, failAgain, query } = await openFailedEvents()
  await query(`insert into ~consumers (name, kind, checkpoint) values ('news/default', 'subscription', 0),
    ('news/eu#0', 'subscription', 0), ('news/other', 'processor', 0)`)
  const event = await fail('order-1', placed(), { consumer: 'news/default' })
  await failAgain(event, { consumer: 'news/eu#0' })
  await failAgain(event, { consumer: 'news/other' })

  const { items } = await deadLetters.list({ of: 'news' })
  const { error } = await outcome(deadLetters.show('news', event.id))
  const shown = await deadLetters.show(items[1]!, event.id)

  expect(items.map(({ consumer }) => consumer)).toEqual(['news/default', 'news/eu#0'])
  expect(error).toMatchObject({
    code: 'invalid_option',
    option: 'of',
    message: expect.stringContaining('Name one of them.'),
  })
  expect(shown).toMatchObject({ consumer: 'news/eu#0', state: 'open' })
})

test('a consumer cannot be given other data than its event has', async () => {
  const { deadLetters, fail } = await openFailedEvents()
  const event = await fail('order-1', placed())

  const { error } = await outcome(deadLetters.retry('mailer', event.id, { data: { total: 2 } }))

  expect(error).toMatchObject({ code: 'invalid_option', option: 'data' })
  expect(await deadLetters.show('mailer', event.id)).toMatchObject({ retryAt: undefined })
})
