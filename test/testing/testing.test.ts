import { expect, test } from 'vitest'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import type { Store } from '../../src/store.ts'
import { countingIds, fakeClock, settle, testStore } from '../../src/testing/testing.ts'
import { openDatabase, postgresUrl } from '../support/engines.ts'
import { onServer, placed, shopEvents } from '../support/shop.ts'

test('a test store is empty, typed like others, and its schema is dropped when it is closed', async () => {
  const database = await openDatabase()
  const store = await testStore({ events: shopEvents }, { database })
  const schema = store.schema.name

  const result = await store.events.append('order-1', placed(), { expected: 'empty' })
  await store.close()
  await store.close()

  expect(result).toMatchObject({ version: 1, position: 1 })
  const left = await database.transaction(tx => tx.query('select 1 from pg_namespace where nspname = $1', [schema]))
  expect(left).toEqual([])
})

test('two test stores are independent', async () => {
  const database = await openDatabase()
  await using one = await testStore({}, { database })
  await using two = await testStore({}, { database })

  await one.events.append('order-1', placed())

  expect(await two.events.readAll().toArray()).toEqual([])
})

test('a test store ignores where the options of a program say a store is', async () => {
  const database = await openDatabase()
  const elsewhere = { url: 'postgres://nowhere.invalid/shop', folder: '/nowhere', schema: 'shop', migrate: false }
  await using store = await testStore({ ...elsewhere, memory: true }, { database })

  expect(await store.events.append('order-1', placed())).toMatchObject({ version: 1 })
  expect(store.schema.name).not.toBe('shop')
})

test('counting ids are the same in every run, and can be stored', async () => {
  const database = await openDatabase()
  await using store = await testStore({ ids: countingIds() }, { database })

  const { eventIds } = await store.events.append('order-1', [placed(), placed()])

  expect(eventIds).toEqual(['00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002'])
})

test('a fake clock stands still, and runs due timers in order when it is moved', () => {
  const clock = fakeClock('2030-05-01T12:00:00Z')
  const ran: string[] = []
  const at = (name: string) => () => void ran.push(`${name} ${clock.now().toISOString()}`)
  clock.setTimeout(at('late'), 2000)
  clock.setTimeout(at('early'), 1000)
  clock.setTimeout(at('never'), 1500).cancel()
  clock.setTimeout(() => clock.setTimeout(at('follow-up'), 500), 1000)

  clock.advance(1000)
  const first = [...ran]
  clock.advance(1000)

  expect(first).toEqual(['early 2030-05-01T12:00:01.000Z'])
  expect(ran).toEqual([
    'early 2030-05-01T12:00:01.000Z',
    'follow-up 2030-05-01T12:00:01.500Z',
    'late 2030-05-01T12:00:02.000Z',
  ])
  expect(clock.now()).toEqual(new Date('2030-05-01T12:00:02Z'))
})

if (onServer) {
  test('with a url the test store is on that server', async () => {
    await using store = await testStore({}, { url: postgresUrl() })

    expect(store.engine).toBe('postgres')
    expect(await store.events.append('order-1', placed())).toMatchObject({ version: 1 })
  })
} else {
  test('without options the test stores of a process share one engine in memory', async () => {
    await using store = await testStore()
    await using other = await testStore()

    await store.events.append('order-1', placed())

    expect([store.engine, other.engine]).toEqual(['pglite', 'pglite'])
    expect(await other.events.head()).toBe(0)
  })

  test('a test store is empty and complete, whatever the one before it left behind', async () => {
    const seen: unknown[] = []
    const leaving: ((store: Store) => Promise<unknown>)[] = [
      store => store.events.append('order-1', [placed(), placed()], { idempotencyKey: 'twice' }),
      store =>
        store.projections.register(
          defineDocumentProjection('totals', { initial: () => ({}), evolve: { OrderPlaced: () => ({}) } }),
        ),
      store => store.transaction(tx => tx.query(`create table "${store.schema.name}".mine (id integer)`)),
      store => store.transaction(tx => tx.query(`alter table "${store.schema.name}".events add column mine text`)),
      store => store.streams.resolve('alias', { category: 'order' }),
    ]
    for (const leave of [...leaving, () => Promise.resolve()]) {
      await using store = await testStore()
      const { problems } = await store.schema.check()
      const { position, version, repeated } = await store.events.append('order-1', placed(), { idempotencyKey: 'once' })
      seen.push([
        problems,
        position,
        version,
        repeated,
        (await store.consumers.list()).items,
        (await store.streams.list()).items.length,
      ])
      await leave(store)
      await settle(store, { timeoutMs: 60_000 })
    }

    expect(seen).toEqual(Array.from({ length: 6 }, () => [[], 1, 1, false, [], 1]))
  })
}
