import { expect, onTestFinished, test } from 'vitest'
import type { Processor, ProcessorOptions } from '../../src/consumers/processor.ts'
import { deadLetter, failFast, logAndSkip, retryWithBackoff } from '../../src/consumers/run/policy.ts'
import { deferred } from '../../src/core/lifecycle.ts'
import type { Store } from '../../src/store.ts'
import { openShop, outcome, paid, placed, type Shop, type ShopMap, shipped } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** So long that events are found by notifications, not by polling. */
const never = 60_000

/** Runs it until the test is over. */
function start(store: Store<ShopMap>, options: ProcessorOptions<ShopMap>, name = 'mailer') {
  const processor = store.processor(name, { pollMs: never, ...options })
  const running = outcome(processor.run())
  onTestFinished(() => processor.shutdown())
  return { processor, running }
}

async function caughtUp(processor: Processor, store: Store<ShopMap>): Promise<void> {
  const head = await store.events.head()
  await waitUntil(async () => (await processor.checkpoint()) === head, {
    what: 'the end of the log',
    deadlineMs: 60_000,
  })
}

async function shopWithMails(): Promise<Shop & { mails(): Promise<string[]> }> {
  const shop = await openShop()
  await shop.query('create table ~mails (number bigserial, body text)')
  const mails = async () =>
    (await shop.query<{ body: string }>('select body from ~mails order by number')).map(row => row.body)
  return { ...shop, mails }
}

test('a processor applies existing and new events, in order, with all handlers of a type', async () => {
  const { store } = await openShop()
  const seen: string[] = []
  await store.events.append('order-1', [placed(1), shipped()])

  const { processor } = start(store, {
    handlers: {
      OrderPlaced: [
        event => void seen.push(`reserve ${event.data.total}`),
        async event => void seen.push(`greet ${event.stream}`),
      ],
      OrderPaid: event => void seen.push(`book ${event.data.method}`),
    },
  })
  await waitUntil(() => seen.length === 2)
  await store.events.append('order-1', paid)
  await waitUntil(() => seen.length === 3)
  await processor.shutdown()

  expect(seen).toEqual(['reserve 1', 'greet order-1', 'book card'])
  expect(processor.state).toBe('stopped')
})

test('a batch handler gets consecutive events of one type together, in the order of the log', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(1), placed(2), paid, placed(3)])
  const seen: unknown[] = []

  const processor = store.processor('mailer', {
    batch: { OrderPlaced: events => void seen.push(events.map(event => event.data.total)) },
    handlers: { OrderPaid: () => void seen.push('paid') },
  })
  const tick = await processor.runOnce()

  expect(tick).toEqual({ result: 'processed', count: 4 })
  expect(seen).toEqual([[1, 2], 'paid', [3]])
})

test('before the first batch there is no checkpoint; afterwards checkpoint and lag follow the log', async () => {
  const { store } = await openShop()
  const processor = store.processor('mailer', { handlers: { OrderPlaced: () => {} }, batchSize: 2 })
  const before = await processor.checkpoint()
  const { position } = await store.events.append('order-1', [placed(), placed(), placed()])

  const lagBefore = await processor.lag()
  const first = await processor.runOnce()
  const lagBetween = await processor.lag()
  await processor.runOnce()
  const idle = await processor.runOnce()

  expect(before).toBeUndefined()
  expect([lagBefore, lagBetween, await processor.lag()]).toEqual([position, 1, 0])
  expect([first, idle]).toEqual([
    { result: 'processed', count: 2 },
    { result: 'idle', count: 0 },
  ])
  expect(await processor.checkpoint()).toBe(position)
})

test('by default the first failure stops it, run rejects with the error, and the same event comes first next time', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(1), placed(2), placed(3)])
  const seen: number[] = []
  let isBroken = true
  const handlers = {
    OrderPlaced: ({ data }: { data: { total: number } }) => {
      if (isBroken && data.total === 2) throw new Error('declined')
      seen.push(data.total)
    },
  }

  const { processor, running } = start(store, { handlers })
  const { error } = await running
  const stopped = { state: processor.state, checkpoint: await processor.checkpoint() }
  isBroken = false
  seen.length = 0
  const again = outcome(processor.run())
  await waitUntil(() => seen.length === 2)
  await processor.shutdown()

  expect(error).toMatchObject({ message: 'declined' })
  expect(stopped).toEqual({ state: 'failed', checkpoint: 1 })
  expect(seen).toEqual([2, 3])
  expect(await again).toEqual({ value: undefined })
})

