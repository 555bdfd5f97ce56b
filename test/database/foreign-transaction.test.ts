/** The option `tx`, given something that is not a transaction: a write of several statements could be stored in part. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { Order } from '../aggregates/orders.ts'
import { ada, type Customer } from '../documents/customers.ts'
import { postgresUrl } from '../support/engines.ts'
import { connect, onServer, openShop, outcome, placed, type Shop } from '../support/shop.ts'

async function everyWrite({ store }: Shop, tx: pg.Pool | pg.Client): Promise<unknown[]> {
  const session = store.session()
  session.events.append('order-3', placed())
  const outcomes = await Promise.all([
    outcome(store.events.append('order-1', placed(), { tx })),
    outcome(store.documents<Customer>('customers').put('c-1', ada, { tx })),
    outcome(store.aggregates(Order).handle('order-2', { type: 'Place', total: 1 }, { tx })),
    outcome(session.save({ tx })),
    outcome(store.workflows.publish('OrderPlaced', { total: 1 }, { tx })),
  ])
  return outcomes.map(({ error }) => error)
}

test.runIf(onServer)('a pool is refused as a transaction, with the way to do it right', async () => {
  const shop = await openShop()
  const pool = new pg.Pool({ connectionString: postgresUrl() })
  onTestFinished(() => pool.end())

  const errors = await everyWrite(shop, pool)

  for (const error of errors)
    expect(error).toMatchObject({
      code: 'not_in_transaction',
      given: 'pool',
      message: expect.stringContaining("'begin'"),
    })
  expect(await shop.store.events.head()).toBe(0)
})

test.runIf(onServer)(
  'a client that has not begun is refused as a transaction, with the way to do it right',
  async () => {
    const shop = await openShop()
    const client = await connect()

    const errors = await everyWrite(shop, client)
    await client.query('begin')
    await shop.store.events.append('order-1', placed(), { tx: client })
    await client.query('commit')
    const late = await outcome(shop.store.events.append('order-1', placed(), { tx: client }))

    for (const error of [...errors, late.error])
      expect(error).toMatchObject({
        ...{ code: 'not_in_transaction', given: 'connection' },
        message: expect.stringContaining('store.transaction'),
      })
    expect(await shop.store.events.head()).toBe(1)
  },
)
