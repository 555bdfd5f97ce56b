import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { runOutside } from '../../src/database/transaction.ts'
import { startProxy } from '../chaos/tcp-proxy.ts'
import { postgresUrl } from '../support/engines.ts'
import { connect, onServer, outcome, paid, placed } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { openInlineShop } from './inline-shop.ts'

test('in a transaction of the user an inline projection commits with everything else', async () => {
  const { database, events, activate, totals, rows } = await openInlineShop()
  await activate(totals())

  const result = await database.transaction(async tx => {
    await events.append('order-1', placed(1), { tx })
    return events.append('order-1', [paid, placed(2)], { tx, expected: 1 })
  })

  expect(result).toMatchObject({ version: 3, repeated: false })
  expect(await rows()).toEqual([{ stream: 'order-1', total: 3, events: 2 }])
})

test('in a transaction of the user an inline projection is rolled back with everything else', async () => {
  const { database, events, activate, totals, rows } = await openInlineShop()
  await activate(totals())

  const failing = database.transaction(async tx => {
    await events.append('order-1', placed(1), { tx })
    throw new Error('card declined')
  })

  await expect(failing).rejects.toThrow('card declined')
  expect(await rows()).toEqual([])
  expect(await events.readAll().toArray()).toEqual([])
})

test('an inline projection that fails in a transaction of the user undoes its append, and the rest continues', async () => {
  const { database, events, activate, totals, rows } = await openInlineShop()
  const { apply } = totals()
  const picky = totals({
    apply: async (applied, tx, signal) => {
      await apply(applied, tx, signal)
      if (applied[0]!.stream === 'order-2') await tx.query('select 1 / 0')
    },
  })
  await activate(picky)

  const refused = await database.transaction(async tx => {
    await events.append('order-1', placed(1), { tx })
    const { error } = await outcome(events.append('order-2', placed(2), { tx }))
    const conflict = await outcome(events.append('order-1', placed(2), { tx, expected: 5 }))
    await events.append('order-3', placed(3), { tx })
    return [error, conflict.error]
  })

  expect(refused).toMatchObject([
    { code: 'inline_projection_failed', cause: { code: '22012' } },
    { code: 'version_conflict', actual: 1 },
  ])
  expect((await rows()).map(row => row.stream)).toEqual(['order-1', 'order-3'])
  expect((await events.readAll().toArray()).map(event => event.stream)).toEqual(['order-1', 'order-3'])
})

test('an inline projection cannot append, neither with its transaction nor without it', async () => {
  const { events, activate, totals } = await openInlineShop()
  const errors: unknown[] = []
  const appending = totals({
    apply: async (_, tx) => {
      errors.push((await outcome(events.append('order-2', paid, { tx }))).error)
      errors.push((await outcome(events.append('order-2', paid))).error)
    },
  })
  await activate(appending)

  await events.append('order-1', placed())

  expect(errors).toMatchObject([{ code: 'invalid_option', option: 'tx' }, { code: 'inside_transaction' }])
  expect(await events.readAll().toArray()).toHaveLength(1)
})

test('the transaction handle of an inline projection is revoked after it', async () => {
  const { events, activate, totals } = await openInlineShop()
  let kept: Transaction | undefined
  const keeping = totals({
    apply: async (_, tx) => {
      kept = tx
    },
  })
  await activate(keeping)
  await events.append('order-1', placed())

  await expect(kept!.query('select 1')).rejects.toMatchObject({ code: 'transaction_closed' })
})

test('an inline projection may use savepoints, COPY and hooks', async () => {
  const { events, activate, totals, rows, log } = await openInlineShop()
  const received: string[] = []
  const table = log.names.events.quoted.replace('"events"', '"totals"')
  const all = totals({
    apply: async (_, tx) => {
      await outcome(tx.savepoint(() => tx.query('select 1 / 0')))
      await tx.copyIn(table, ['stream', 'total', 'events'], 'a\\tb\t1\t2\nc\t3\t4\n')
      tx.afterCommit(() => received.push('committed'))
    },
  })
  await activate(all)

  await events.append('order-1', placed())

  expect(received).toEqual(['committed'])
  expect(await rows()).toEqual([
    { stream: 'a\tb', total: 1, events: 2 },
    { stream: 'c', total: 3, events: 4 },
  ])
})

