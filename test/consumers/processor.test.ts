import { expect, onTestFinished, test } from 'vitest'
import { defineProcessor, type Processor } from '../../src/consumers/processor.ts'
import type { ConsumerStatus } from '../../src/consumers/status.ts'
import { deferred } from '../../src/core/abort.ts'
import type { Store } from '../../src/store.ts'
import { drawTo } from '../support/numbers.ts'
import {
  shopEvents as events,
  openShop,
  outcome,
  paid,
  placed,
  type Shop,
  type ShopMap,
  shipped,
} from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

interface Running {
  /** What `run` came to. */
  readonly running: ReturnType<typeof outcome<void>>
  status(): Promise<ConsumerStatus>
  stop(): Promise<void>
}

/** Registers a processor and runs it until the test is over. */
async function start(store: Store<ShopMap>, processor: Processor<ShopMap>): Promise<Running> {
  await store.register(processor)
  return run(store, processor)
}

function run(store: Store<ShopMap>, processor: Processor<ShopMap>): Running {
  const stopping = new AbortController()
  const running = outcome(store.consumers.run(processor, { signal: stopping.signal }))
  const stop = async (): Promise<void> => {
    stopping.abort()
    await running
  }
  onTestFinished(stop)
  return { running, stop, status: () => store.consumers.status(processor) }
}

async function caughtUp({ status }: Running, store: Store<ShopMap>): Promise<void> {
  const head = await store.events.head()
  await waitUntil(async () => (await status()).checkpoint === head, {
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

  const processor = await start(
    store,
    defineProcessor('mailer', {
      events,
      on: {
        OrderPlaced: [
          event => void seen.push(`reserve ${event.data.total}`),
          async event => void seen.push(`greet ${event.stream}`),
        ],
        OrderPaid: event => void seen.push(`book ${event.data.method}`),
      },
    }),
  )
  await waitUntil(() => seen.length === 2)
  await store.events.append('order-1', paid)
  await waitUntil(() => seen.length === 3)
  await processor.stop()

  expect(seen).toEqual(['reserve 1', 'greet order-1', 'book card'])
  expect(await processor.running).toEqual({ value: undefined })
})

test('a batch handler gets consecutive events of one type together, in the order of the log', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(1), placed(2), paid, placed(3)])
  const seen: unknown[] = []

  const processor = defineProcessor('mailer', {
    events,
    batch: { OrderPlaced: events => void seen.push(events.map(event => event.data.total)) },
    on: { OrderPaid: () => void seen.push('paid') },
  })
  await store.register(processor)
  const result = await store.consumers.runOnce(processor)

  expect(result).toEqual({ result: 'processed', count: 4 })
  expect(seen).toEqual([[1, 2], 'paid', [3]])
})

test('before the first batch there is no progress; afterwards checkpoint and lag follow the log', async () => {
  const { store } = await openShop()
  const processor = defineProcessor('mailer', { events, on: { OrderPlaced: () => {} }, batchSize: 2 })
  await store.register(processor)
  const { status, runOnce } = store.consumers
  const before = await status(processor)
  const { position } = await store.events.append('order-1', [placed(), placed(), placed()])

  const { lag: lagBefore } = await status(processor)
  const first = await runOnce(processor)
  const { lag: lagBetween } = await status(processor)
  await runOnce(processor)
  const idle = await runOnce(processor)

  const after = await status(processor)
  expect(before).toMatchObject({ checkpoint: 0, progressedAt: undefined, isRegistered: true })
  expect([lagBefore, lagBetween, after.lag]).toEqual([position, 1, 0])
  expect([first, idle]).toEqual([
    { result: 'processed', count: 2 },
    { result: 'idle', count: 0 },
  ])
  expect(after.checkpoint).toBe(position)
})

test('by default the last failure stops it, run rejects with the error, and the same event comes first next time', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(1), placed(2), placed(3)])
  const seen: number[] = []
  let isBroken = true
  const on = {
    OrderPlaced: ({ data }: { data: { total: number } }) => {
      if (isBroken && data.total === 2) throw new Error('declined')
      seen.push(data.total)
    },
  }

  const mailer = defineProcessor('mailer', { events, on, retries: 1, backoff: { baseMs: 1 } })
  const processor = await start(store, mailer)
  const { error } = await processor.running
  const { checkpoint, isPaused } = await processor.status()
  isBroken = false
  seen.length = 0
  const again = run(store, mailer)
  await waitUntil(() => seen.length === 2)
  await again.stop()

  expect(error).toMatchObject({ message: 'declined' })
  expect([checkpoint, isPaused]).toEqual([1, false])
  expect(seen).toEqual([2, 3])
  expect(await again.running).toEqual({ value: undefined })
})

