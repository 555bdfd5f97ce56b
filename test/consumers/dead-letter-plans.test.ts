import { expect, test } from 'vitest'
import type { Statement } from '../../src/database/sql.ts'
import { openDatabase } from '../support/engines.ts'
import { explain, recording } from '../support/query-plans.ts'
import { onServer, openShop } from '../support/shop.ts'

/** Embedded, fewer rows take less time; but then a scan is the better plan, so plans are looked at on a server. */
const rows = onServer ? 200_000 : 20_000

test('lists, groups and counts of dead letters use an index, however many there are', async () => {
  const statements: Statement[] = []
  const { store, query, database } = await openShop({
    database: recording(await openDatabase(), statement => statements.push(statement)),
  })
  await query(
    `insert into ~dead_letters (position, version, event_id, attempts, consumer, state, stream, type, errors, fingerprint,
        last_failed_at)
      select n, 1, gen_random_uuid(), 1, 'orders-' || n % 10, case when n % 1000 = 0 then 'resolved' else 'open' end,
        'order-' || n, 'OrderPlaced', '[{"at":"2026-01-01","name":"Error","message":"no"}]', 'f' || n % 3,
        now() - n * interval '1 second'
      from generate_series(1, ${rows}) as n`,
  )
  await query('analyze ~dead_letters')
  statements.length = 0

  const latest = await store.deadLetters.list({ order: 'newest', state: 'resolved', limit: 10 })
  const byOwner = await store.deadLetters.list({ state: 'resolved', limit: 10 })
  const { items: groups } = await store.deadLetters.groups()
  const { items: stats } = await store.deadLetters.stats()

  expect(latest.items.map(({ position }) => position).slice(0, 3)).toEqual([1000, 2000, 3000])
  expect(byOwner.items).toHaveLength(10)
  expect(groups.reduce((sum, { count }) => sum + count, 0)).toBe(10_000)
  expect(stats).toHaveLength(10)
  if (!onServer) return
  for (const statement of statements.filter(({ label }) => label.startsWith('dead_letters.'))) {
    const plan = await database.transaction(tx => explain(tx, statement, 'force_custom_plan'))
    expect(plan, `${statement.label}\n${plan}`).not.toMatch(/Seq Scan on dead_letters/)
  }
})

test('pages of the latest dead letters neither skip nor repeat, and continue where few match', async () => {
  const { store, query } = await openShop()
  await query(
    `insert into ~dead_letters (position, version, event_id, attempts, consumer, state, stream, type, errors, last_failed_at)
      select n, 1, gen_random_uuid(), 1, 'orders', 'open', 'order-' || n,
        case when n = 12000 then 'OrderLost' else 'OrderPlaced' end, '[{"at":"2026-01-01","name":"Error","message":"no"}]',
        timestamptz '2026-01-01' - n * interval '1 second'
      from generate_series(1, 12001) as n`,
  )

  const first = await store.deadLetters.list({ order: 'newest', limit: 3 })
  const second = await store.deadLetters.list({ order: 'newest', limit: 3, after: first.next })
  const rare = await store.deadLetters.list({ order: 'newest', type: 'OrderLost' })
  const further = await store.deadLetters.list({ order: 'newest', type: 'OrderLost', after: rare.next })

  expect([...first.items, ...second.items].map(({ position }) => position)).toEqual([1, 2, 3, 4, 5, 6])
  expect([rare.items.length, rare.next !== undefined]).toEqual([0, true])
  expect(further).toMatchObject({ items: [{ position: 12_000 }], next: undefined })
})
