import { expect, test } from 'vitest'
import { openStore } from '../../src/store.ts'
import { openShop } from '../support/shop.ts'
import { ada, type Customer } from './customers.ts'

const declared = {
  history: true,
  indexes: [{ path: 'email', unique: true }, 'tier'],
  columns: [{ path: 'visits', as: 'number' }],
} as const

test('RB-57: the first sync of an empty database creates tables, columns and indexes, and the next one has nothing to do', async () => {
  const { schema, database, sibling } = await openShop()
  const store = await sibling({ migrate: false })
  const customers = store.documents<Customer>('customers', declared)

  const plan = await store.schema.sync()

  expect(plan.problems).toEqual([])
  expect((await store.schema.plan()).steps).toEqual([])
  expect((await store.schema.check()).problems).toEqual([])
  await customers.put('ada', ada)
  const again = await openStore({ database, schema, migrate: 'manual' })
  again.documents<Customer>('customers', declared)
  expect((await again.schema.sync()).steps).toEqual([])
  await again.close()
})

test('RB-57: later declarations are added to a table with documents, and add nothing to their history', async () => {
  const { store, sibling } = await openShop()
  const before = store.documents<Customer>('customers', { history: true })
  await before.putMany([
    { id: 'ada', data: ada },
    { id: 'eve', data: { email: 'eve@x' } },
  ])
  const other = await sibling({ migrate: true })
  const { columns: _, ...later } = declared
  const after = other.documents<Customer>('customers', later)

  await after.ready()

  await expect(after.insert('bob', ada)).rejects.toMatchObject({ code: 'unique_violation', fields: ['email'] })
  expect(await after.get('eve')).toMatchObject({ data: { email: 'eve@x' }, version: 1 })
  expect((await after.history('ada')).items).toHaveLength(1)
  expect((await other.schema.sync()).steps).toEqual([])
})

test('a history that is declared later begins with the next write', async () => {
  const { store, sibling } = await openShop()
  await store.documents<Customer>('customers').put('ada', ada)
  const kept = (await sibling({ migrate: true })).documents<Customer>('customers', { history: true })

  expect(await kept.put('ada', ada)).toBe(2)

  expect((await kept.history('ada')).items.map(({ version }) => version)).toEqual([2])
})
