import { expect, test } from 'vitest'
import { deferred } from '../../../src/core/lifecycle.ts'
import { readState, switchOver } from '../../../src/transfer/move/move.ts'
import { connect, outcome, paid, placed } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { contentsOf } from './judge.ts'
import { waitersAt } from './late.ts'
import { openMove } from './servers.ts'

test('a writer that takes its time delays the switch, and others go on between the tries', async () => {
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

test('who keeps the writers from being stopped is named, and everybody goes on as before', async () => {
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

test('a table that somebody is making by hand is waited for, and comes along', async () => {
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
      // It comes through when the fence is down.
      void store.events.append('order-1', placed()).then(() => client.query('commit'))
    },
  })

  expect(error).toMatchObject({ code: 'move_held_up', holders: [{ query: expect.stringContaining('create table') }] })
  expect(releases).toBe(2)
  expect(Object.keys(await contentsOf(target, schema))).toEqual(expect.arrayContaining(['labels', 'notes']))
})

test('readers neither hold the switch up nor are they held up by it', async () => {
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

test('writers wait no longer than they may: then the source keeps the store', async () => {
  const { move, store } = await openMove()
  const never = deferred<void>()

  const { error } = await outcome(switchOver(move, { maxPauseMs: 100, beforeRelease: () => never.promise }))

  // By our own limit; a process that does not even get to that is cut off by those that the server was given.
  expect(error).toMatchObject({ code: expect.stringMatching(/^(timed_out|connection_lost|database_failed)$/) })
  expect(await readState(move)).toBe('copying')
  expect(await store.events.append('order-1', placed())).toMatchObject({ version: 1 })
})
