import pg from 'pg'
import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.ts'
import { sql } from '../../../src/database/sql.ts'
import { useShop } from './shop.ts'

export function exerciseStatements(open: () => Promise<Database>): void {
  const shop = useShop(open)

  test('an int8 is returned as a number, up to the greatest that is exact', async () => {
    const total = Number.MAX_SAFE_INTEGER

    const rows = await shop().database.run(
      sql`select ${total}::bigint as total, ${-total}::bigint as debt, 7::bigint as seven`,
    )

    expect(rows).toEqual([{ total, debt: -total, seven: 7 }])
  })

  test('an int8 that a number cannot hold exactly is refused with the advice to cast it, and the next query works', async () => {
    const tooLarge = shop().database.run(sql`select 9007199254740993::bigint as total`)

    await expect(tooLarge).rejects.toMatchObject({
      code: 'integer_too_large',
      value: '9007199254740993',
      message: expect.stringContaining('::text'),
    })
    expect(await shop().database.run(sql`select 9007199254740993::text as total`)).toEqual([
      { total: '9007199254740993' },
    ])
  })

  test('an int8 that a number cannot hold exactly is refused with the advice to cast it, and the next query works', async () => {
    const tooLarge = shop().database.run(sql`select 9007199254740993::bigint as total`)

    await expect(tooLarge).rejects.toMatchObject({
      code: 'integer_too_large',
      value: '9007199254740993',
      message: expect.stringContaining('::text'),
    })
    expect(await shop().database.run(sql`select 9007199254740993::text as total`)).toEqual([
      { total: '9007199254740993' },
    ])
  })

  test('a timestamptz is returned as a Date, and a Date is stored as the same moment', async () => {
    const noon = new Date('2026-11-15T12:00:00.123Z')

    const rows = await shop().database.run(sql`
      select
        ${noon}::timestamptz as noon,
        ${noon}::timestamptz = '2026-11-15 17:45:00.123+05:45'::timestamptz as same,
        '1815-12-10 00:00:00+00'::timestamptz as past`)

    expect(rows).toEqual([{ noon, same: true, past: new Date('1815-12-10T00:00:00Z') }])
  })

  test('jsonb and json are returned parsed', async () => {
    const order = { id: 'order-42', lines: [{ tea: 2 }, null, 'ünïcödé 🫖', true, 1.5], 'a "quoted"\n\\ key': {} }
    const text = JSON.stringify(order)

    const rows = await shop().database.run(sql`
      select ${text}::jsonb as b, ${text}::json as j, '"text"'::jsonb as t, 'null'::jsonb as n`)

    expect(rows).toEqual([{ b: order, j: order, t: 'text', n: null }])
  })

  test('an int8 array is stored and returned as numbers', async () => {
    const ids = [1, -5, 2 ** 53 - 1]

    const rows = await shop().database.run(sql`
      select ${ids}::bigint[] as ids, ${[]}::bigint[] as none, array[1, null]::bigint[] as gap`)

    expect(rows).toEqual([{ ids, none: [], gap: [1, null] }])
  })

  test('a text array may contain quotes, commas, braces, backslashes and nulls', async () => {
    const notes = ['plain', 'a "quoted" one', 'a, b', '{x}', 'back\\slash', '', 'NULL', null, 'two\nlines']

    const rows = await shop().database.run(sql`
      select u.note from unnest(${notes}::text[]) with ordinality as u(note, n) order by u.n`)

    expect(rows.map(row => row.note)).toEqual(notes)
  })

  test('booleans, numbers, text, bytes and null are returned with their types', async () => {
    const text = 'tab\t, "quotes", \'single\', back\\slash, ünïcödé 🫖, \u200b, $1'

    const [row] = await shop().database.run(sql`
      select
        ${true}::boolean as yes, false as no, ${42}::integer as int, 1.5::float8 as float, ${text}::text as text,
        ${null}::text as nothing, ${undefined}::text as missing, ${Buffer.from([0, 1, 255])}::bytea as bytes`)

    expect(row).toMatchObject({ yes: true, no: false, int: 42, float: 1.5, text, nothing: null, missing: null })
    expect([...(row!.bytes as Uint8Array)]).toEqual([0, 1, 255])
  })

  test("the driver's global parsers are not changed", async () => {
    await shop().database.run(sql`select 1::bigint, now(), '{}'::jsonb`)

    expect(pg.types.getTypeParser(20)('9007199254740993')).toBe('9007199254740993')
  })

  test('rows as arrays keep the order of columns, even of two with the same name', async () => {
    const rows = await shop().database.runArrays(sql`
      select n::bigint as n, 'order-' || n as n, null as nothing from generate_series(1, 2) as n`)

    expect(rows).toEqual([
      [1, 'order-1', null],
      [2, 'order-2', null],
    ])
  })

  test('a statement without rows returns an empty list', async () => {
    const { database, orders } = shop()

    expect(await database.run(sql`delete from ${orders}`)).toEqual([])
    expect(await database.runArrays(sql`select id from ${orders}`)).toEqual([])
  })

  test('a statement commits on its own', async () => {
    const { database, place, placed } = shop()

    await place(database, 1)

    expect(await placed()).toEqual([1])
  })

  test('a statement that fails leaves nothing behind, and the next one works', async () => {
    const { database, orders, place, placed } = shop()
    await place(database, 2)

    const both = database.run(sql`insert into ${orders} (id) values (1), (2)`)

    await expect(both).rejects.toMatchObject({ code: 'database_failed', sqlState: '23505' })
    expect(await placed()).toEqual([2])
  })

  test('a statement runs at read committed', async () => {
    const rows = await shop().database.run(sql`select current_setting('transaction_isolation') as level`)

    expect(rows).toEqual([{ level: 'read committed' }])
  })

  test("an error names the statement and its SQLSTATE, and has the driver's error as its cause", async () => {
    const failing = shop().database.run(sql`/* shop.share */ select 1 / ${0}::integer`)

    await expect(failing).rejects.toMatchObject({
      code: 'database_failed',
      statement: 'shop.share',
      sqlState: '22012',
      retryable: false,
      message: expect.stringContaining('shop.share'),
      cause: expect.objectContaining({ code: '22012' }),
    })
  })

  test('a constraint that is checked at the end of a statement fails it', async () => {
    const { database, orders } = shop()
    await database.run(sql`alter table ${orders} add constraint one_note unique (note) deferrable initially deferred`)

    const twice = database.run(sql`insert into ${orders} values (1, 'same'), (2, 'same')`)

    await expect(twice).rejects.toMatchObject({ sqlState: '23505' })
  })

  test('a hundred calls at once each get their own answer', async () => {
    const { database, place, placed } = shop()
    const numbers = Array.from({ length: 100 }, (_, n) => n)

    const answers = await Promise.all(numbers.map(n => database.run(sql`select ${n}::integer as n`)))
    await Promise.all(numbers.map(n => place(database, n)))

    expect(answers.map(rows => rows[0]!.n)).toEqual(numbers)
    expect(await placed()).toEqual(numbers)
  })

  test('a failing call among many fails alone', async () => {
    const { database } = shop()

    const outcomes = await Promise.allSettled(
      [1, 2, 0, 4].map(n => database.run(sql`/* shop.share */ select 8 / ${n}::integer as share`)),
    )

    expect(outcomes.map(outcome => outcome.status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled'])
  })
}
