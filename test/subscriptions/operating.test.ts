import { expect, test } from 'vitest'
import { openShop, outcome, paid, placed, shipped, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { groupStatus, several } from './deliveries.ts'

const manual = { ack: 'manual' } as const

test('a paused group delivers nothing, accepts acknowledgements of events in flight, and continues when it is resumed', async () => {
  const { store, sibling } = await openShop()
  const operator = await sibling()
  const { position } = await store.events.append('order-1', [placed(), paid])
  const deliveries = store.subscribe('mailer', { ...manual, drainMs: 60_000 })[Symbol.asyncIterator]()
  const [one] = await several(deliveries, 1)
  let next: unknown

  await operator.consumers.pause('mailer')
  await one!.ack()
  const coming = several(deliveries, 1).then(([delivery]) => {
    next = delivery
    return delivery!
  })
  await waitUntil(async () => (await groupStatus(operator, 'mailer')).partitions[0]!.owner === undefined)
  const whilePaused = next
  const paused = await operator.consumers.status('mailer')
  await operator.consumers.resume('mailer')
  const two = await coming
  await two.ack()

  expect(whilePaused).toBeUndefined()
  expect(paused).toMatchObject({ isPaused: true, checkpoint: position - 1 })
  expect(await operator.consumers.status('mailer')).toMatchObject({ isPaused: false, lag: 0 })
  await deliveries.return!()
})

test('a reset wins over running deliveries: it restarts at the position, and late acknowledgements are refused', async () => {
  const { store, sibling } = await openShop()
  const operator = await sibling()
  await store.events.append('order-1', [placed(), paid, shipped()])
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [one, two, three] = await several(deliveries, 3)
  await one!.ack()
  await three!.ack()

  await operator.consumers.reset('mailer', 0)
  const late = await outcome(two!.ack())
  const again = await several(deliveries, 3)

  expect(late.error).toMatchObject({ code: 'lease_lost' })
  expect(again.map(event => event.version)).toEqual([1, 2, 3])
  await deliveries.return!()
})

test('a reset forwards skips the events between; one beyond the head is refused', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-1', [placed(), paid, shipped()])
  await store.subscriptions.create('mailer')

  await store.consumers.reset('mailer', position - 1)
  const { error } = await outcome(store.consumers.reset('mailer', position + 1))

  expect((await take(store.subscribe('mailer'), 1))[0]).toMatchObject({ version: 3 })
  expect(error).toMatchObject({ code: 'invalid_option', option: 'position' })
})

test('a checkpoint beyond the head of the log ends a subscription with an error that says so', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', placed())
  await store.subscriptions.create('mailer')
  await query('update ~consumers set checkpoint = 1000')

  const { error } = await outcome(take(store.subscribe('mailer'), 1))

  expect(error).toMatchObject({ code: 'checkpoint_beyond_head', consumer: 'mailer/default', checkpoint: 1000 })
})

test('a filter is stored; another one is refused unless replacing is requested', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid, shipped()])
  await take(store.subscribe('mailer', { types: ['OrderPaid', 'OrderPlaced'] }), 2)

  const same = await take(store.subscribe('mailer', { types: ['OrderPlaced', 'OrderPaid'] }), 1)
  const other = await outcome(take(store.subscribe('mailer', { types: ['OrderShipped'] }), 1))
  const otherGroup = await outcome(store.subscriptions.create('mailer', { group: 'b' }))
  const replaced = await take(store.subscribe('mailer', { types: ['OrderShipped'], replace: true }), 1)

  expect(same[0]).toMatchObject({ version: 2 })
  expect(other.error).toMatchObject({ code: 'subscription_mismatch', what: 'filter' })
  expect(otherGroup.error).toMatchObject({ code: 'subscription_mismatch' })
  expect(replaced[0]).toMatchObject({ type: 'OrderShipped' })
  expect((await store.subscriptions.groups('mailer')).items).toMatchObject([
    { subscription: 'mailer', filter: { types: ['OrderShipped'] }, group: 'default' },
  ])
})

test('the status of a subscription names each group with its lag', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid, shipped()])
  await store.subscriptions.create('mailer', { group: 'late' })
  const deliveries = store.subscribe('mailer', { ...manual, group: 'busy' })[Symbol.asyncIterator]()
  for (const delivery of await several(deliveries, 3)) await delivery.ack()

  const groups = (await store.subscriptions.groups('mailer')).items

  expect(groups).toMatchObject([
    { group: 'busy', lag: 0, lagSeconds: 0, maxInFlight: 1024, partitions: [{ consumer: 'mailer/busy' }] },
    { group: 'late', lag: 3, checkpoint: 0, partitions: [{ owner: undefined }] },
  ])
  expect(JSON.parse(JSON.stringify(groups))).toMatchObject([{ lag: 0 }, { lag: 3 }])
  const { items, next } = await store.subscriptions.groups('mailer', { limit: 1 })
  expect(items).toMatchObject([{ group: 'busy' }])
  expect(await store.subscriptions.groups('mailer', { after: next })).toMatchObject({ items: [{ group: 'late' }] })
  await deliveries.return!()
})

test('a deleted group is gone, and its running consumers get an error', async () => {
  const { store, query } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [, two] = await several(deliveries, 2)
  await two!.ack()

  await store.consumers.remove('mailer')
  const { error } = await outcome(deliveries.next())

  expect(error).toMatchObject({ code: 'consumer_not_found', consumer: 'mailer' })
  expect((await store.consumers.list()).items).toEqual([])
  expect(await query('select consumer from ~deliveries union all select name from ~consumers')).toEqual([])
})

test('an unknown name is refused with the nearest one', async () => {
  const { store } = await openShop()
  await store.subscriptions.create('mailer', { group: 'workers' })

  const name = await outcome(store.consumers.pause('mailre'))
  const group = await outcome(store.consumers.status('mailer', { group: 'worker' }))
  const limit = await outcome(store.subscriptions.setMaxInFlight('mailer', 0, { group: 'workers' }))

  expect(name.error).toMatchObject({ code: 'consumer_not_found', nearest: 'mailer' })
  expect(group.error).toMatchObject({ code: 'consumer_not_found', group: 'worker', nearest: 'workers' })
  expect(limit.error).toMatchObject({ code: 'invalid_option', option: 'maxInFlight' })
})

test('the name of another kind of consumer is refused', async () => {
  const { store, query } = await openShop()
  await query(`insert into ~consumers (name, kind, checkpoint) values ('mailer/default', 'projection', 0)`)

  const { error } = await outcome(store.subscriptions.create('mailer'))

  expect(error).toMatchObject({ code: 'duplicate_consumer', consumer: 'mailer/default' })
})
