/**
 * Connections that fall silent without a word: no call waits for ever, no handler is blamed for it, and one silent
 * connection is enough to find all of them.
 */
import { expect, onTestFinished, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { openStore, type StoreOptions } from '../../src/store.ts'
import { defineHandler } from '../../src/workflows/handler.ts'
import { startProxy, type TroubleProxy } from '../chaos/tcp-proxy.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { openShop, outcome, placed, type ShopMap, shipped, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const silenceMs = 1_500

/** A store behind a proxy, and one that is connected directly. */
async function givenProxy(more: StoreOptions<ShopMap> = {}) {
  const { schema, store: direct } = await openShop({ schema: freshSchema() })
  const proxy = await startProxy(postgresUrl())
  onTestFinished(() => proxy[Symbol.asyncDispose]())
  const options = { url: proxy.url, schema, pollMs: 50, listen: false, logger: false, events: shopEvents } as const
  const store = await openStore<ShopMap>({ ...options, answerTimeoutMs: silenceMs, ...more })
  onTestFinished(() => store.close())
  return { direct, proxy, store }
}

/** No answer to this statement arrives until the function returned is called; links that are silent stay so. */
function silence(proxy: TroubleProxy, statement: RegExp): () => Promise<void> {
  proxy.loseAnswerTo(statement)
  return async () => {
    await waitUntil(() => proxy.links.some(link => link.carried(statement)), { what: 'the statement' })
    proxy.loseAnswerTo(/never/)
  }
}

test('a connection that goes silent inside a COPY is dropped, and the events are read again', async () => {
  const { direct, proxy, store } = await givenProxy()
  await direct.events.append(
    'order-1',
    Array.from({ length: 300 }, (_, n) => placed(n)),
  )
  const endSilence = silence(proxy, /copy \(/)

  const reading = store.events.readAll().toArray()
  await endSilence()

  expect(await reading).toHaveLength(300)
})

test('a document projection whose COPY goes silent continues under its lease', async () => {
  const totals = defineDocumentProjection('totals', {
    events: shopEvents,
    initial: () => ({ orders: 0 }),
    evolve: { OrderPlaced: state => ({ orders: state.orders + 1 }) },
  })
  const { direct, proxy, store } = await givenProxy({ projections: [totals] })
  // Pages of a consumer come by COPY when it is far behind and its batches have grown.
  await direct.events.import(Array.from({ length: 20_000 }, (_, n) => ({ stream: 'order-1', ...placed(n) })))
  await store.schema.sync()
  const endSilence = silence(proxy, /copy \(/)

  await using _runner = await store.start({ only: ['projections'] })
  await endSilence()
  await store.consumers.waitFor(totals, 20_000, { timeoutMs: 60_000 })

  expect(await store.documents(totals).get('order-1')).toMatchObject({ data: { orders: 20_000 } })
})

test('executions that only emit are never dead letters because connections went silent', async () => {
  const { direct, proxy, store } = await givenProxy({ transactionTimeoutMs: silenceMs, maxConnections: 4 })
  let runs = 0
  await store.register(
    defineHandler('ship', {
      events: shopEvents,
      on: 'OrderPlaced',
      retries: 0,
      run(_, { emit }) {
        // All connections are silent from here on; new ones are not.
        if (++runs === 1) for (const direction of ['up', 'down'] as const) proxy.hold(direction)
        return emit('OrderShipped', shipped().data as { parcel: string })
      },
    }),
  )
  await using _runner = await store.start({ only: ['handlers'] })

  await direct.events.append('order-1', placed())
  await waitUntil(async () => (await direct.events.readAll({ types: ['OrderShipped'] }).toArray()).length > 0)

  expect(await direct.events.readAll({ types: ['OrderShipped'] }).toArray()).toHaveLength(1)
  expect((await direct.deadLetters.list()).items).toEqual([])
})

test('a transaction whose own statement gets no answer has lost its connection; one that idles has timed out', async () => {
  const { proxy, store } = await givenProxy({ transactionTimeoutMs: silenceMs })
  const endSilence = silence(proxy, /transaction\.limits/)

  const silent = outcome(store.transaction(tx => store.events.append('order-1', placed(), { tx })))
  await endSilence()
  const idle = await outcome(store.transaction(() => new Promise(() => {})))
  const slow = await outcome(store.transaction(tx => tx.query('select pg_sleep(60)')))

  expect((await silent).error).toMatchObject({ code: 'connection_lost' })
  expect(idle.error).toMatchObject({ code: 'transaction_timeout' })
  expect(slow.error).toMatchObject({ code: 'transaction_timeout' })
})

test('one silent connection puts the idle ones to the test: a dead pool is found in one time-out', async () => {
  const { proxy, store } = await givenProxy({ maxConnections: 6 })
  const inUse = Array.from({ length: 6 }, () => store.transaction(tx => tx.query('select pg_sleep(0.2)')))
  await Promise.all(inUse)
  const old = [...proxy.links]
  for (const direction of ['up', 'down'] as const) proxy.hold(direction)

  const outcomes = [await outcome(store.events.head())]
  for (let n = 0; n < 8; n++) outcomes.push(await outcome(store.events.head()))

  expect(old).toHaveLength(6)
  expect(outcomes.map(({ error }) => (error as { code?: string } | undefined)?.code)).toEqual([
    'connection_lost',
    ...Array.from({ length: 8 }, () => undefined),
  ])
  await waitUntil(() => !proxy.links.some(link => old.includes(link)), { what: 'the end of all silent connections' })
})
