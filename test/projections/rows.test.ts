import { expect, test } from 'vitest'
import {
  and,
  between,
  contains,
  eq,
  exists,
  gt,
  isIn,
  isNull,
  like,
  lt,
  not,
  search,
  startsWith,
} from '../../src/documents/query/condition.ts'
import { lower } from '../../src/documents/query/field.ts'
import { avg, count, max, sum } from '../../src/documents/query/group.ts'
import { defineDocumentProjection } from '../../src/projections/document-projection.ts'
import { defineTableProjection } from '../../src/projections/table-projection.ts'
import { onServer, openShop, placed, type Shop, shopEvents } from '../support/shop.ts'
import { openTenantStore } from '../support/tenant-store.ts'

const sales = defineTableProjection('sales', {
  events: shopEvents,
  columns: {
    customer: 'text',
    day: 'integer',
    orders: 'bigint',
    spent: 'numeric',
    share: 'double precision',
    note: 'text',
    at: 'timestamptz',
    is_known: 'boolean',
    last: 'jsonb',
    event: 'uuid',
  },
  primaryKey: ['customer', 'day'],
  indexes: [['orders'], ['note']],
  on: {
    OrderPlaced: ({ id, stream, version, data, createdAt }, row) => {
      const isFirst = version === 1
      return row(
        { customer: stream, day: version },
        {
          increment: { orders: data.total, spent: data.total / 10, share: data.total / 3 },
          set: isFirst
            ? { note: data.note, at: createdAt, is_known: true, last: { tags: ['vip'], n: 1 }, event: id }
            : {},
        },
      )
    },
  },
})

const orders = (total: number, note = ''): ReturnType<typeof placed> => ({
  type: 'OrderPlaced',
  data: { total, ...(note === '' ? {} : { note }) },
})

async function openSales(): Promise<Shop> {
  const shop = await openShop()
  await shop.store.register(sales)
  await shop.store.events.append('ada', [orders(5, 'a gift of Tea'), orders(7)])
  await shop.store.events.append('bob', [orders(1, 'teapots')])
  await shop.store.events.append('Eve', [orders(12)])
  await shop.store.consumers.runUntilIdle()
  return shop
}

test('rows are read as their columns are declared', async () => {
  const { store } = await openSales()
  const [first] = await store.events.read('ada').toArray()

  expect(
    await store
      .rows(sales)
      .where(row => and(eq(row.customer, 'ada'), eq(row.day, 1)))
      .one(),
  ).toEqual({
    customer: 'ada',
    day: 1,
    orders: 5,
    spent: '0.5',
    share: 5 / 3,
    note: 'a gift of Tea',
    at: first!.createdAt,
    is_known: true,
    last: { tags: ['vip'], n: 1 },
    event: first!.id,
  })
  expect(
    await store
      .rows(sales)
      .where(row => eq(row.day, 2))
      .one(),
  ).toMatchObject({ note: null, at: null, last: null })
})

