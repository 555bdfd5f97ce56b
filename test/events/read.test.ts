import { expect, test } from 'vitest'
import type { RecordedEvent } from '../../src/events/definition.ts'
import type { ReadOptions } from '../../src/events/read/read.ts'
import { openShop, outcome, placed, take } from '../support/shop.ts'

const versions = (events: readonly RecordedEvent[]): number[] => events.map(event => event.version)
const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1)
const orders = (count: number) => upTo(count).map(n => placed(n))

const ranges: [options: ReadOptions, expected: number[]][] = [
  [{}, [1, 2, 3, 4, 5, 6, 7]],
  [{ direction: 'backwards' }, [7, 6, 5, 4, 3, 2, 1]],
  [{ from: 3 }, [3, 4, 5, 6, 7]],
  [{ from: 0 }, [1, 2, 3, 4, 5, 6, 7]],
  [{ after: 3 }, [4, 5, 6, 7]],
  [{ from: 2, after: 4 }, [5, 6, 7]],
  [{ to: 3 }, [1, 2, 3]],
  [{ from: 3, to: 5 }, [3, 4, 5]],
  [{ from: 3, to: 5, direction: 'backwards' }, [5, 4, 3]],
  [{ after: 3, to: 5, direction: 'backwards', limit: 1 }, [5]],
  [{ limit: 2 }, [1, 2]],
  [{ limit: 2, direction: 'backwards' }, [7, 6]],
  [{ limit: 0 }, []],
  [{ from: 8 }, []],
  [{ from: 5, to: 4 }, []],
  [{ to: 0 }, []],
]

test('a stream is read in either direction, from, after and to a version, up to a limit, at any page size', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', orders(7))
  await store.events.append('order-43', orders(3))

  for (const [options, expected] of ranges) {
    for (const pageSize of [undefined, 1, 2, 3, 7, 100]) {
      const events = await store.events.read('order-42', { ...options, pageSize }).toArray()

      expect(versions(events), JSON.stringify({ ...options, pageSize })).toEqual(expected)
    }
  }
})

test('a stream is read since and until a time, both included', async () => {
  const { store } = await openShop()
  const at = (minute: number): Date => new Date(Date.UTC(2026, 2, 1, 9, minute))
  await store.events.import(upTo(5).map(n => ({ stream: 'order-42', ...placed(n), createdAt: at(n) })))
  const read = (options: ReadOptions) => store.events.read('order-42', options).toArray()

  expect(versions(await read({ since: at(3) }))).toEqual([3, 4, 5])
  expect(versions(await read({ until: at(3) }))).toEqual([1, 2, 3])
  expect(versions(await read({ since: at(2), until: at(4), direction: 'backwards', pageSize: 1 }))).toEqual([4, 3, 2])
  expect(versions(await read({ since: at(2), after: 3 }))).toEqual([4, 5])
  expect(versions(await read({ until: at(0) }))).toEqual([])
})

test('a stream that does not exist reads as empty', async () => {
  const { store } = await openShop()

  expect(await store.events.read('order-42').toArray()).toEqual([])
  expect(await store.events.read('order-42', { direction: 'backwards' }).first()).toBeUndefined()
})

test('a sequence can be read again, and each read sees the events stored by then', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', orders(2))
  const events = store.events.read('order-42')
  const before = await events.toArray()

  await store.events.append('order-42', placed(3))

  expect(versions(before)).toEqual([1, 2])
  expect(versions(await events.toArray())).toEqual([1, 2, 3])
  expect((await events.first())!.version).toBe(1)
})

test('20 000 events are read with at most two pages in memory at a time', async () => {
  const { store } = await openShop()
  await store.events.import(Array.from({ length: 20_000 }, (_, n) => ({ stream: 'order-42', ...placed(n) })))
  const before = store.metrics().events_read_total
  const pageSize = 100
  let given = 0
  let most = 0
  let gaps = 0

  for await (const event of store.events.read('order-42', { pageSize })) {
    given++
    most = Math.max(most, store.metrics().events_read_total - before - given)
    if (event.version !== given) gaps++
  }

  expect([given, gaps]).toEqual([20_000, 0])
  expect(most).toBeLessThanOrEqual(2 * pageSize)
})

test('a reader that stops early causes no further queries', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', orders(50))
  const before = store.metrics().events_read_total

  const taken = await take(store.events.read('order-42', { pageSize: 10 }), 3)
  await store.events.append('order-42', placed())

  expect(versions(taken)).toEqual([1, 2, 3])
  expect(store.metrics().events_read_total - before).toBeLessThanOrEqual(20)
})

test('a read ends when its signal aborts, before it begins and in the middle', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', orders(10))
  const abort = new AbortController()
  const seen: number[] = []

  const reading = (async () => {
    for await (const event of store.events.read('order-42', { signal: abort.signal, pageSize: 2 })) {
      seen.push(event.version)
      if (event.version === 5) abort.abort('enough')
    }
  })()

  await expect(reading).rejects.toMatchObject({ code: 'aborted', cause: 'enough' })
  expect(seen).toEqual([1, 2, 3, 4, 5])
  await expect(store.events.read('order-42', { signal: abort.signal }).toArray()).rejects.toMatchObject({
    code: 'aborted',
  })
  await expect(store.events.readAll({ signal: abort.signal }).toArray()).rejects.toMatchObject({ code: 'aborted' })
})

const wrong: [option: string, options: object][] = [
  ['from', { from: -1 }],
  ['after', { after: 1.5 }],
  ['to', { to: Number.NaN }],
  ['limit', { limit: -1 }],
  ['pageSize', { pageSize: 0 }],
  ['since', { since: new Date(Number.NaN) }],
  ['until', { until: '2026-03-01' }],
  ['direction', { direction: 'sideways' }],
]

test('invalid options of a read are refused with their name', async () => {
  const { store } = await openShop()

  for (const [option, options] of wrong) {
    const { error } = await outcome(store.events.read('order-42', options).toArray())

    expect(error, option).toMatchObject({ code: 'invalid_option', option })
  }
})

test('an event is found by its id, in upper or lower case; an unknown or malformed id finds none', async () => {
  const { store } = await openShop()
  const { eventIds } = await store.events.append('order-42', placed(7))
  const id = eventIds[0]!

  const found = await store.events.get(id.toUpperCase())

  expect(found).toMatchObject({ id, stream: 'order-42', data: { total: 7 } })
  expect(await store.events.has(id)).toBe(true)
  for (const other of ['0190b2f0-6a1c-7def-8123-456789abcdef', 'order-42', '', '{}', `${id}\0`]) {
    expect(await store.events.get(other)).toBeUndefined()
    expect(await store.events.has(other)).toBe(false)
  }
})
