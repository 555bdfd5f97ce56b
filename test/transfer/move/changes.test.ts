import { expect, test } from 'vitest'
import { claimIncoming } from '../../../src/transfer/move/incoming.ts'
import { livePass, newMover } from '../../../src/transfer/move/pass.ts'
import type { Customer } from '../../documents/customers.ts'
import { contentsOf } from './schema-contents.ts'
import { type OpenMove, openMove } from './two-servers.ts'

/** So many customers, or such large ones, that they are not compared as a whole each time. */
async function openLarge(customers: number, noteLength: number): Promise<OpenMove> {
  const opened = await openMove()
  const { store, source, move } = opened
  store.documents<Customer>('customers', { indexes: [{ path: 'email', unique: true }] })
  await store.schema.sync()
  await source.query(
    move.source.schema,
    `insert into ~customers (id, version, created_at, updated_at, body)
    select 'customer-' || n, 1, now(), now(), jsonb_build_object('email', n || '@example.org', 'note', repeat('x', ${noteLength}))
    from generate_series(1, ${customers}) as n`,
  )
  return opened
}

test('of a large table only changed rows are copied again, also where a unique value moved between rows', async () => {
  const { move, source, target } = await openLarge(1_500, 1_000)
  const { schema } = move.source
  const mover = newMover(move, await claimIncoming(move, undefined), undefined)
  const first = await livePass(mover)
  const change = (text: string): Promise<unknown> => source.query(schema, text)
  const still = await livePass(mover)
  await change(`delete from ~customers where id in ('customer-5', 'customer-77')`)
  await change(`update ~customers set body = '{"email": "5@example.org"}', version = 2 where id = 'customer-6'`)
  await change(`insert into ~customers (id, version, created_at, updated_at, body)
    values ('tab\t"and"', 1, now(), now(), '{"email": "6@example.org"}')`)

  const second = await livePass(mover)

  expect(first.rows).toBeGreaterThan(1_500)
  expect([still.rows, second.rows]).toEqual([0, 2])
  const found = await contentsOf(target, move.incoming)
  expect(found.customers).toEqual((await contentsOf(source, schema)).customers)
})

test('a large table that changed as a whole, or differs for another reason, is compared as a whole', async () => {
  const { move, source, target } = await openLarge(21_000, 0)
  const { schema } = move.source
  const mover = newMover(move, await claimIncoming(move, undefined), undefined)
  await livePass(mover)
  await source.query(schema, 'update ~customers set version = version + 1')
  await livePass(mover)
  await target.query(move.incoming, `delete from ~customers where id = 'customer-9'`)

  const { rows } = await livePass(mover)

  expect(rows).toBeGreaterThan(0)
  const found = await contentsOf(target, move.incoming)
  expect(found.customers).toEqual((await contentsOf(source, schema)).customers)
})
