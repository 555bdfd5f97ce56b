import { expect, test } from 'vitest'
import { postgresUrl } from '../support/engines.ts'
import { openShop } from '../support/shop.ts'

test('a page is answered while the application has taken every connection of its pool', async () => {
  const { sibling } = await openShop()
  const store = await sibling({ url: postgresUrl(), maxConnections: 1, applicationName: 'shop' })
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })
  await using server = await store.server({ port: 0, console: true })

  const body = await store.transaction(async tx => {
    const response = await fetch(`${server.url}/api/v1/events`)
    const names = await tx.query(
      `select count(*)::integer as count from pg_stat_activity where application_name = 'shop console'`,
    )
    return { ...((await response.json()) as { items: object[] }), names }
  })

  expect(body.items).toMatchObject([{ type: 'OrderPlaced' }])
  expect(body.names).toEqual([{ count: 1 }])
})