test("AB-01: an event is tried as often as the policy allows, then the policy's end applies", async () => {
  for (const end of ['stop', 'skip', 'dead-letter'] as const) {
    const { store } = await openShop()
    await store.events.append('order-1', [placed(1), placed(2)])
    const tries: number[] = []
    const done: number[] = []

    const { processor, running } = start(store, {
      policy: retryWithBackoff({ retries: 2, baseMs: 1, end }),
      handlers: {
        OrderPlaced({ data }, { attempt }) {
          if (data.total === 2) return void done.push(2)
          tries.push(attempt)
          throw new Error('declined')
        },
      },
    })
    await waitUntil(() => processor.state === 'failed' || done.length > 0)
    await processor.shutdown()

    expect([...new Set(tries)]).toEqual([1, 2, 3])
    expect(done).toEqual(end === 'stop' ? [] : [2])
    expect((await running).error).toEqual(end === 'stop' ? expect.objectContaining({ message: 'declined' }) : undefined)
    expect(await store.deadLetters.list()).toHaveLength(end === 'dead-letter' ? 1 : 0)
  }
})

test('AB-02: after a restart it continues where it was', async () => {
  const { store, sibling } = await openShop()
  const seen: number[] = []
  const handlers = { OrderPlaced: ({ data }: { data: { total: number } }) => void seen.push(data.total) }
  await store.events.append('order-1', [placed(1), placed(2)])
  const first = start(store, { handlers })
  await caughtUp(first.processor, store)
  await first.processor.shutdown()
  await store.close()

  const other = await sibling()
  await other.events.append('order-1', placed(3))
  const second = start(other, { handlers })
  await caughtUp(second.processor, other)
  await second.processor.shutdown()

  expect(seen).toEqual([1, 2, 3])
})

test('AB-03: writes of a failing event are undone, writes of the events before it are kept with the checkpoint', async () => {
  const { store, named, mails } = await shopWithMails()
  await store.events.append('order-1', [placed(1), placed(2), placed(3)])

  const { processor, running } = start(store, {
    handlers: {
      async OrderPlaced({ data }, { tx }) {
        await tx.query(named('insert into ~mails (body) values ($1)'), [`order of ${data.total}`])
        if (data.total === 2) await tx.query('select 1 / 0')
      },
    },
  })
  const { error } = await running

  expect(error).toMatchObject({ code: '22012' })
  expect(await mails()).toEqual(['order of 1'])
  expect(await processor.checkpoint()).toBe(1)
})

test('AB-04: thousands of bad events are processed without waits in between', async () => {
  const { store } = await openShop()
  const many = 2_000
  await store.events.import(Array.from({ length: many }, (_, n) => ({ stream: `order-${n % 50}`, ...placed(n) })))
  await store.events.append('order-1', paid)
  let failed = 0
  let isPaid = false

  const { processor } = start(store, {
    policy: logAndSkip(),
    handlers: {
      OrderPlaced() {
        failed++
        throw new Error('declined')
      },
      OrderPaid() {
        isPaid = true
      },
    },
  })
  await waitUntil(() => isPaid, { what: 'the good event behind the bad ones', deadlineMs: 100_000 })
  await caughtUp(processor, store)

  expect(failed).toBeGreaterThanOrEqual(many)
  expect(await processor.lag()).toBe(0)
}, 120_000)

test('AB-05: gaps between positions are crossed, however wide, and a gap at the end leaves no lag', async () => {
  const { store, query } = await openShop()
  const seen: number[] = []
  await store.events.append('order-1', placed(1))
  await query(`select setval('~events_position', 5000)`)
  await store.events.append('order-1', placed(2))
  await outcome(
    store.transaction(async tx => {
      await store.events.append('order-1', [placed(3), placed(4), placed(5)], { tx })
      throw new Error('declined')
    }),
  )

  const { processor } = start(store, {
    batchSize: 1,
    handlers: { OrderPlaced: ({ data }) => void seen.push(data.total) },
  })
  await waitUntil(async () => (await processor.lag()) === 0)

  expect(seen).toEqual([1, 2])
  expect(await processor.checkpoint()).toBe(await store.events.head())
})