test("AB-01: an event is tried as often as the policy allows, then the policy's end applies", async () => {
  for (const end of ['stop', 'skip', 'deadLetter'] as const) {
    const { store } = await openShop()
    await store.events.append('order-1', [placed(1), placed(2)])
    const tries: number[] = []
    const done: number[] = []

    const processor = await start(
      store,
      defineProcessor('mailer', {
        events,
        retries: 2,
        backoff: { baseMs: 1 },
        onFailure: end,
        on: {
          OrderPlaced({ data }, { attempt }) {
            if (data.total === 2) return void done.push(2)
            tries.push(attempt)
            throw new Error('declined')
          },
        },
      }),
    )
    await (end === 'stop' ? processor.running : waitUntil(() => done.length > 0))
    await processor.stop()

    expect([...new Set(tries)]).toEqual([1, 2, 3])
    expect(done).toEqual(end === 'stop' ? [] : [2])
    expect((await processor.running).error).toEqual(
      end === 'stop' ? expect.objectContaining({ message: 'declined' }) : undefined,
    )
    expect((await store.deadLetters.list()).items).toHaveLength(end === 'deadLetter' ? 1 : 0)
  }
})

test('AB-02: after a restart it continues where it was', async () => {
  const { store, sibling } = await openShop()
  const seen: number[] = []
  const on = { OrderPlaced: ({ data }: { data: { total: number } }) => void seen.push(data.total) }
  await store.events.append('order-1', [placed(1), placed(2)])
  const first = await start(store, defineProcessor('mailer', { events, on }))
  await caughtUp(first, store)
  await first.stop()
  await store.close()

  const other = await sibling()
  await other.events.append('order-1', placed(3))
  const second = await start(other, defineProcessor('mailer', { events, on }))
  await caughtUp(second, other)
  await second.stop()

  expect(seen).toEqual([1, 2, 3])
})

test('AB-03: writes of a failing event are undone, writes of the events before it are kept with the checkpoint', async () => {
  const { store, named, mails } = await shopWithMails()
  await store.events.append('order-1', [placed(1), placed(2), placed(3)])

  const processor = await start(
    store,
    defineProcessor('mailer', {
      events,
      on: {
        async OrderPlaced({ data }, { tx }) {
          await tx.query(named('insert into ~mails (body) values ($1)'), [`order of ${data.total}`])
          if (data.total === 2) await tx.query('select 1 / 0')
        },
      },
    }),
  )
  const { error } = await processor.running

  expect(error).toMatchObject({ code: '22012' })
  expect(await mails()).toEqual(['order of 1'])
  expect((await processor.status()).checkpoint).toBe(1)
})

test('AB-04: thousands of bad events are processed without waits in between', async () => {
  const { store } = await openShop()
  const many = 2_000
  await store.events.import(Array.from({ length: many }, (_, n) => ({ stream: `order-${n % 50}`, ...placed(n) })))
  await store.events.append('order-1', paid)
  let failed = 0
  let isPaid = false

  const processor = await start(
    store,
    defineProcessor('mailer', {
      events,
      retries: 0,
      onFailure: 'skip',
      on: {
        OrderPlaced() {
          failed++
          throw new Error('declined')
        },
        OrderPaid() {
          isPaid = true
        },
      },
    }),
  )
  await waitUntil(() => isPaid, { what: 'the good event behind the bad ones', deadlineMs: 100_000 })
  await caughtUp(processor, store)

  expect(failed).toBeGreaterThanOrEqual(many)
  expect((await processor.status()).lag).toBe(0)
}, 120_000)

test('AB-05: gaps between positions are crossed, however wide, and a gap at the end leaves no lag', async () => {
  const { store, query } = await openShop()
  const seen: number[] = []
  await store.events.append('order-1', placed(1))
  await drawTo(query, 'events_position', 5000)
  await store.events.append('order-1', placed(2))
  await outcome(
    store.transaction(async tx => {
      await store.events.append('order-1', [placed(3), placed(4), placed(5)], { tx })
      throw new Error('declined')
    }),
  )

  const processor = await start(
    store,
    defineProcessor('mailer', { events, batchSize: 1, on: { OrderPlaced: ({ data }) => void seen.push(data.total) } }),
  )
  await waitUntil(async () => (await processor.status()).lag === 0)

  expect(seen).toEqual([1, 2])
  expect((await processor.status()).checkpoint).toBe(await store.events.head())
})

