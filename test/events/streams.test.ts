import { expect, test } from 'vitest'
import { openShop, outcome, paid, placed, shipped } from '../support/shop.ts'

const bare = '0190b2f0-6a1c-7def-8123-456789abcdef'

test('a stream is described by its version, times, last position and state', async () => {
  const { store } = await openShop()
  const { position } = await store.events.append('order-42', [placed(), paid])
  const last = await store.events.read('order-42', { direction: 'backwards' }).first()

  const described = await store.streams.describe('order-42')

  expect({ ...described }).toEqual({
    stream: 'order-42',
    category: 'order',
    version: 2,
    createdAt: expect.any(Date),
    lastEventAt: last!.createdAt,
    lastPosition: position,
    state: 'open',
    archivedAt: undefined,
    reason: undefined,
  })
  expect(await store.streams.describe('order-43')).toBeUndefined()
})

test('streams are listed by name, in pages', async () => {
  const { store } = await openShop()
  const names = ['order-1', 'order-10', 'order-2', 'Order-1', 'zürich-1', 'zurich-1', '漢字-1', 'order']
  for (const name of names) await store.events.append(name, placed())
  const byBytes = [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))

  const pages: string[][] = []
  let after: string | undefined
  do {
    const page = await store.streams.list({ after, limit: 3 })
    pages.push(page.items.map(each => each.stream))
    after = page.next
  } while (after !== undefined)

  expect(pages.map(page => page.length)).toEqual([3, 3, 2])
  expect(pages.flat()).toEqual(byBytes)
  expect((await store.streams.list()).items.map(each => each.stream)).toEqual(byBytes)
})

test('streams are listed by category: the part before the first dash; a bare uuid has none', async () => {
  const { store } = await openShop()
  const names = ['order', 'order-1', 'order-1-2', 'order.1', 'order1-1', 'ordering-1', bare, `order-${bare}`, '-x']
  for (const name of names) await store.events.append(name, placed())
  const list = async (category: string, more = {}): Promise<string[]> =>
    (await store.streams.list({ category, ...more })).items.map(each => each.stream)

  expect(await list('order')).toEqual(['order', `order-${bare}`, 'order-1', 'order-1-2'])
  const { next } = await store.streams.list({ category: 'order', limit: 1 })
  expect(await list('order', { after: next, limit: 2 })).toEqual([`order-${bare}`, 'order-1'])
  const { next: last } = await store.streams.list({ category: 'order', limit: 3 })
  expect(await list('order', { after: last })).toEqual(['order-1-2'])
  await expect(list('order', { after: 'order-1' })).rejects.toMatchObject({ code: 'invalid_option', option: 'after' })
  expect(await list('ordering')).toEqual(['ordering-1'])
  expect(await list(bare.slice(0, 8))).toEqual([])
  expect((await store.streams.list()).items.find(each => each.stream === bare)!.category).toBeUndefined()
  expect((await store.streams.list()).items.find(each => each.stream === 'order')!.category).toBe('order')
  await expect(list('')).rejects.toMatchObject({ code: 'invalid_name' })
  for (const limit of [0, -1, 10_001, 1.5]) {
    await expect(store.streams.list({ limit })).rejects.toMatchObject({ code: 'invalid_option', option: 'limit' })
  }
})

test('an archived stream refuses appends by default, keeps its numbering and is hidden from ordinary reads', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', [placed(), paid])

  await store.streams.archive('order-42', { reason: 'closed year' })

  await expect(store.events.append('order-42', shipped())).rejects.toMatchObject({
    code: 'stream_archived',
    stream: 'order-42',
  })
  expect(await store.events.read('order-42').toArray()).toEqual([])
  expect(await store.events.read('order-42', { direction: 'backwards' }).toArray()).toEqual([])
  expect(await store.events.read('order-42', { includeArchived: true }).toArray()).toHaveLength(2)
  expect((await store.streams.list()).items).toEqual([])
  expect((await store.streams.list({ state: 'archived' })).items).toMatchObject([
    { stream: 'order-42', state: 'archived', reason: 'closed year', version: 2, archivedAt: expect.any(Date) },
  ])
  expect((await store.streams.list({ state: 'all' })).items).toHaveLength(1)
  const reported = await store.events.append('order-42', shipped(), { allowArchived: true, expected: 2 })
  expect(reported.version).toBe(3)
  await expect(
    store.events.append('order-42', shipped(), { allowArchived: true, expected: 'empty' }),
  ).rejects.toMatchObject({ code: 'version_conflict', actual: 3 })
})

test('a restored stream is as it was before', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', [placed(), paid])
  const before = await store.streams.describe('order-42')

  await store.streams.archive('order-42', { reason: 'by mistake' })
  await store.streams.archive('order-42')
  await store.streams.restore('order-42')
  await store.streams.restore('order-42')

  expect(await store.streams.describe('order-42')).toEqual(before)
  expect(await store.events.read('order-42').toArray()).toHaveLength(2)
  expect(await store.events.append('order-42', shipped())).toMatchObject({ version: 3 })
})

