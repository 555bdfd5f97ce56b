import { expect, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { openShop, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const mailer = defineProcessor('mailer', {
  events: shopEvents,
  on: { OrderShipped: () => undefined },
  retries: 7,
  onFailure: 'skip',
})

test('a consumer is described with its filter, limits and failure policy, where its code is', async () => {
  const { store, sibling } = await openShop({ processors: [mailer] })
  await store.consumers.resume('mailer')
  const other = await sibling()

  const here = await store.consumers.describe('mailer')
  const elsewhere = await other.consumers.describe('mailer')

  expect(here).toMatchObject({ name: 'mailer', kind: 'processor', isRegistered: true, tables: [] })
  expect(here.definition).toMatchObject({ types: ['OrderShipped'], retries: 7, onFailure: 'skip', hasBreaker: false })
  expect(elsewhere).toMatchObject({ name: 'mailer', isRegistered: false, definition: undefined })
})

test('a runner tells its process, and one that is paused runs nothing until it is resumed', async () => {
  const { store } = await openShop({ processors: [mailer] })
  await using runner = await store.start({ name: 'west-1', pollMs: 20 })
  const described = async () => (await store.runners.list()).items[0]!
  await waitUntil(async () => (await described()).holds.includes('mailer'))

  expect((await described()).process).toMatchObject({
    pid: process.pid,
    host: expect.any(String),
    busy: expect.any(Number),
  })
  await store.runners.pause('west-1')
  await waitUntil(async () => (await described()).holds.length === 0)
  expect([(await described()).role, runner.role]).toEqual(['paused', 'paused'])
  await store.runners.resume(runner.id)
  await waitUntil(async () => (await described()).holds.includes('mailer'))
  await expect(store.runners.pause('west-2')).rejects.toThrow('west-1')
})
