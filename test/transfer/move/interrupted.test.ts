import { expect, test } from 'vitest'
import { deferred } from '../../../src/core/abort.ts'
import type { Database } from '../../../src/database/database.ts'
import type { Move } from '../../../src/transfer/move/move.ts'
import { activate, copyInto, discard, readState, switchOver } from '../../../src/transfer/move/move.ts'
import { freeMovedName, readOccupant, removeMovedMarker } from '../../../src/transfer/move/moved-marker.ts'
import { long } from '../../chaos/chaos.ts'
import type { Customer } from '../../documents/customers.ts'
import { connect, outcome, paid, placed } from '../../support/shop.ts'
import { waitUntil } from '../../support/wait.ts'
import { crashingMove } from './crashing-move.ts'
import { contentsOf } from './schema-contents.ts'
import { openMove, secondServer } from './two-servers.ts'

/** The side on which the store can be written to. */
async function ownersOf({ source, target }: Move): Promise<string[]> {
  const places = Object.entries({ source, target })
  const occupants = await Promise.all(places.map(([, place]) => readOccupant(place.database, place.schema)))
  return places.map(([name]) => name).filter((_, at) => occupants[at] === 'store')
}

/** The most important steps; in a long run all steps. */
const isCrucial = (step: string): boolean =>
  long ||
  /^live target copy|^fenced (source (moving.fence$|alter|create schema|commit)|target commit)|^switched/.test(step)

test('a move that is interrupted at any step leaves one owner or none, and the next call completes it', async () => {
  const { move, source, target, store } = await openMove()
  store.documents<Customer>('customers')
  await store.schema.sync()
  await store.events.append('order-0', placed())
  const owners = { 'not begun': ['source'], copying: ['source'], switched: [] as string[], active: ['target'] }
  const died: string[] = []
  let appended = 1

  // Each mover gets one step further: it crashes at the first step at which none has crashed yet.
  while ((await readState(move)) !== 'active') {
    const crashesAt = (step: string): boolean => {
      if (died.includes(step) || !isCrucial(step)) return false
      died.push(step)
      return true
    }
    const hasSwitched = (await readState(move)) === 'switched'
    const moving = hasSwitched
      ? activate(crashingMove(move, crashesAt, 'switched'))
      : switchOver(crashingMove(move, crashesAt))
    await outcome<unknown>(moving)
    const state = await readState(move)
    expect(await ownersOf(move), died.at(-1)).toEqual(owners[state])
    if (owners[state].includes('source')) await store.events.append(`order-${appended++}`, placed())
  }

  for (const step of [
    'live target copy',
    'fenced source alter schema',
    'fenced source commit',
    'switched source committed',
  ])
    expect(died).toContain(step)
  expect(died).toContain('switched target committed')
  expect(await ownersOf(move)).toEqual(['target'])
  expect(await contentsOf(target, move.target.schema)).toEqual(await contentsOf(source, move.retired))
  expect((await contentsOf(target, move.target.schema)).events).toHaveLength(appended)
})

test('a discarded move leaves nothing behind, and can begin anew', async () => {
  const { move, store, target } = await openMove()
  await store.events.append('order-1', placed())
  await copyInto(move)

  await discard(move)
  await discard(move)

  expect(await readState(move)).toBe('not begun')
  expect(
    await target.query(move.incoming, `select 1 from pg_namespace where nspname like '${move.target.schema}%'`),
  ).toEqual([])
  await store.events.append('order-1', paid)
  await switchOver(move)
  expect((await contentsOf(target, move.target.schema)).events).toHaveLength(2)
})

test('a mover that returns after another continued in its place changes nothing', async () => {
  const { move, store, source, target } = await openMove()
  await store.events.append('order-1', placed())
  const held = deferred<void>()
  const stopped = deferred<void>()
  const there = move.target.database
  const database = {
    ...there,
    transaction: async (...call: Parameters<typeof there.transaction>) => {
      if (transactions++ === 6) {
        stopped.resolve()
        await held.promise
      }
      return there.transaction(...call)
    },
  } as typeof there
  let transactions = 0
  const late = outcome(copyInto({ ...move, target: { ...move.target, database } }))
  await stopped.promise
  await store.events.append('order-1', paid)

  await switchOver(move)
  held.resolve()
  const { error } = await late

  expect(error).toMatchObject({ code: 'move_taken_over' })
  expect(await contentsOf(target, move.target.schema)).toEqual(await contentsOf(source, move.retired))
})