if (onServer) {
  test('with a client of the user an inline projection commits and fails with its append', async () => {
    const { events, activate, totals, rows, log } = await openInlineShop()
    const table = log.names.events.quoted.replace('"events"', '"totals"')
    const all = totals({
      apply: async ([event], tx) => {
        await tx.copyIn(table, ['stream', 'total', 'events'], `${event!.stream}\t0\t1\n`)
        await tx.query(`update ${table} set total = $1 where stream = $2`, [7, event!.stream])
        await outcome(tx.savepoint(() => tx.query('select 1 / 0')))
        if (event!.stream === 'order-2') throw new Error('no such customer')
      },
    })
    await activate(all)
    const client = await connect()
    await client.query('begin')

    const result = await events.append('order-1', placed(1), { tx: client, idempotencyKey: 'k' })
    const again = await events.append('order-1', placed(1), { tx: client, idempotencyKey: 'k' })
    const { error } = await outcome(events.append('order-2', placed(2), { tx: client }))
    const before = await rows()
    await client.query('commit')

    expect(result).toMatchObject({ version: 1, repeated: false })
    expect(again).toMatchObject({ position: result.position, repeated: true })
    expect(error).toMatchObject({ code: 'inline_projection_failed', reason: 'no such customer' })
    expect(before).toEqual([])
    expect(await rows()).toEqual([{ stream: 'order-1', total: 7, events: 1 }])
    expect(await events.readAll().toArray()).toHaveLength(1)
  })

  test('a hook after the commit is refused where the store cannot see the commit', async () => {
    const { events, activate, totals } = await openInlineShop()
    await activate(totals({ apply: async (_, tx) => tx.afterCommit(() => {}) }))
    const client = await connect()
    await client.query('begin')

    const { error } = await outcome(events.append('order-1', placed(), { tx: client }))
    await client.query('rollback')

    expect(error).toMatchObject({ code: 'inline_projection_failed', cause: { code: 'invalid_option' } })
  })

  for (const isolation of ['repeatable read', 'serializable'] as const)
    test(`a ${isolation} transaction that began before a projection became inline fails as retryable, and does not skip it`, async () => {
      const { database, events, activate, retire, totals, rows } = await openInlineShop()
      const appendAfter = (change: () => Promise<unknown>): Promise<unknown> =>
        database.transaction(
          async tx => {
            await tx.query('select 1')
            await runOutside(change)
            await events.append('order-1', placed(1), { tx })
          },
          { isolation },
        )

      const early = await outcome(appendAfter(() => activate(totals())))
      const within = await outcome(appendAfter(async () => {}))
      const late = await outcome(appendAfter(() => retire('totals')))

      expect(early.error).toMatchObject({ code: 'serialization_failed', retryable: true })
      expect(within.error).toBeUndefined()
      expect(late.error).toMatchObject({ code: 'serialization_failed', retryable: true })
      expect(await rows()).toEqual([{ stream: 'order-1', total: 1, events: 1 }])
      expect(await events.readAll().toArray()).toHaveLength(1)
    })

  for (const [what, statement] of [
    ['after it was committed', /commit(?!ted)/],
    ['before it was committed', /events\.append_store/],
  ] as const)
    test(`an append whose connection breaks ${what} is sent again, and its inline projection has one effect`, async () => {
      const shop = await openInlineShop()
      const { totals, activate, rows, other } = shop
      await activate(totals())
      await shop.events.append('order-1', placed(1))
      await using proxy = await startProxy(postgresUrl())
      const { events, log } = await other({ url: proxy.url, maxConnections: 4 })
      log.inline.register(totals())
      proxy.loseAnswerTo(statement)

      const sent = events.append('order-1', placed(2), { idempotencyKey: 'checkout-2' })
      sent.catch(() => {})
      await waitUntil(() => proxy.links.some(link => link.carried(statement)), { what: 'the statement on its way' })
      if (what.startsWith('after')) await waitUntil(async () => (await rows())[0]!.events === 2)
      for (const link of proxy.cutClients()) link.drop()

      expect(await sent).toMatchObject({ version: 2, repeated: false })
      expect(await rows()).toEqual([{ stream: 'order-1', total: 3, events: 2 }])
      expect(await events.append('order-1', placed(2), { idempotencyKey: 'checkout-2' })).toMatchObject({
        version: 2,
        repeated: true,
      })
    })

  test('an inline projection whose connection breaks is run again, on another connection', async () => {
    const { events, activate, totals, rows } = await openInlineShop()
    const { apply } = totals()
    let calls = 0
    const cutOff = totals({
      apply: async (applied, tx, signal) => {
        await apply(applied, tx, signal)
        if (++calls === 1) await tx.query('select pg_terminate_backend(pg_backend_pid())')
      },
    })
    await activate(cutOff)

    expect(await events.append('order-1', placed(1))).toMatchObject({ version: 1, repeated: false })

    expect(calls).toBe(2)
    expect(await rows()).toEqual([{ stream: 'order-1', total: 1, events: 1 }])
  })

  test('an inline projection that collides with another transaction is run again', async () => {
    const { events, activate, totals, rows } = await openInlineShop()
    const { apply } = totals()
    let calls = 0
    const colliding = totals({
      apply: async (applied, tx, signal) => {
        await apply(applied, tx, signal)
        if (++calls === 1) await tx.query(`do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$`)
      },
    })
    await activate(colliding)

    await events.append('order-1', placed(1))

    expect(calls).toBe(2)
    expect(await rows()).toEqual([{ stream: 'order-1', total: 1, events: 1 }])
  })
}
