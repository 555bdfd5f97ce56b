import { expect, test } from 'vitest'
import { openShop, outcome, paid, placed, shipped } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { several } from './deliveries.ts'

const manual = { ack: 'manual' } as const

test('RB-75: at most maxInFlight events are in flight, counted in events, also with a sparse filter', async () => {
  const { store } = await openShop()
  for (let n = 0; n < 10; n++) await store.events.append(`order-${n}`, [placed(n), paid, paid, shipped()])
  const sparse = { ...manual, types: ['OrderShipped'], maxInFlight: 3 } as const
  const deliveries = store.subscribe('mailer', sparse)[Symbol.asyncIterator]()
  const [one, two, three] = await several(deliveries, 3)
  let fourth: unknown
  const coming = deliveries.next().then(next => {
    fourth = next.value
    return next.value
  })

  // Acknowledged after an open event, it still occupies its place.
  await two!.ack()
  await three!.ack()
  await store.subscriptions.status('mailer')
  const whileFull = fourth
  await one!.ack()

  expect(whileFull).toBeUndefined()
  expect(await coming).toMatchObject({ stream: 'order-3', type: 'OrderShipped' })
  await deliveries.return!()
})

test('the limit of a group is stored, and can be changed while it runs', async () => {
  const { store, sibling } = await openShop()
  const operator = await sibling()
  await store.events.append('order-1', [placed(), paid, shipped()])
  const deliveries = store.subscribe('mailer', { ...manual, maxInFlight: 1 })[Symbol.asyncIterator]()
  await several(deliveries, 1)
  const coming = several(deliveries, 2)

  await operator.subscriptions.setMaxInFlight('mailer', 'default', 3)

  expect((await coming).map(event => event.version)).toEqual([2, 3])
  expect(await store.subscriptions.status('mailer')).toMatchObject({ maxInFlight: 3 })
  await deliveries.return!()
})

test('with a limit of one, automatic acknowledgement still delivers everything', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid, shipped()])
  const seen: number[] = []

  for await (const event of store.subscribe('mailer', { maxInFlight: 1 })) {
    seen.push(event.version)
    if (seen.length === 3) break
  }

  expect(seen).toEqual([1, 2, 3])
})

test('RB-76: the checkpoint moves past filtered events, so that they are not read again and the lag is true', async () => {
  const { store } = await openShop()
  for (let n = 0; n < 5; n++) await store.events.append(`order-${n}`, [placed(n), paid])
  await using _mailer = store.subscribe('mailer', { types: ['OrderShipped'], onEvent: () => {} })

  await waitUntil(async () => (await store.subscriptions.status('mailer')).lag === 0)
  const before = await store.subscriptions.status('mailer')
  const { position } = await store.events.append('order-9', placed())
  await waitUntil(async () => (await store.subscriptions.status('mailer')).lag === 0)

  expect(before).toMatchObject({ checkpoint: position - 1, lagSeconds: 0 })
  expect(await store.subscriptions.status('mailer')).toMatchObject({ checkpoint: position })
})

test('AB-16: filtered events below an event in flight are passed, the event itself is not', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid, paid])
  const { position } = await store.events.append('order-1', shipped())
  await store.events.append('order-1', [paid, paid])
  const deliveries = store.subscribe('mailer', { ...manual, types: ['OrderShipped'] })[Symbol.asyncIterator]()
  const [one] = await several(deliveries, 1)

  await waitUntil(async () => (await store.subscriptions.status('mailer')).checkpoint === position - 1)
  await one!.ack()

  await waitUntil(async () => (await store.subscriptions.status('mailer')).lag === 0)
  await deliveries.return!()
})

test('an invalid limit, group or number is refused immediately', async () => {
  const { store } = await openShop()
  const subscribe = (name: string, options: object) => outcome((async () => store.subscribe(name, options))())

  for (const [option, value] of Object.entries({
    ...{ maxInFlight: 0, partitions: 1.5, leaseMs: 1, drainMs: -1, ack: 'never', startFrom: -1 },
    ...{ partitionBy: 'customer', maxDeliveries: 0, onEvent: 'mail' },
  })) {
    const { error } = await subscribe('mailer', { [option]: value })

    expect(error).toMatchObject({ code: 'invalid_option', option })
  }
  expect((await subscribe('', {})).error).toMatchObject({ code: 'invalid_name' })
  expect((await subscribe('mailer', { group: '' })).error).toMatchObject({ code: 'invalid_name' })
  expect((await subscribe('mailer', { partitions: 4, maxInFlight: 3 })).error).toMatchObject({ option: 'maxInFlight' })
})
