import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type DeclaredTable, trustedSql } from '../../src/schema/table.ts'
import { type Fixture, useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

const columnNames = ['a', 'b', 'c', 'd']

const column = fc.record({
  name: fc.constantFrom(...columnNames),
  type: fc.constantFrom('text' as const, 'bigint' as const),
  nullable: fc.boolean(),
  default: fc.constantFrom(undefined, trustedSql`'7'`),
})

/** Any table that might be declared one day, by people who forget what they declared the day before. */
const declaration: fc.Arbitrary<DeclaredTable> = fc
  .uniqueArray(column, { selector: each => each.name, minLength: 1 })
  .chain(columns => {
    const names = columns.map(each => each.name)
    const index = fc.record({
      name: fc.constantFrom('orders_x', 'orders_y', 'orders_z'),
      columns: fc.uniqueArray(fc.constantFrom(...names), { minLength: 1 }),
      where: fc.constantFrom(undefined, trustedSql`id > 0`),
    })
    return fc.record({
      name: fc.constant('orders'),
      columns: fc.constant([{ name: 'id', type: 'bigint' as const }, ...columns]),
      primaryKey: fc.constant(['id']),
      indexes: fc.uniqueArray(index, { selector: each => each.name }),
    })
  })

test('for any next declaration, with or without rows, a sync succeeds, keeps all rows and leaves an empty plan', async () => {
  const day = fc.record({ table: declaration, addsRow: fc.boolean() })
  await fc.assert(
    fc.asyncProperty(fc.array(day, { minLength: 2, maxLength: 5 }), async days => {
      const fixture = make()
      let rows = 0
      for (const { table, addsRow } of days) {
        const schema = fixture.as({ tables: [table] })

        const done = await schema.sync()

        expect(await schema.plan()).toEqual({ steps: [], problems: done.problems })
        expect(await schema.check()).toMatchObject({ isHealthy: done.problems.length === 0, problems: done.problems })
        if (addsRow) await addRow(fixture, ++rows)
        expect(await fixture.byHand('select count(*)::integer as n from ~orders')).toEqual([{ n: rows }])
      }
    }),
    { numRuns: 15 },
  )
})

async function addRow({ byHand }: Fixture, id: number): Promise<void> {
  const columns = await byHand<{ name: string }>(
    `select attname::text as name from pg_attribute where attrelid = '~orders'::regclass and attnum > 1`,
  )
  const names = columns.map(each => each.name)
  await byHand(`insert into ~orders (${['id', ...names]}) values (${[id, ...names.map(() => `'1'`)]})`)
}
