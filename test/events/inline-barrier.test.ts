import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import type { Transaction } from '../../src/database/database.ts'
import { activateInline, holdInlineBarrier, listInline, retireInline } from '../../src/events/inline/barrier.ts'
import { connect, onServer, outcome, paid, placed, waitersFor } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { type InlineShop, openInlineShop, type TotalRow } from './inline-shop.ts'

/** Makes the projection inline, and folds the events in the log at that moment. */
function switchOn({ database, log, totals, named }: InlineShop, middle: () => void = () => {}): Promise<void> {
  return database.transaction(async tx => {
    await activateInline(log, tx, totals())
    middle()
    await tx.query(named('truncate ~totals'))
    await tx.query(named(`insert into ~totals ${counted}`))
  })
}

/** Makes it async again; returns the head of the log at that moment. */
function switchOff({ database, log, named }: InlineShop): Promise<TotalRow[]> {
  return database.transaction(async tx => {
    await retireInline(log, tx, 'totals')
    return tx.query<TotalRow>(named(`${counted} order by stream`))
  })
}

const counted = `
  select stream, sum((data->>'total')::integer)::integer as total, count(*)::integer as events
  from ~events
  where type = 'OrderPlaced'
  group by stream`

test('an event is folded by the switch or applied inline, exactly once, while two stores append', async () => {
  const shop = await openInlineShop()
  const other = await shop.other()
  shop.log.inline.register(shop.totals())
  other.log.inline.register(shop.totals())
  const appends: Promise<unknown>[] = []
  const write = async (count: number): Promise<void> => {
    for (let n = 0; n < count; n++) {
      const { events } = n % 2 === 0 ? shop : other
      const stream = `order-${n % 7}`
      appends.push(n % 5 === 0 ? events.append(stream, [paid, placed(n), placed(1)]) : events.append(stream, placed(n)))
      if (n % 10 === 0) await new Promise(setImmediate)
    }
  }

  await write(100)
  await Promise.all([write(100), switchOn(shop)])
  await Promise.all(appends)
  const applied = await shop.rows()
  const stored = await shop.query<TotalRow>(`${counted} order by stream`)
  await write(50)
  const [atTheEnd] = await Promise.all([switchOff(shop), write(50)])
  await Promise.all(appends)

  expect(applied).toEqual(stored)
  expect(await shop.rows()).toEqual(atTheEnd)
  expect((await shop.query<TotalRow>(counted)).reduce((sum, row) => sum + row.events, 0)).toBe(300 + 60)
})

test('a switch that is rolled back changes nothing', async () => {
  const shop = await openInlineShop()
  const failing = switchOn(shop, () => {
    throw new Error('a view depends on the table')
  })

  await expect(failing).rejects.toThrow('a view depends')
  const appendIn = (tx: Transaction): Promise<unknown> => shop.events.append('order-1', placed(), { tx })
  await shop.database.transaction(appendIn, { isolation: 'repeatable read' })

  expect(await listInline(shop.log)).toEqual([])
  expect(await shop.events.append('order-1', placed())).toMatchObject({ version: 2 })
})

test('activating again changes version and types', async () => {
  const { database, log } = await openInlineShop()

  for (const [version, types] of [
    [1, ['OrderPlaced']],
    [2, undefined],
  ] as const)
    await database.transaction(tx => activateInline(log, tx, { name: 'totals', version, types }))

  expect(await listInline(log)).toEqual([{ name: 'totals', version: 2, types: undefined }])
})

test('the barrier respects the lock timeout of its transaction', async () => {
  const { database, log } = await openInlineShop()

  const [row] = await database.transaction(async tx => {
    await tx.query(`set local lock_timeout = '4321ms'`)
    await holdInlineBarrier(log, tx)
    await holdInlineBarrier(log, tx)
    return tx.query(`select current_setting('lock_timeout') as timeout`)
  })

  expect(row).toEqual({ timeout: '4321ms' })
})

if (onServer) {
  test('a switch waits for a transaction that has appended, and other appends continue meanwhile', async () => {
    const shop = await openInlineShop()
    shop.log.inline.register(shop.totals())
    const client = await connect()
    await client.query('begin')
    await shop.events.append('order-1', placed(1), { tx: client })

    let isDone = false
    const switching = switchOn(shop).then(() => {
      isDone = true
    })
    await waitUntil(async () => (await waitersFor(client)) > 0, { what: 'the switch waiting' })
    await shop.events.append('order-2', placed(2))
    await shop.events.append('order-3', placed(3))
    const before = isDone
    await client.query('commit')
    await switching

    expect(before).toBe(false)
    expect(await shop.rows()).toEqual([1, 2, 3].map(n => ({ stream: `order-${n}`, total: n, events: 1 })))
  })

  test('appends wait at the barrier together, and continue when it is released', async () => {
    const shop = await openInlineShop()
    shop.log.inline.register(shop.totals())
    const held = deferred<void>()
    const open = deferred<void>()
    const holding = shop.database.transaction(async tx => {
      await activateInline(shop.log, tx, shop.totals())
      held.resolve()
      await open.promise
    })
    await held.promise

    const other = await shop.other()
    other.log.inline.register(shop.totals())
    const appends = Array.from({ length: 40 }, (_, n) =>
      outcome((n % 2 === 0 ? shop : other).events.append(`order-${n}`, n % 3 === 0 ? paid : placed(n))),
    )
    await waitUntil(async () => (await waiting(shop)) >= 2, { what: 'appends at the barrier' })
    open.resolve()
    await holding

    expect((await Promise.all(appends)).filter(({ error }) => error !== undefined)).toEqual([])
    expect(await shop.rows()).toHaveLength(26)
  })

  test('an import waits at the barrier, and is refused if it would bypass a new inline projection', async () => {
    const shop = await openInlineShop()
    const held = deferred<void>()
    const open = deferred<void>()
    const holding = shop.database.transaction(async tx => {
      await activateInline(shop.log, tx, shop.totals())
      held.resolve()
      await open.promise
    })
    await held.promise

    const importing = outcome(shop.events.import([{ stream: 'order-1', ...placed() }]))
    await waitUntil(async () => (await waiting(shop)) >= 1, { what: 'the import at the barrier' })
    open.resolve()
    await holding

    expect(await importing).toMatchObject({ error: { code: 'import_bypasses_inline' } })
  })

  test('many appends with an inline projection share the connections with all others', async () => {
    const shop = await openInlineShop()
    await shop.activate(shop.totals())
    const narrow = await shop.other({ maxConnections: 1 })
    narrow.log.inline.register(shop.totals())

    const results = await Promise.all(
      Array.from({ length: 120 }, (_, n) => narrow.events.append(`order-${n % 11}`, n % 3 === 0 ? placed(n) : paid)),
    )

    expect(results).toHaveLength(120)
    expect((await shop.rows()).reduce((sum, row) => sum + row.events, 0)).toBe(40)
  })

  /** Number of sessions that wait for the barrier of this shop. */
  async function waiting({ query, schema }: InlineShop): Promise<number> {
    const [row] = await query<{ count: number }>(
      `select count(*)::integer as count
      from pg_locks
      where not granted and relation = '${schema}.inline_projections'::regclass`,
    )
    return row!.count
  }
}
