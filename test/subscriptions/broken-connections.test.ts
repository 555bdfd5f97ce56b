import { expect, test } from 'vitest'
import { postgresUrl } from '../support/engines.ts'
import { connect, onServer, openShop, paid, placed, shipped } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { several } from './deliveries.ts'

if (onServer) {
  test('RB-77: a subscription survives broken connections, and misses nothing', async () => {
    const { store, schema, sibling } = await openShop()
    const killer = await connect()
    const working = await sibling({ url: `${postgresUrl()}?application_name=${schema}`, pollMs: 50 })
    const seen = new Set<number>()
    await using worker = working.subscribe('mailer', { onEvent: event => void seen.add(event.version) })
    let failure: unknown
    worker.ended.catch(error => {
      failure = error
    })

    for (let n = 0; n < 5; n++) {
      await store.events.append('order-1', [placed(n), paid, shipped()])
      await killer.query('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', [schema])
    }
    await store.events.append('order-1', placed())
    await waitUntil(async () => failure !== undefined || (await store.subscriptions.status('mailer')).lag === 0)

    expect(failure).toBeUndefined()
    expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: 16 }, (_, n) => n + 1))
  })

  test('acknowledgements wait only for a lock on the row of the consumer', async () => {
    const { store, named } = await openShop()
    const client = await connect()
    const { position } = await store.events.append('order-1', [placed(), paid])
    const deliveries = store.subscribe('mailer', { ack: 'manual' })[Symbol.asyncIterator]()
    const [one, two] = await several(deliveries, 2)
    await client.query('begin')
    await client.query(named('select 1 from ~consumers for share'))

    const acking = Promise.all([one!.ack(), two!.ack()])
    const held = await store.subscriptions.status('mailer')
    await client.query('rollback')
    await acking

    expect(held.checkpoint).toBe(0)
    expect(await store.subscriptions.status('mailer')).toMatchObject({ checkpoint: position })
    await deliveries.return!()
  })
}

test('works with one connection', async () => {
  const { store, sibling } = await openShop()
  const narrow = await sibling(onServer ? { maxConnections: 1 } : {})
  await store.events.append('order-1', [placed(), paid, shipped()])
  const seen: number[] = []

  await using _worker = narrow.subscribe('mailer', {
    ack: 'manual',
    async onEvent(event) {
      seen.push(event.version)
      await narrow.transaction(tx => event.ack(tx))
    },
  })
  await waitUntil(async () => (await store.subscriptions.status('mailer')).lag === 0)

  expect(seen).toEqual([1, 2, 3])
})