test('AB-06: no append is missed with a poll of a minute, and stopping is prompt', async () => {
  const { store } = await openShop()
  const seen: number[] = []
  const processor = await start(
    store,
    defineProcessor('mailer', { events, on: { OrderPlaced: ({ data }) => void seen.push(data.total) } }),
  )

  for (let n = 1; n <= 50; n++) {
    await store.events.append('order-1', placed(n))
    if (n % 3 === 0) await waitUntil(() => seen.length === n)
  }
  await waitUntil(() => seen.length === 50)
  await processor.stop()
  await processor.stop()

  expect(await processor.running).toEqual({ value: undefined })
})

test('a run ends with its signal, after the running batch', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())
  const abort = new AbortController()
  const [begun, go] = [deferred<void>(), deferred<void>()]
  const processor = defineProcessor('mailer', {
    events,
    on: {
      async OrderPlaced() {
        begun.resolve()
        await go.promise
      },
    },
  })

  await store.register(processor)
  const running = store.consumers.run(processor, { signal: abort.signal })
  await begun.promise
  abort.abort()
  go.resolve()
  await running

  expect((await store.consumers.status(processor)).checkpoint).toBe(1)
})

test('AB-07: events of types without a handler are skipped, unless they are configured to fail', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-1', [paid, placed(), paid])
  const on = { OrderPlaced: () => {} }

  const lenient = defineProcessor('lenient', { events, on })
  const strict = defineProcessor('strict', { events, on, unknown: 'fail', retries: 0 })
  const skipping = defineProcessor('skipping', { events, on, unknown: 'fail', retries: 0, onFailure: 'skip' })
  await store.register(lenient, strict, skipping)
  const { runOnce, status } = store.consumers
  const first = await runOnce(lenient)
  const refused = await runOnce(strict)
  for (let n = 0; n < 4; n++) await runOnce(skipping)

  expect(first).toEqual({ result: 'processed', count: 1 })
  expect(refused).toMatchObject({
    result: 'stopped',
    error: { code: 'event_type_unhandled', consumer: 'strict', type: 'OrderPaid' },
  })
  expect((await status(skipping)).checkpoint).toBe(position)
})

test('AB-08: invalid definitions are refused when they are made', async () => {
  const on = { OrderPlaced: () => {} }
  const refused: [string, object][] = [
    ['batchSize', { on, batchSize: 0 }],
    ['leaseMs', { on, leaseMs: 1 }],
    ['from', { on, from: 'yesterday' }],
    ['onFailure', { on, onFailure: 'retryForever' }],
    ['onFailure', { on, onFailure: 'halt' }],
    ['breaker.failures', { on, breaker: { failures: 0 } }],
    ['on', {}],
    ['on', { on: {} }],
    ['on.OrderPlaced', { on: { OrderPlaced: 'send' } }],
    ['on.OrderPlaced', { on: { OrderPlaced: [] } }],
    ['batch', { on, batch: on }],
    ['unknown', { on, unknown: 'explode' }],
    ['handlers', { handlers: on }],
  ]

  for (const [option, definition] of refused)
    expect(() => defineProcessor('mailer', definition)).toThrow(
      expect.objectContaining({ code: 'invalid_option', option }),
    )
  expect(() => defineProcessor('', { on })).toThrow(expect.objectContaining({ code: 'invalid_name' }))
})

test('a position beyond the head of the log is refused as a beginning', async () => {
  const { store } = await openShop()
  const processor = defineProcessor('mailer', { events, on: { OrderPlaced: () => {} }, from: 8 })
  await store.events.append('order-1', placed())

  await expect(store.register(processor)).rejects.toMatchObject({ code: 'invalid_option', option: 'from' })
  await expect(store.consumers.runOnce(processor)).rejects.toMatchObject({ code: 'invalid_option', option: 'from' })
  await expect(store.consumers.reset(processor, 8)).rejects.toMatchObject({ code: 'invalid_option' })
})

test('a store has a processor of one name once', async () => {
  const { store } = await openShop()
  const processor = defineProcessor('mailer', { events, on: { OrderPlaced: () => {} } })
  await store.register(processor)

  await expect(store.register(processor)).rejects.toMatchObject({ code: 'duplicate_consumer', consumer: 'mailer' })
})