test('AB-06: no append is missed with a poll of a minute, and stopping is prompt', async () => {
  const { store } = await openShop()
  const seen: number[] = []
  const { processor, running } = start(store, {
    handlers: { OrderPlaced: ({ data }) => void seen.push(data.total) },
  })

  for (let n = 1; n <= 50; n++) {
    await store.events.append('order-1', placed(n))
    if (n % 3 === 0) await waitUntil(() => seen.length === n)
  }
  await waitUntil(() => seen.length === 50)
  await processor.shutdown()
  await processor.shutdown()

  expect(await running).toEqual({ value: undefined })
  expect(processor.state).toBe('stopped')
})

test('a run ends with its signal, after the running batch', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())
  const abort = new AbortController()
  const [begun, go] = [deferred<void>(), deferred<void>()]
  const processor = store.processor('mailer', {
    handlers: {
      async OrderPlaced() {
        begun.resolve()
        await go.promise
      },
    },
  })

  const running = processor.run(abort.signal)
  await begun.promise
  abort.abort()
  go.resolve()
  await running

  expect(processor.state).toBe('stopped')
  expect(await processor.checkpoint()).toBe(1)
})

test('AB-07: events of types without a handler are skipped, unless they are configured to fail', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-1', [paid, placed(), paid])
  const handlers = { OrderPlaced: () => {} }

  const lenient = store.processor('lenient', { handlers })
  const strict = store.processor('strict', { handlers, unknown: 'fail' })
  const skipping = store.processor('skipping', { handlers, unknown: 'fail', policy: logAndSkip() })
  const first = await lenient.runOnce()
  const refused = await outcome(strict.runOnce())
  for (let n = 0; n < 4; n++) await skipping.runOnce()

  expect(first).toEqual({ result: 'processed', count: 1 })
  expect(refused.error).toMatchObject({ code: 'no_handler', consumer: 'strict', type: 'OrderPaid' })
  expect(await skipping.checkpoint()).toBe(position)
})

test('AB-08: invalid definitions are refused when they are made', async () => {
  const { store } = await openShop()
  const handlers = { OrderPlaced: () => {} }
  const refused: [string, object][] = [
    ['batchSize', { handlers, batchSize: 0 }],
    ['pollMs', { handlers, pollMs: 0 }],
    ['leaseMs', { handlers, leaseMs: 1 }],
    ['startFrom', { handlers, startFrom: 'yesterday' }],
    ['policy', { handlers, policy: 'retryForever' }],
    ['policy', { handlers, policy: { ...failFast(), end: 'explode' } }],
    ['breaker.failures', { handlers, breaker: { failures: 0 } }],
    ['handlers', {}],
    ['handlers', { handlers: {} }],
    ['handlers.OrderPlaced', { handlers: { OrderPlaced: 'send' } }],
    ['handlers.OrderPlaced', { handlers: { OrderPlaced: [] } }],
    ['batch', { handlers, batch: handlers }],
    ['unknown', { handlers, unknown: 'explode' }],
  ]

  for (const [option, options] of refused)
    expect(() => store.processor('mailer', options)).toThrow(
      expect.objectContaining({ code: 'invalid_option', option }),
    )
  expect(() => store.processor('', { handlers })).toThrow(expect.objectContaining({ code: 'invalid_name' }))
})

test('a store runs a processor name once at a time', async () => {
  const { store } = await openShop()
  const options = { handlers: { OrderPlaced: () => {} } }
  const first = store.processor('mailer', options)

  expect(() => store.processor('mailer', options)).toThrow(
    expect.objectContaining({ code: 'duplicate_consumer', consumer: 'mailer' }),
  )
  await first.shutdown()
  expect(store.processor('mailer', options).state).toBe('ready')
  await expect(first.run()).rejects.toMatchObject({ code: 'invalid_option' })
})