test('the conditions of documents hold for columns, each by its type', async () => {
  const { store } = await openSales()
  const [first] = await store.events.read('ada').toArray()
  const rows = store.rows(sales)
  const found: Record<string, [typeof rows, string[]]> = {
    'equal text': [rows.where(row => eq(row.customer, 'bob')), ['bob 1']],
    'equal whole numbers': [rows.where(row => eq(row.orders, 7)), ['ada 2']],
    'a number that no row can have': [rows.where(row => gt(row.orders, 6.5)), ['Eve 1', 'ada 2']],
    'exact decimals': [rows.where(row => eq(row.spent, '0.50')), ['ada 1']],
    'more than a decimal': [rows.where(row => gt(row.spent, '0.6')), ['Eve 1', 'ada 2']],
    'one of some decimals': [rows.where(row => isIn(row.spent, ['0.1', '7'])), ['bob 1']],
    'a numeric by number': [rows.where(row => gt(row.spent as never, 0.5)), ['Eve 1', 'ada 2']],
    'a double': [rows.where(row => between(row.share, 1, 2)), ['ada 1']],
    'less, by code points': [rows.where(row => lt(row.customer, 'a')), ['Eve 1']],
    'one of a list': [rows.where(row => isIn(row.customer, ['ada', 'nobody'])), ['ada 1', 'ada 2']],
    'one of some numbers': [rows.where(row => isIn(row.day, [2, 3])), ['ada 2']],
    'a uuid': [rows.where(row => eq(row.event, first!.id)), ['ada 1']],
    'a text that is not a uuid': [rows.where(row => eq(row.event, 'nonsense')), []],
    // Other events may have the same millisecond.
    'a time': [rows.where(row => and(eq(row.at, first!.createdAt), eq(row.customer, 'ada'))), ['ada 1']],
    'later than a time': [rows.where(row => gt(row.at, new Date('2020-01-01'))), ['Eve 1', 'ada 1', 'bob 1']],
    true: [rows.where(row => eq(row.is_known, true)), ['Eve 1', 'ada 1', 'bob 1']],
    null: [rows.where(row => isNull(row.note)), ['Eve 1', 'ada 2']],
    'not null': [rows.where(row => exists(row.note)), ['ada 1', 'bob 1']],
    not: [rows.where(row => not(eq(row.is_known, true))), ['ada 2']],
    'a beginning': [rows.where(row => startsWith(row.note, 'tea')), ['bob 1']],
    'a pattern': [rows.where(row => like(row.note, '%gift%')), ['ada 1']],
    'lower case': [rows.where(row => eq(lower(row.customer), 'eve')), ['Eve 1']],
    'full text': [rows.where(row => search(row.note, 'teas')), ['ada 1']],
    'a part of JSON': [
      rows.where(row => contains(row.last as never, { tags: ['vip'] } as never)),
      ['Eve 1', 'ada 1', 'bob 1'],
    ],
    'a field in JSON': [
      rows.where(row => eq((row.last as unknown as { n: never }).n, 1 as never)),
      ['Eve 1', 'ada 1', 'bob 1'],
    ],
  }

  for (const [what, [query, expected]] of Object.entries(found)) {
    const names = (await query.toArray()).map(({ customer, day }) => `${customer} ${day}`)
    expect(names.sort(), what).toEqual(expected)
    expect(await query.count(), what).toBe(expected.length)
    expect(await query.exists(), what).toBe(expected.length > 0)
  }
})

test('rows are ordered by their columns, and come in pages of one order', async () => {
  const { store } = await openSales()
  const rows = store.rows(sales)
  const names = (found: readonly { customer: string; day: number }[]) => found.map(row => `${row.customer} ${row.day}`)

  expect(names(await rows.orderBy(row => row.orders, 'desc').toArray())).toEqual(['Eve 1', 'ada 2', 'ada 1', 'bob 1'])
  expect(
    names(
      await rows
        .orderBy(row => row.spent)
        .limit(2)
        .toArray(),
    ),
  ).toEqual(['bob 1', 'ada 1'])
  expect(await rows.orderBy(row => row.customer).first()).toMatchObject({ customer: 'Eve' })
  expect(
    names(
      await rows
        .orderBy(row => row.note, { nulls: 'first' })
        .orderBy(row => row.day)
        .toArray(),
    ),
  ).toEqual(['Eve 1', 'ada 2', 'ada 1', 'bob 1'])
  const orders = [
    rows,
    rows.orderBy(row => row.orders, 'desc'),
    rows.orderBy(row => row.share),
    rows.orderBy(row => row.note),
    rows.orderBy(row => row.at, { direction: 'desc', nulls: 'last' }),
    rows.orderBy(row => row.event).orderBy(row => row.is_known),
    rows.orderBy(row => row.spent).orderBy(row => row.day, 'desc'),
  ]
  for (const [i, ordered] of orders.entries()) {
    const paged: string[] = []
    let after: string | undefined
    do {
      const page = await ordered.page({ after, limit: 1 })
      paged.push(...names(page.items))
      after = page.next
    } while (after !== undefined)
    expect(paged, `order ${i}`).toEqual(names(await ordered.offset(0).toArray()))
    const iterated: string[] = []
    for await (const row of ordered.iterate({ pageSize: 3 })) iterated.push(...names([row]))
    expect(iterated, `order ${i}`).toEqual(paged)
  }
  expect(await rows.pageNumber(2, 3)).toMatchObject({ total: 4, page: 2, pages: 2 })
  await expect(rows.page({ after: 'nonsense' })).rejects.toMatchObject({ code: 'invalid_cursor' })
})