test('a mover that activates the target after the store has moved back creates no second owner', async () => {
  const { move, back, store } = await openMove()
  await store.events.append('order-1', placed())
  const there = move.target.database
  const held = deferred<void>()
  const stopped = deferred<void>()
  let isGivenUp = false
  const database = {
    ...there,
    transaction: async (...call: Parameters<typeof there.transaction>) => {
      if (isGivenUp) {
        stopped.resolve()
        await held.promise
      }
      return there.transaction(...call)
    },
  } as typeof there
  const beforeRelease = async (): Promise<void> => {
    isGivenUp = true
  }
  const late = outcome(switchOver({ ...move, target: { ...move.target, database } }, { beforeRelease }))
  await stopped.promise
  await activate(move)
  await switchOver(back)
  await copyInto(move)

  held.resolve()
  const { error } = await late

  expect(error).toMatchObject({ code: 'move_taken_over' })
  expect([await readState(move), await ownersOf(move)]).toEqual(['copying', ['source']])
})

test('a moved marker is removed only where nothing else is, and where the store is known to be nowhere else', async () => {
  const { move, store, source, target } = await openMove()
  await store.events.append('order-1', placed())

  await expect(source.database.transaction(tx => removeMovedMarker(tx, move.source.schema))).rejects.toMatchObject({
    code: '2BP01',
  })
  await store.events.append('order-1', paid)
  await switchOver(move)
  await expect(freeMovedName(move.source, () => Promise.reject(new Error('it is elsewhere')))).rejects.toThrow(
    'elsewhere',
  )
  const before = await readOccupant(source.database, move.source.schema)
  await Promise.all(Array.from({ length: 8 }, () => freeMovedName(move.source, async () => {})))

  expect([before, await readOccupant(source.database, move.source.schema)]).toEqual(['moved', 'none'])
  expect((await contentsOf(target, move.target.schema)).events).toHaveLength(2)
})

test('an abort while rows are copied, or while writers wait, leaves the store where it is', async () => {
  const { move, store } = await openMove()
  await store.events.append('order-1', placed())
  const copying = new AbortController()
  const pausing = new AbortController()

  const first = await outcome(copyInto(move, { signal: copying.signal, onProgress: () => copying.abort() }))
  const beforeRelease = async (): Promise<void> => pausing.abort()
  const second = await outcome(switchOver(move, { signal: pausing.signal, beforeRelease }))

  expect([first.error, second.error]).toMatchObject([{ code: 'aborted' }, { code: 'aborted' }])
  expect(await readState(move)).toBe('copying')
  expect(await store.events.append('order-1', paid)).toMatchObject({ version: 2 })
  await switchOver(move)
})

test('a callback that fails leaves the store on the source', async () => {
  const { move, store } = await openMove()

  const failing = switchOver(move, { beforeRelease: () => Promise.reject(new Error('the directory is away')) })

  await expect(failing).rejects.toThrow('the directory is away')
  expect(await ownersOf(move)).toEqual(['source'])
  await store.events.append('order-1', placed())
})

test('if the connection of the fence is cut, writers continue immediately', async () => {
  const { move, source, store } = await openMove()
  const client = await connect(source.url)
  let waiting: Promise<unknown> | undefined

  const { error } = await outcome(
    switchOver(move, {
      beforeRelease: async () => {
        waiting = store.events.append('order-1', placed())
        await client.query(`
          select pg_terminate_backend(pid)
          from pg_locks
          where relation = '"${move.source.schema}".events'::regclass and mode = 'ExclusiveLock'`)
      },
    }),
  )

  expect(error).toMatchObject({ code: expect.stringMatching(/connection_lost|outcome_unknown/) })
  expect(await waiting).toMatchObject({ version: 1 })
  expect(await ownersOf(move)).toEqual(['source'])
})

test('a target that fails before the switch leaves the store on the source; after it there are no writes until it is up', async () => {
  const { move, store } = await openMove()
  const server = await secondServer()
  const stops: Promise<void>[] = []
  await store.events.append('order-1', placed())
  const isUp = () => waitUntil(async () => (await readState(move)) !== undefined, { what: 'the target' })

  // Running work must not be faster than the stop of the server.
  const { database } = move.target
  const transaction: Database['transaction'] = (work, options) =>
    database.transaction(async tx => {
      const result = await work(tx)
      await Promise.all(stops)
      return result
    }, options)
  const stopping = { ...move, target: { ...move.target, database: { ...database, transaction } } }

  const before = await outcome(copyInto(stopping, { onProgress: () => void stops.push(server.stop()) }))
  const { version } = await store.events.append('order-1', paid)
  await server.restart()
  await isUp()
  const between = await readState(move)
  const after = await outcome(switchOver(move, { beforeRelease: () => server.stop() }))
  const late = await outcome(store.events.append('order-1', paid))
  await server.restart()
  await isUp()

  expect(before.error).toMatchObject({ code: expect.stringMatching(/connection_lost|outcome_unknown/) })
  expect([version, between]).toEqual([2, 'copying'])
  expect(after.error).toBeDefined()
  expect(late.error).toBeDefined()
  expect([await readState(move), await ownersOf(move)]).toEqual(['switched', []])
  await activate(move)
  expect(await ownersOf(move)).toEqual(['target'])
})
