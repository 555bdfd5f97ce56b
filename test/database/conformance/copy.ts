import { expect, test } from 'vitest'
import { CopiedLine, copyField } from '../../../src/database/copy-text.ts'
import type { Database } from '../../../src/database/database.ts'
import { sql } from '../../../src/database/sql.ts'
import { useShop } from './shop.ts'

const notes = [
  'plain',
  'tab\tnew line\ncarriage return\r\nend',
  'back\\slash, \\t, \\N, \\.',
  'ünïcödé 🫖 \u2028 \ufeff',
  '',
  '\\N',
  ' spaces ',
  undefined,
  '\b\f\v\u0001',
]
const rows = notes.map((note, id) => `${id}\t${copyField(note)}\n`).join('')

export function exerciseCopy(open: () => Promise<Database>): void {
  const shop = useShop(open)

  test('copied values are stored unchanged: tabs, new lines, backslashes, unicode and nulls', async () => {
    const { database, orders } = shop()

    await database.transaction(tx => tx.copyIn(orders.quoted, ['id', 'note'], rows))

    const stored = await database.runArrays(sql`select id, note from ${orders} order by id`)
    expect(stored).toEqual(notes.map((note, id) => [Number(id), note ?? null]))
  })

  test('rows copied out can be read and copied in again', async () => {
    const { database, orders } = shop()
    await database.transaction(tx => tx.copyIn(orders.quoted, ['id', 'note'], rows))

    const text = String(await database.copyOut(`select id, note from ${orders} order by id`))

    const line = new CopiedLine(Buffer.from(text))
    const fields: [number, string | undefined][] = []
    while (line.next()) fields.push([line.number(), line.textOrNull() ?? undefined])
    expect(fields).toEqual(notes.map((note, at) => [at, note]))
    await database.run(sql`delete from ${orders}`)
    await database.transaction(tx => tx.copyIn(orders.quoted, ['id', 'note'], text))
    expect(String(await database.copyOut(`select id, note from ${orders} order by id`))).toBe(text)
  })

  test('columns are given by name, whatever characters it has', async () => {
    const { database, orders } = shop()
    await database.run(sql`alter table ${orders} add column "Paid ""in"" full" boolean`)

    await database.transaction(tx => tx.copyIn(orders.quoted, ['Paid "in" full', 'id'], 't\t1\n'))

    expect(String(await database.copyOut(`select * from ${orders}`))).toBe('1\t\\N\tt\n')
  })

  test('many rows are copied in and out whole', async () => {
    const { database, orders } = shop()
    const many = Array.from({ length: 20_000 }, (_, id) => `${id}\t${'tea '.repeat(20)}${id} 🫖\n`).join('')

    await database.transaction(tx => tx.copyIn(orders.quoted, ['id', 'note'], many), { timeoutMs: 60_000 })

    expect(String(await database.copyOut(`select id, note from ${orders} order by id`))).toBe(many)
  })

  test('copying nothing is not an error', async () => {
    const { database, orders } = shop()

    await database.transaction(tx => tx.copyIn(orders.quoted, ['id', 'note'], ''))

    expect(String(await database.copyOut(`select id from ${orders}`))).toBe('')
  })

  test('rows copied in are undone with their transaction', async () => {
    const { database, orders, placed } = shop()

    const failing = database.transaction(async tx => {
      await tx.copyIn(orders.quoted, ['id', 'note'], rows)
      throw new Error('out of tea')
    })

    await expect(failing).rejects.toThrow('out of tea')
    expect(await placed()).toEqual([])
  })

  test('statements before and after a copy in one transaction keep their order', async () => {
    const { database, orders, place, placed } = shop()

    await database.transaction(async tx => {
      void place(tx, 1)
      await tx.copyIn(orders.quoted, ['id', 'note'], '2\tcopied\n')
      await tx.run(sql`delete from ${orders} where id = 1`)
    })

    expect(await placed()).toEqual([2])
  })

  test('rows that do not fit are refused with the SQLSTATE, and the database stays usable', async () => {
    const { database, orders, placed } = shop()
    const copy = (text: string) => database.transaction(tx => tx.copyIn(orders.quoted, ['id', 'note'], text))

    await expect(copy('tea\tx\n')).rejects.toMatchObject({ code: 'database_failed', sqlState: '22P02' })
    await expect(copy('1\ta\n1\tb\n')).rejects.toMatchObject({ code: 'database_failed', sqlState: '23505' })
    expect(await placed()).toEqual([])
  })

  test('a copy out that fails halfway leaves nothing to the next one', async () => {
    const { database } = shop()

    const failing = database.copyOut('select 10 / (5 - n) from generate_series(1, 9) as n')

    await expect(failing).rejects.toMatchObject({ code: 'database_failed', sqlState: '22012', statement: 'copy' })
    expect(String(await database.copyOut('select 1'))).toBe('1\n')
  })
}
