import { expect, test } from 'vitest'
import { deferred } from '../../../src/core/abort.ts'
import { readState, switchOver } from '../../../src/transfer/move/move.ts'
import { connect, outcome, paid, placed } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { waitersAt } from './late-writes.ts'
import { contentsOf } from './schema-contents.ts'
import { openMove } from './two-servers.ts'

test('a slow writer delays the switch, and other writers continue between the tries', async () => {
  const { move, source, store, target, open } = await openMove()
  const { schema } = move.source
  await store.events.append('order-1', placed())
  const slow = await connect(source.url)
  const watcher = await connect(source.url)
  await slow.query('begin')
  await store.events.append('order-1', paid, { tx: slow })
  let tries = 0

  const switching = switchOver(move, { lockTimeoutMs: 1_000 })
  let written = 0
  while (tries < 3) {
    await waitUntil(async () => (await waitersAt(watcher, schema)) > 0, { what: 'a try' })
    tries++
    await store.events.append(`order-${++written + 1}`, placed())
    await waitUntil(async () => (await waitersAt(watcher, schema)) === 0, { what: 'the end of a try' })
  }
  const before = await readState(move)
  await slow.query('commit')
  await switching

  expect(before).toBe('copying')
  const there = await open(target)
  expect(await there.events.read('order-1').toArray()).toHaveLength(2)
  expect(await there.events.readAll().toArray()).toHaveLength(2 + written)
})

test('a transaction that keeps the writers from being stopped is named, and all writers continue', async () => {
  const { move, source, store } = await openMove()
  await store.events.append('order-1', placed())
  const client = await connect(source.url)
  await client.query('begin')
  await client.query(`update "${move.source.schema}".streams set reason = 'mine'`)
  await client.query(`prepare transaction '${move.retired}'`)

  const { error } = await outcome(switchOver(move, { lockTimeoutMs: 50, stopTimeoutMs: 100 }))

  await client.query(`rollback prepared '${move.retired}'`)
  expect(error).toMatchObject({
    code: 'move_held_up',
    retryable: true,
    holders: [{ pid: null, query: 'a prepared transaction' }],
  })
  expect(await store.events.append('order-1', paid)).toMatchObject({ version: 2 })
  await switchOver(move)
})

test('the move waits for a table that is being created by hand, and copies it', async () => {
  const { move, source, target, store } = await openMove()
  const { schema } = move.source
  const client = await connect(source.url)
  const make = async (table: string): Promise<void> => {
    await client.query('begin')
    await client.query(`create table "${schema}"."${table}" (id integer primary key)`)
  }
  await make('notes')
  const { error } = await outcome(switchOver(move, { lockTimeoutMs: 50, stopTimeoutMs: 100 }))
  await client.query('commit')
  let releases = 0

  await switchOver(move, {
    beforeRelease: async () => {
      if (releases++ > 0) return
      await make('labels')
      // It continues when the fence is released.
      void store.events.append('order-1', placed()).then(() => client.query('commit'))
    },
  })

  expect(error).toMatchObject({ code: 'move_held_up', holders: [{ query: expect.stringContaining('create table') }] })
  expect(releases).toBe(2)
  expect(Object.keys(await contentsOf(target, schema))).toEqual(expect.arrayContaining(['labels', 'notes']))
})

test('readers and the switch do not wait for each other', async () => {
  const { move, source, store } = await openMove()
  await store.events.append('order-1', placed())
  const report = await connect(source.url)
  await report.query('begin')
  await report.query(`select * from "${move.source.schema}".events`)
  let read: unknown[] = []

  await switchOver(move, {
    beforeRelease: async () => {
      read = await store.events.read('order-1').toArray()
    },
  })

  expect(read).toHaveLength(1)
  await report.query('commit')
})

test('writers wait at most their limit: then the store stays on the source', async () => {
  const { move, store } = await openMove()
  const never = deferred<void>()

  const { error } = await outcome(switchOver(move, { maxPauseMs: 100, beforeRelease: () => never.promise }))

  // By our own limit; a process that does not reach it is cut off by the limits set on the server.
  expect(error).toMatchObject({ code: expect.stringMatching(/^(timed_out|connection_lost|database_failed)$/) })
  expect(await readState(move)).toBe('copying')
  expect(await store.events.append('order-1', placed())).toMatchObject({ version: 1 })
})
