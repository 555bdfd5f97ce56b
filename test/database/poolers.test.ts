/** A wrong set-up of a connection pooler is recognised, and the error says how to set it up. */
import { expect, onTestFinished, test } from 'vitest'
import { openStore, type StoreOptions } from '../../src/store.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { type PoolerOptions, startPooler } from '../support/pooler.ts'
import { openShop, outcome, placed, type ShopMap, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** A pooler in front of the server, and a schema for stores behind it. */
async function givenPooler(options: PoolerOptions) {
  const { schema, store } = await openShop({ schema: freshSchema() })
  const pooler = await startPooler(postgresUrl(), options)
  onTestFinished(() => pooler[Symbol.asyncDispose]())
  const open = (more: StoreOptions<ShopMap> = {}) =>
    openStore<ShopMap>({ url: pooler.url, schema, channel: schema, logger: false, ...more })
  return { pooler, open, direct: store }
}

test('behind a pooler in transaction mode everything works with prepare: false', async () => {
  const { open } = await givenPooler({ mode: 'transaction' })
  await using store = await open({ prepare: false, listen: false })

  const results = await Promise.all(Array.from({ length: 50 }, (_, n) => store.events.append(`order-${n}`, placed(n))))
  await store.transaction(tx => store.events.append('order-0', placed(), { tx }))

  expect(new Set(results.map(result => result.position)).size).toBe(50)
  expect(await store.events.readAll().toArray()).toHaveLength(51)
})

test('in transaction mode without prepare: false the errors name the option', async () => {
  const { open } = await givenPooler({ mode: 'transaction' })
  await using store = await open({ listen: false })

  const outcomes = await Promise.all(
    Array.from({ length: 40 }, (_, n) =>
      outcome(store.transaction(tx => store.events.append(`order-${n}`, placed(), { tx }))),
    ),
  )

  const errors = outcomes.flatMap(({ error }) =>
    error === undefined ? [] : [error as Error & { cause: { code: string } }],
  )
  expect(errors.length).toBeGreaterThan(0)
  for (const error of errors)
    expect(error).toMatchObject({ code: 'prepared_statement_lost', message: expect.stringContaining('prepare: false') })
  expect(['26000', '42P05']).toEqual(expect.arrayContaining([...new Set(errors.map(error => error.cause.code))]))
})

test("a pooler in statement mode is refused at open with the pooler's own sentence", async () => {
  const { open } = await givenPooler({ mode: 'statement' })

  const { error } = await outcome(open({ prepare: false }))

  expect(error).toMatchObject({
    code: 'pooler_unsupported',
    message: expect.stringContaining('transaction blocks not allowed in statement pooling mode'),
  })
})

test('the listener tests itself once, and the doctor says when wake-ups do not arrive', async () => {
  const { open, direct } = await givenPooler({ mode: 'transaction' })
  const warnings: string[] = []
  const logger = { debug() {}, info() {}, error() {}, warn: (_: object, text: string) => void warnings.push(text) }
  await using deaf = await open({ prepare: false, logger, pollMs: 50 })
  await using quiet = await open({ prepare: false, listen: false })
  const following = new AbortController()
  const tail = outcome(take(deaf.events.tail({ signal: following.signal }), 1))

  const find = async (store: typeof deaf) =>
    (await store.doctor()).findings.find(finding => finding.check === 'server.wake_ups')
  const [behind, polling, connected] = await Promise.all([find(deaf), find(quiet), find(direct)])
  await waitUntil(() => warnings.some(text => text.includes('do not arrive')), { what: 'the warning' })
  following.abort()
  await tail

  expect(behind).toMatchObject({ level: 'warning', fix: expect.stringContaining('listen: false') })
  expect([polling?.level, connected?.level]).toEqual(['ok', 'ok'])
})

test('a full pooler is waited for, and then has an error of its own', async () => {
  const { pooler, open } = await givenPooler({ mode: 'transaction', maxClients: 0 })
  const waiting = open({ prepare: false, listen: false })
  await waitUntil(() => pooler.refused > 1, { what: 'a second attempt' })
  pooler.maxClients = 10
  await using store = await waiting
  pooler.maxClients = 0

  const { error } = await outcome(open({ prepare: false, listen: false, connectTimeoutMs: 200 }))

  expect(store.engine).toBe('postgres')
  expect(error).toMatchObject({ code: 'server_full', retryable: true })
})

test('a database that the pooler does not know is missing, not unreachable', async () => {
  const { pooler } = await givenPooler({ mode: 'transaction' })
  const url = new URL(pooler.url)
  url.pathname = '/no-such-shop'

  const { error } = await outcome(openStore({ url: url.href }))

  expect(error).toMatchObject({ code: 'database_missing', database: 'no-such-shop' })
})

test('prepared statements that were removed on the server are named', async () => {
  const { sibling } = await openShop()
  const store = await sibling({ maxConnections: 1 })
  await store.events.append('order-1', placed())
  await store.transaction(tx => tx.query('deallocate all'))

  const { error } = await outcome(store.transaction(tx => store.events.append('order-1', placed(), { tx })))

  expect(error).toMatchObject({ code: 'prepared_statement_lost', message: expect.stringContaining('DEALLOCATE') })
})