test('columns are selected, and rows grouped', async () => {
  const { store } = await openSales()
  const rows = store.rows(sales)

  expect(
    await rows
      .where(row => eq(row.customer, 'ada'))
      .orderBy(row => row.day)
      .select({ total: row => row.spent, orders: row => row.orders, note: row => row.note })
      .toArray(),
  ).toEqual([
    { total: '0.5', orders: 5, note: 'a gift of Tea' },
    { total: '0.7', orders: 7, note: null },
  ])
  expect(
    await rows
      .groupBy({ customer: row => row.customer }, row => ({
        n: count(),
        all: sum(row.orders),
        mean: avg(row.orders),
        top: max(row.share),
      }))
      .having(group => gt(group.all as never, 1))
      .orderBy(group => group.customer)
      .toArray(),
  ).toEqual([
    { customer: 'Eve', n: 1, all: 12, mean: 12, top: 4 },
    { customer: 'ada', n: 2, all: 12, mean: 6, top: 7 / 3 },
  ])
  const byTime = await rows.groupBy({ at: row => row.at, spent: row => row.spent }, () => ({ n: count() })).toArray()
  expect(byTime.filter(each => each.at !== null).every(each => each.at instanceof Date)).toBe(true)
  expect(byTime.map(each => each.spent).sort()).toEqual(['0.1', '0.5', '0.7', '1.2'])
})

test('a column that does not exist is refused by its name, and so are fields that rows do not have', async () => {
  const { store } = await openSales()
  const rows = store.rows(sales) as never as ReturnType<typeof store.rows<Record<string, Record<string, string>>>>

  await expect(rows.where(row => eq(row.custmer!, 'ada' as never)).toArray()).rejects.toThrow(/did you mean "customer"/)
  await expect(rows.where(row => eq(row.spent as never, 'much')).toArray()).rejects.toThrow(/holds decimal numbers/)
  await expect(rows.where(row => eq(row.customer!.name!, 'ada')).toArray()).rejects.toThrow(/"customer" has no fields/)
  await expect(rows.where(((_: never, meta: { id: never }) => eq(meta.id, 'x')) as never).toArray()).rejects.toThrow(
    /rows have columns and nothing else/,
  )
})

test('a projection that never ran has no rows, inside and outside of a transaction', async () => {
  const shop = await openShop()
  const { store } = shop
  const rows = store.rows(sales)

  expect(await rows.where(row => gt(row.orders, 1)).toArray()).toEqual([])
  expect([await rows.count(), await rows.exists(), await rows.first()]).toEqual([0, false, undefined])
  expect(await rows.page()).toEqual({ items: [], next: undefined })
  expect(await rows.groupBy({}, row => ({ n: count(), all: sum(row.orders) })).toArray()).toEqual([{ n: 0, all: null }])
  expect(await store.transaction(tx => rows.count({ tx }))).toBe(0)

  await store.register(sales)
  await store.events.append('ada', placed(5))
  await store.consumers.runUntilIdle()
  expect(await rows.count()).toBe(1)
})

test('rows are those of the version, and of the store, that is asked', async () => {
  const [one, two] = [await openSales(), await openShop()]
  const second = defineTableProjection('sales', {
    version: 2,
    events: shopEvents,
    columns: { customer: 'text', orders: 'integer' },
    primaryKey: ['customer'],
    on: { OrderPlaced: ({ stream }, row) => row({ customer: stream }, { increment: { orders: 1 } }) },
  })
  await one.store.register(second)
  await one.store.consumers.runUntilIdle()
  await two.store.register(sales)

  expect(
    await one.store
      .rows(second)
      .where(row => eq(row.customer, 'ada'))
      .toArray(),
  ).toEqual([{ customer: 'ada', orders: 2 }])
  expect(await one.store.rows(sales).count()).toBe(4)
  expect(await two.store.rows(sales).count()).toBe(0)
})

test('rows are all there while a rebuild replaces the table', async () => {
  const { store } = await openSales()
  let isRebuilding = true
  const seen = new Set<number>()
  const reading = (async () => {
    while (isRebuilding) {
      seen.add(await store.rows(sales).count())
      await new Promise(setImmediate)
    }
  })()

  for (let n = 0; n < 3; n++) await store.projections.rebuild(sales)
  isRebuilding = false
  await reading

  expect([...seen]).toEqual([4])
})

test('a transaction reads the rows it has written itself', async () => {
  const { store } = await openShop()
  await store.register({ ...sales, lifecycle: 'inline' })

  const seen = await store.transaction(async tx => {
    await store.events.append('ada', placed(5), { tx })
    return store.rows(sales).first({ tx })
  })

  expect(seen).toMatchObject({ customer: 'ada', orders: 5 })
})

