import { expect, test } from 'vitest'
import { activate, copyInto, discard, dropRetired, readState, switchOver } from '../../../src/transfer/move/move.ts'
import { openMove } from './two-servers.ts'

const refused = (reason: RegExp) => ({ code: 'move_refused', reason: expect.stringMatching(reason) })

test.each([
  ['view', 'create view ~sales as select * from ~events', /view sales/],
  ['function of the user', 'create function ~tax() returns int return 19', /function tax/],
  ['sequence of the user', 'create sequence ~invoice_numbers', /sequence invoice_numbers/],
  ['type of the user', `create type ~size as enum ('s', 'm')`, /type size/],
  ['table without a key', 'create table ~notes (note text)', /notes has no primary key/],
  ['constraint', 'create table ~notes (id int primary key check (id > 0))', /notes has notes_id_check/],
])('a schema with a %s, which would not be copied, is not moved', async (_, text, reason) => {
  const { move, source, target } = await openMove()
  await source.query(move.source.schema, text)

  const moving = switchOver(move)

  await expect(moving).rejects.toMatchObject(refused(reason))
  expect(
    await target.query(move.target.schema, `select 1 from pg_namespace where nspname = '${move.target.schema}'`),
  ).toEqual([])
})

test('a schema of another version than the library is not moved', async () => {
  const { move, source } = await openMove()
  await source.query(move.source.schema, `delete from ~migrations where id = 1`)

  await expect(copyInto(move)).rejects.toMatchObject(refused(/migration 1 \(baseline\)/))
})

test('existing objects on the target are not touched', async () => {
  const { move, target, open, store } = await openMove()
  const there = await open(target, { migrate: true })
  await there.events.append('order-1', { type: 'OrderPlaced', data: { total: 1 } })

  await expect(copyInto(move)).rejects.toMatchObject(refused(/target already has/))
  await target.query(move.incoming, `create schema "${move.incoming}"`)
  await target.query(move.target.schema, `alter schema "${move.target.schema}" rename to "${move.retired}"`)
  await expect(copyInto(move)).rejects.toMatchObject(refused(/target already has/))
  await discard(move)

  expect(await readState(move)).toBe('not begun')
  expect(await target.query(move.retired, 'select type from ~events')).toHaveLength(1)
  expect(await target.query(move.incoming, `select '"${move.incoming}"'::regnamespace`)).toHaveLength(1)
  expect((await store.streams.list()).items).toEqual([])
})

test('steps that come too early or too late are refused', async () => {
  const { move } = await openMove()
  await copyInto(move)

  await expect(activate(move)).rejects.toMatchObject(refused(/has not given it up/))
  await expect(dropRetired(move)).rejects.toMatchObject(refused(/not in use yet/))
  await switchOver(move)
  await expect(discard(move)).rejects.toMatchObject(refused(/switched already/))
  await expect(copyInto(move)).rejects.toMatchObject(refused(/source has no store/))
  await activate(move)

  expect(await readState(move)).toBe('active')
})

test('a store is moved only between two servers', async () => {
  const { move } = await openMove()

  await expect(copyInto({ ...move, target: move.source })).rejects.toMatchObject(
    refused(/two different PostgreSQL servers/),
  )
})