test('a dead letter that cannot be written stops it, and the checkpoint stays before the event', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', [placed(1), placed(2)])
  await query('alter table ~dead_letters add constraint full_up check (attempts < 0)')

  const { processor, running } = start(store, {
    policy: deadLetter({ retries: 0 }),
    handlers: {
      OrderPlaced({ data }) {
        if (data.total === 2) throw new Error('declined')
      },
    },
  })
  const { error } = await running
  await query('alter table ~dead_letters drop constraint full_up')

  expect(error).toMatchObject({ code: 'dead_letter_unwritable', consumer: 'mailer' })
  expect(processor.state).toBe('failed')
  expect(await processor.checkpoint()).toBe(1)
})

test('consecutive bad events are dead-lettered one by one, good ones between them are applied once, until one stops it', async () => {
  const { store, named, mails } = await shopWithMails()
  await store.events.append('order-1', [placed(1), placed(2), placed(3), placed(4), paid, shipped(), placed(6)])

  const { processor, running } = start(store, {
    policy: deadLetter({ retries: 0, byType: { OrderShipped: failFast() } }),
    handlers: {
      async OrderPlaced({ data }, { tx }) {
        await tx.query(named('insert into ~mails (body) values ($1)'), [`order of ${data.total}`])
        if (data.total === 1) throw new Error('declined')
        if (data.total % 2 === 1) await tx.query('select 1 / 0')
      },
      async OrderPaid(_, { tx }) {
        await tx.query(named(`insert into ~mails (body) values ('paid')`))
      },
      OrderShipped() {
        throw new Error('lost')
      },
    },
  })
  const { error } = await running

  expect(error).toMatchObject({ message: 'lost' })
  expect(await mails()).toEqual(['order of 2', 'order of 4', 'paid'])
  expect(await processor.checkpoint()).toBe(5)
  const deadLetters = await store.deadLetters.list()
  expect(deadLetters.map(deadLetter => [deadLetter.position, deadLetter.lastError.message])).toEqual([
    [1, 'declined'],
    [3, 'division by zero'],
  ])
})

test('requested retries of dead letters are carried out while it runs, at their rate, and the log is followed meanwhile', async () => {
  const { store } = await openShop()
  const seen: string[] = []
  let isBroken = true
  const { processor } = start(store, {
    policy: deadLetter({ retries: 0 }),
    handlers: {
      OrderPlaced({ data }, { isReplay }) {
        if (isBroken && data.total < 9) throw new Error('declined')
        seen.push(`${data.total} ${isReplay ? 'again' : 'first'}`)
      },
    },
  })
  await store.events.append('order-1', [placed(1), placed(2), placed(3)])
  await waitUntil(async () => (await store.deadLetters.stats())[0]?.open === 3)
  isBroken = false

  const asked = await store.deadLetters.retry('mailer', {}, { perSecond: 10 })
  await store.events.append('order-1', placed(9))
  await waitUntil(() => seen.length === 4)
  await processor.shutdown()

  expect(asked).toEqual({ requested: 3, isRunning: true })
  expect(seen.filter(line => line.endsWith('again'))).toEqual(['1 again', '2 again', '3 again'])
  expect(seen).toContain('9 first')
  expect(await store.deadLetters.stats()).toMatchObject([{ open: 0, replayed: 3 }])
})

test('closing the store stops its processors', async () => {
  const { store } = await openShop()
  const { processor, running } = start(store, { handlers: { OrderPlaced: () => {} } })
  await waitUntil(() => processor.state === 'running')

  await store.close()

  expect(await running).toEqual({ value: undefined })
  expect(processor.state).toBe('stopped')
})

test('of two processes with one processor only one works, and the other takes over', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const seen: string[] = []
  const handled = (by: string) => ({
    OrderPlaced: ({ data }: { data: { total: number } }) => void seen.push(`${by} ${data.total}`),
  })
  const first = start(store, { handlers: handled('first') })
  await store.events.append('order-1', placed(1))
  await waitUntil(() => seen.length === 1)
  const second = start(other, { handlers: handled('second') })
  await store.events.append('order-1', placed(2))
  await waitUntil(() => seen.length === 2)

  await first.processor.shutdown()
  await store.events.append('order-1', placed(3))
  await waitUntil(() => seen.length === 3)
  await second.processor.shutdown()

  expect(seen.map(line => line.split(' ')[1])).toEqual(['1', '2', '3'])
  expect(seen[2]).toBe('second 3')
})