test('a whole number that could not be read exactly is not written', async () => {
  const { store } = await openShop()
  const counts = defineTableProjection('counts', {
    events: shopEvents,
    columns: { id: 'text', count: 'bigint' },
    primaryKey: ['id'],
    on: {
      OrderPlaced: ({ stream, data }, row) => row({ id: stream }, { increment: { count: data.total } }),
      OrderPaid: ({ stream }, row) => row({ id: stream }, { set: { count: 2n ** 60n } }),
    },
  })
  await store.register({ ...counts, lifecycle: 'inline' })
  await store.events.append('a', placed(Number.MAX_SAFE_INTEGER))

  await expect(store.events.append('a', placed(1))).rejects.toMatchObject({
    code: 'inline_projection_failed',
    cause: { code: 'invalid_projection_value', path: 'column count' },
  })
  await expect(store.events.append('a', { type: 'OrderPaid', data: { method: 'card' } })).rejects.toMatchObject({
    code: 'inline_projection_failed',
  })
  expect(await store.rows(counts).one()).toEqual({ id: 'a', count: Number.MAX_SAFE_INTEGER })
})

test('a handler that calls row without returning it fails on its event, and so does one that returns something else', async () => {
  const { store } = await openShop()
  for (const [i, [handler, message]] of [
    [(_: unknown, row: (key: object, change: object) => unknown) => void row({ id: 'a' }, {}), /calls row\(\) 1 times/],
    [() => ({ set: {} }), /returns an object/],
  ].entries()) {
    const name = `lost${i}`
    const lost = defineTableProjection(name, {
      columns: { id: 'text' },
      primaryKey: ['id'],
      on: { OrderPlaced: handler as never },
    })
    await store.register({ ...lost, lifecycle: 'inline' })
    const failing = store.events.append('a', placed())
    await expect(failing).rejects.toMatchObject({ code: 'inline_projection_failed' })
    await expect(failing).rejects.toThrow(message as RegExp)
    await store.projections.switch(name, { lifecycle: 'async' })
  }
})

test.runIf(onServer)('a condition on a column is served by an index on it', async () => {
  const { store } = await openShop()
  await store.register(sales)
  await store.events.appendMany(
    Array.from({ length: 3_000 }, (_, i) => ({ stream: `c${i}`, events: [orders(i, `n${i}`)] })),
  )
  await store.consumers.runUntilIdle()
  await store.transaction(tx => tx.query(`analyze "${store.schema.name}".sales`))
  const rows = store.rows(sales)

  const plans = {
    sales_pkey: rows.where(row => and(eq(row.customer, 'c7'), eq(row.day, 1))),
    sales_orders: rows.where(row => gt(row.orders, 2_990)),
    sales_note: rows.where(row => eq(row.note, 'n7')),
  }
  for (const [index, query] of Object.entries(plans)) expect(await query.explain(), index).toContain(index)
  expect(
    await rows
      .orderBy(row => row.orders, 'desc')
      .limit(3)
      .explain(),
  ).toContain('sales_orders')
})

test('the documents and the rows of a projection are read for any tenant, with the whole query language', async () => {
  const counts = defineDocumentProjection('counts', {
    events: shopEvents,
    initial: () => ({ orders: 0 }),
    evolve: { OrderPlaced: ({ orders }) => ({ orders: orders + 1 }) },
  })
  const notes = defineTableProjection('notes', {
    events: shopEvents,
    columns: { note: 'text', orders: 'integer' },
    primaryKey: ['note'],
    on: { OrderPlaced: ({ data }, row) => row({ note: data.note ?? '' }, { increment: { orders: 1 } }) },
  })
  const store = await openTenantStore({ projections: [counts, notes] })
  for (const [name, orders] of Object.entries({ acme: 1, globex: 2 })) {
    await store.tenants.ensure(name)
    const tenant = store.tenant(name)
    for (let n = 0; n < orders; n++) await tenant.events.append('order-1', placed(1, {}))
    await tenant.consumers.runUntilIdle()
  }

  const read = async (name: string) => [
    (
      await store
        .tenant(name)
        .documents(counts)
        .query()
        .where(c => gt(c.orders, 0))
        .toArray()
    ).map(({ data }) => data),
    await store
      .tenant(name)
      .rows(notes)
      .where(row => gt(row.orders, 0))
      .toArray(),
  ]
  expect(await read('acme')).toEqual([[{ orders: 1 }], [{ note: '', orders: 1 }]])
  expect(await read('globex')).toEqual([[{ orders: 2 }], [{ note: '', orders: 2 }]])
})
