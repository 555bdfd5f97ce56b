import { expect, test } from 'vitest'
import { connect, onServer, openShop, outcome, paid, placed, shipped, take } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { groupStatus, quick, several } from './deliveries.ts'

const manual = { ack: 'manual' } as const

test('RB-73: an event that was delivered and not processed is delivered again, however its consumer ended', async () => {
  const { store, sibling } = await openShop()
  const crashing = await sibling()
  await store.events.append('order-1', [placed(), paid, shipped()])

  const [first] = await take(crashing.subscribe('mailer'), 1)
  const again = await take(store.subscribe('mailer'), 1)

  expect(again[0]!.id).toBe(first!.id)
})

test('acknowledgements in any order move the checkpoint only over acknowledged events without a gap', async () => {
  const { store, query } = await openShop()
  const { position } = await store.events.append('order-1', [placed(), paid, shipped()])
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [one, two, three] = await several(deliveries, 3)

  await three!.ack()
  await two!.ack()
  const before = await groupStatus(store, 'mailer')
  await one!.ack()
  const after = await groupStatus(store, 'mailer')

  expect(before).toMatchObject({ checkpoint: position - 3, partitions: [{ acked: 2 }] })
  expect(after).toMatchObject({ checkpoint: position, lag: 0, partitions: [{ acked: 0 }] })
  expect(await query('select * from ~deliveries')).toEqual([])
  await deliveries.return!()
})

test('events acknowledged out of order are not delivered again to the next consumer', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid, shipped()])
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [, two] = await several(deliveries, 3)

  await two!.ack()
  await deliveries.return!()
  const rest = await take(store.subscribe('mailer', manual), 2)

  expect(rest.map(event => event.version)).toEqual([1, 3])
})

test('RB-74: an acknowledgement of a consumer that lost its lease is refused, and the checkpoint does not move back', async () => {
  const { store, query } = await openShop()
  const { position } = await store.events.append('order-1', [placed(), paid])
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [one, two] = await several(deliveries, 2)
  await two!.ack()
  await query(`update ~consumers set fence = fence + 1000, checkpoint = $1`, [position])

  const { error } = await outcome(one!.ack())
  const [row] = await query<{ checkpoint: number }>('select checkpoint from ~consumers')

  expect(error).toMatchObject({ code: 'lease_lost', consumer: 'mailer/default' })
  expect(row!.checkpoint).toBe(position)
  await deliveries.return!()
})

test('an acknowledgement counts once; a second one changes nothing, and a nack after it is refused', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', [placed(), paid])
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [one, two] = await several(deliveries, 2)

  await Promise.all([one!.ack(), one!.ack()])
  await one!.ack()
  const late = await outcome(one!.nack())
  await two!.nack({ delayMs: 60_000 })
  const other = await outcome(two!.ack())

  expect(late.error).toMatchObject({ code: 'already_settled', as: 'acknowledged' })
  expect(other.error).toMatchObject({ code: 'already_settled', as: 'given back' })
  await deliveries.return!()
})

test('an acknowledgement and the effects of its transaction are stored together, or neither is', async () => {
  const { store, query, named } = await openShop()
  await query('create table ~mails (version bigint)')
  await store.events.append('order-1', [placed(), paid])
  const seen: number[] = []

  for await (const event of store.subscribe('mailer', { ...manual, ...quick })) {
    seen.push(event.version)
    const isFirst = seen.length === 1
    await outcome(
      store.transaction(async tx => {
        await tx.query(named('insert into ~mails values ($1)'), [event.version])
        await event.ack(tx)
        if (isFirst) throw new Error('rolled back')
      }),
    )
    if (seen.length === 3) break
  }

  expect(seen.toSorted()).toEqual([1, 1, 2])
  expect(await query('select version from ~mails order by 1')).toEqual([{ version: 1 }, { version: 2 }])
  await waitUntil(async () => (await groupStatus(store, 'mailer')).partitions[0]!.givenBack === 0)
})

test('an acknowledgement inside an open transaction of the store needs that transaction', async () => {
  const { store } = await openShop()
  await store.events.append('order-1', placed())
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [one] = await several(deliveries, 1)

  const { error } = await outcome(store.transaction(() => one!.ack()))

  expect(error).toMatchObject({ code: 'inside_transaction' })
  await one!.ack()
  await deliveries.return!()
})

test('a lost lease rolls back the transaction of a late acknowledgement', async () => {
  const { store, query, named } = await openShop()
  await query('create table ~mails (version bigint)')
  await store.events.append('order-1', placed())
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const [one] = await several(deliveries, 1)
  await query(`update ~consumers set fence = fence + 1000`)

  const { error } = await outcome(
    store.transaction(async tx => {
      await tx.query(named('insert into ~mails values (1)'))
      await one!.ack(tx)
    }),
  )

  expect(error).toMatchObject({ code: 'lease_lost' })
  expect(await query('select * from ~mails')).toEqual([])
  await deliveries.return!()
})

if (onServer) {
  test('acknowledged in a transaction of the user, the event is done when that commits', async () => {
    const { store } = await openShop()
    const client = await connect()
    const { position } = await store.events.append('order-1', [placed(), paid])
    const deliveries = store.subscribe('mailer', { ...manual, ...quick })[Symbol.asyncIterator]()
    const [one, two] = await several(deliveries, 2)

    await client.query('begin')
    await one!.ack(client)
    await client.query('commit')
    await client.query('begin')
    await two!.ack(client)
    await client.query('rollback')
    const [again] = await several(deliveries, 1)
    await again!.ack()

    expect(again).toMatchObject({ version: 2, deliveries: 2 })
    await waitUntil(async () => (await store.consumers.status('mailer')).checkpoint === position)
    await deliveries.return!()
  })

  test('a lease is not taken over during the open transaction of an acknowledgement', async () => {
    const { store, query, sibling } = await openShop()
    const client = await connect()
    const other = await sibling()
    await store.events.append('order-1', [placed(), paid])
    const hasty = { ...manual, leaseMs: 300, maxInFlight: 1 }
    const deliveries = store.subscribe('mailer', hasty)[Symbol.asyncIterator]()
    const [one] = await several(deliveries, 1)
    await client.query('begin')
    await one!.ack(client)
    const taking = take(other.subscribe('mailer', hasty), 1)
    const isExpired = 'select 1 from ~consumers where lease_until < clock_timestamp()'
    await waitUntil(async () => (await query(isExpired)).length === 1)

    await client.query('commit')
    await deliveries.return!()

    expect((await taking).map(event => event.version)).toEqual([2])
  })
}

test('a burst of acknowledgements is stored with a few statements', async () => {
  const { store, query } = await openShop()
  const { position } = await store.events.append(
    'order-1',
    Array.from({ length: 300 }, (_, n) => placed(n)),
  )
  const deliveries = store.subscribe('mailer', manual)[Symbol.asyncIterator]()
  const all = await several(deliveries, 300)
  await query('create table ~writes (checkpoint bigint)')
  await query(`create function ~note_write() returns trigger language plpgsql as $$
    begin insert into ~writes values (new.checkpoint); return null; end $$`)
  await query(`create trigger note_write after update on ~consumers
    for each row when (old.checkpoint <> new.checkpoint) execute function ~note_write()`)

  await Promise.all(all.map(delivery => delivery.ack()))

  expect((await query('select * from ~writes')).length).toBeLessThan(30)
  expect(await store.consumers.status('mailer')).toMatchObject({ checkpoint: position })
  await deliveries.return!()
})
