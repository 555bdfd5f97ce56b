/** Where consumers begin that are new: 'now' is when an application first opened a store with the definition. */
import { expect, test } from 'vitest'
import { defineProcessor } from '../../src/consumers/processor.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { openShop, outcome, placed } from '../support/shop.ts'

test("a processor that begins 'now' gets what is appended after the store was opened, whenever it is run", async () => {
  const seen: number[] = []
  const audit = defineProcessor('audit', {
    from: 'now',
    on: { OrderPlaced: event => void seen.push((event.data as { total: number }).total) },
  })
  const { store, sibling } = await openShop()
  await store.events.append('order-1', placed(1))
  const opened = await sibling({ processors: [audit] })
  await store.events.append('order-1', placed(2))
  await opened.close()

  const later = await sibling({ processors: [audit] })
  await later.consumers.runUntilIdle(audit)

  expect(seen).toEqual([2])
})

test("a subscription that begins 'now' gets what is appended after the store was opened, whenever it is run", async () => {
  const seen: number[] = []
  const mailer = defineSubscription('mailer', { from: 'now', run: event => void seen.push(event.version) })
  const { store, sibling } = await openShop()
  await store.events.append('order-1', placed(1))
  const opened = await sibling({ subscriptions: [mailer] })
  await store.events.append('order-1', placed(2))

  await opened.consumers.runUntilIdle(mailer)

  expect(seen).toEqual([2])
})

test('a definition that begins after a position beyond the end of the log is refused when the store is opened', async () => {
  const audit = defineProcessor('audit', { from: 99, on: { OrderPlaced: () => {} } })
  const { sibling } = await openShop()

  const { error } = await outcome(sibling({ processors: [audit] }))

  expect(error).toMatchObject({ code: 'invalid_option', option: 'from' })
})

test("a definition that is refused keeps no other from beginning 'now'", async () => {
  const seen: number[] = []
  const audit = defineProcessor('audit', { from: 99, on: { OrderPlaced: () => {} } })
  const late = defineProcessor('late', {
    from: 'now',
    on: { OrderPlaced: event => void seen.push((event.data as { total: number }).total) },
  })
  const mailed: number[] = []
  const mailer = defineSubscription('mailer', { from: 'now', run: event => void mailed.push(event.version) })
  const { store } = await openShop()
  await store.events.append('order-1', placed(1))

  const { error } = await outcome(store.register(audit, late, mailer))
  await store.events.append('order-1', placed(2))
  for (const each of [late, mailer]) await store.consumers.runUntilIdle(each)

  expect(error).toMatchObject({ code: 'invalid_option', option: 'from' })
  expect([seen, mailed]).toEqual([[2], [2]])
})