test('a tombstoned stream has a tombstone as its last event and refuses appends forever', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', [placed(), paid])

  await store.streams.tombstone('order-42', { reason: 'asked to be forgotten' })
  await store.streams.tombstone('order-42')
  await store.streams.restore('order-42')

  for (const allowArchived of [false, true]) {
    const appending = store.events.append('order-42', shipped(), { allowArchived })
    await expect(appending).rejects.toMatchObject({ code: 'stream_tombstoned', stream: 'order-42' })
  }
  expect(await store.events.read('order-42').toArray()).toEqual([])
  const events = await store.events.read('order-42', { includeArchived: true }).toArray()
  expect(events.map(event => event.type)).toEqual(['OrderPlaced', 'OrderPaid', '$tombstone'])
  expect(events[2]!.data).toEqual({ reason: 'asked to be forgotten' })
  expect(await store.streams.describe('order-42')).toMatchObject({
    state: 'tombstoned',
    version: 3,
    reason: 'asked to be forgotten',
  })
})

test('an archived stream can be tombstoned', async () => {
  const { store } = await openShop()
  await store.events.append('order-42', placed())
  await store.streams.archive('order-42')

  await store.streams.tombstone('order-42')

  expect(await store.streams.describe('order-42')).toMatchObject({ state: 'tombstoned', version: 2 })
})

test('a stream that does not exist cannot be archived, restored or tombstoned, and is not created', async () => {
  const { store } = await openShop()

  for (const act of ['archive', 'restore', 'tombstone'] as const) {
    await expect(store.streams[act]('order-42'), act).rejects.toMatchObject({
      code: 'stream_not_found',
      stream: 'order-42',
    })
  }
  expect(await store.streams.describe('order-42')).toBeUndefined()
  expect(await store.events.head()).toBe(0)
})

test('archived and open streams of one group of appends each get their own outcome', async () => {
  const { store } = await openShop()
  await store.events.append('order-0', placed())
  await store.events.append('order-1', placed())
  await store.streams.archive('order-0')
  await store.streams.tombstone('order-1')

  const outcomes = await Promise.all(
    Array.from({ length: 12 }, (_, n) => outcome(store.events.append(`order-${n % 4}`, placed(n)))),
  )

  const codes = outcomes.map(each => (each.error as { code: string } | undefined)?.code ?? 'stored')
  expect(codes.slice(0, 4)).toEqual(['stream_archived', 'stream_tombstoned', 'stored', 'stored'])
  expect(codes.filter(code => code === 'stored')).toHaveLength(6)
})

test('an alias stands for one stream, created once, also under concurrent calls', async () => {
  const { store, sibling } = await openShop()
  const other = await sibling()

  const resolved = await Promise.all(
    Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? store : other).streams.resolve('orders:42')),
  )

  expect(new Set(resolved).size).toBe(1)
  expect(resolved[0]).toMatch(/^[0-9a-f-]{36}$/)
  expect(await store.streams.resolve('orders:43')).not.toBe(resolved[0])
  expect(await store.streams.describe(resolved[0]!)).toBeUndefined()
})

test('an alias with a category gives a stream of that category', async () => {
  const { store } = await openShop()

  const stream = await store.streams.resolve('orders:42', { category: 'order' })
  await store.events.append(stream, placed(), { expected: 'empty' })

  expect(stream).toMatch(/^order-[0-9a-f-]{36}$/)
  expect(await store.streams.resolve('orders:42')).toBe(stream)
  expect(await store.events.read(stream).toArray()).toHaveLength(1)
  expect(await store.events.readAll({ categories: ['order'] }).toArray()).toHaveLength(1)
  expect(await store.streams.describe(stream)).toMatchObject({ category: 'order', version: 1 })
})

test('an invalid alias, and a category that would change, are refused', async () => {
  const { store } = await openShop()

  await expect(store.streams.resolve('')).rejects.toMatchObject({ code: 'invalid_name', what: 'Alias' })
  await expect(store.streams.resolve('x'.repeat(256))).rejects.toMatchObject({ code: 'invalid_name' })
  for (const category of ['', 'web-order', 'x'.repeat(250)]) {
    await expect(store.streams.resolve('orders:42', { category }), category).rejects.toMatchObject({
      code: 'invalid_name',
    })
  }
})

test('streams are listed by the beginning of their name, also within a category', async () => {
  const { store } = await openShop()
  for (const stream of ['order-1', 'order-12', 'order-2', 'return-1'])
    await store.events.append(stream, { type: 'OrderPlaced', data: { total: 1 } })
  const named = async (options: object): Promise<string[]> =>
    (await store.streams.list(options)).items.map(({ stream }) => stream)

  expect(await named({ prefix: 'order-1' })).toEqual(['order-1', 'order-12'])
  expect(await named({ prefix: 'r' })).toEqual(['return-1'])
  expect(await named({ prefix: 'order-1', category: 'order' })).toEqual(['order-1', 'order-12'])
})

test('the categories of streams are found without looking at every stream', async () => {
  const { store } = await openShop()
  const names = [
    'order-1',
    'order-2',
    'order',
    'ordering-1',
    'return-1',
    '01936f1c-5d0e-7c11-a4e2-51a6e3c0a001',
    '-odd',
  ]
  for (const stream of names) await store.events.append(stream, { type: 'OrderPlaced', data: { total: 1 } })

  const { items, isWhole } = await store.streams.categories()

  expect(items.map(({ category }) => category)).toEqual(['order', 'ordering', 'return'])
  expect(isWhole).toBe(true)
})

test('an alias is found only after it was resolved', async () => {
  const { store } = await openShop()

  const before = await store.streams.find('cart of Ada')
  const stream = await store.streams.resolve('cart of Ada', { category: 'cart' })

  expect(before).toBeUndefined()
  expect(await store.streams.find('cart of Ada')).toBe(stream)
})