test('a dead letter that cannot be written stops it, and the checkpoint stays before the event', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', [placed(1), placed(2)])
  await query('alter table ~dead_letters add constraint full_up check (attempts < 0)')

  const processor = await start(
    store,
    defineProcessor('mailer', {
      events,
      retries: 0,
      onFailure: 'deadLetter',
      on: {
        OrderPlaced({ data }) {
          if (data.total === 2) throw new Error('declined')
        },
      },
    }),
  )
  const { error } = await processor.running
  await query('alter table ~dead_letters drop constraint full_up')

  expect(error).toMatchObject({ code: 'dead_letter_unwritable', consumer: 'mailer' })
  expect((await processor.status()).checkpoint).toBe(1)
})

test('consecutive bad events are dead-lettered one by one, good ones between them are applied once, until one stops it', async () => {
  const { store, named, mails } = await shopWithMails()
  await store.events.append('order-1', [placed(1), placed(2), placed(3), placed(4), paid, shipped(), placed(6)])

  const processor = await start(
    store,
    defineProcessor('mailer', {
      events,
      retries: 0,
      onFailure: 'deadLetter',
      byType: { OrderShipped: { onFailure: 'stop' } },
      on: {
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
    }),
  )
  const { error } = await processor.running

  expect(error).toMatchObject({ message: 'lost' })
  expect(await mails()).toEqual(['order of 2', 'order of 4', 'paid'])
  expect((await processor.status()).checkpoint).toBe(5)
  const deadLetters = (await store.deadLetters.list()).items
  expect(deadLetters.map(deadLetter => [deadLetter.position, deadLetter.lastError.message])).toEqual([
    [1, 'declined'],
    [3, 'division by zero'],
  ])
})

test('requested retries of dead letters are carried out while it runs, at their rate, and the log is followed meanwhile', async () => {
  const { store } = await openShop()
  const seen: string[] = []
  let isBroken = true
  const processor = await start(
    store,
    defineProcessor('mailer', {
      events,
      retries: 0,
      onFailure: 'deadLetter',
      on: {
        OrderPlaced({ data }, { isReplay }) {
          if (isBroken && data.total < 9) throw new Error('declined')
          seen.push(`${data.total} ${isReplay ? 'again' : 'first'}`)
        },
      },
    }),
  )
  await store.events.append('order-1', [placed(1), placed(2), placed(3)])
  await waitUntil(async () => (await store.deadLetters.stats()).items[0]?.open === 3)
  isBroken = false

  const asked = await store.deadLetters.retryAll({ of: 'mailer' }, { perSecond: 10 })
  await store.events.append('order-1', placed(9))
  await waitUntil(() => seen.length === 4)
  await processor.stop()

  expect(asked).toEqual({ requested: 3, isRunning: true })
  expect(seen.filter(line => line.endsWith('again'))).toEqual(['1 again', '2 again', '3 again'])
  expect(seen).toContain('9 first')
  expect((await store.deadLetters.stats()).items).toMatchObject([{ open: 0, replayed: 3 }])
})

test('a processor whose store is closed while it starts ends without an error', async () => {
  const { store } = await openShop()
  const processor = await start(store, defineProcessor('mailer', { events, on: { OrderPlaced: () => {} } }))
  await waitUntil(async () => (await store.runners.list()).items.length === 1)

  await store.close()

  expect(await processor.running).toEqual({ value: undefined })
})

test('closing the store stops its processors', async () => {
  const { store } = await openShop()
  const processor = await start(store, defineProcessor('mailer', { events, on: { OrderPlaced: () => {} } }))
  await waitUntil(async () => (await processor.status()).lease !== undefined)

  await store.close()

  expect(await processor.running).toEqual({ value: undefined })
})

test('of two processes with one processor only one works, and the other takes over', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()
  const seen: string[] = []
  const handled = (by: string) => ({
    OrderPlaced: ({ data }: { data: { total: number } }) => void seen.push(`${by} ${data.total}`),
  })
  const first = await start(store, defineProcessor('mailer', { events, on: handled('first') }))
  await store.events.append('order-1', placed(1))
  await waitUntil(() => seen.length === 1)
  const second = await start(other, defineProcessor('mailer', { events, on: handled('second') }))
  await store.events.append('order-1', placed(2))
  await waitUntil(() => seen.length === 2)

  await first.stop()
  await store.events.append('order-1', placed(3))
  await waitUntil(() => seen.length === 3)
  await second.stop()

  expect(seen.map(line => line.split(' ')[1])).toEqual(['1', '2', '3'])
  expect(seen[2]).toBe('second 3')
})
