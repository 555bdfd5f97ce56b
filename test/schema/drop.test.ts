import { expect, test } from 'vitest'
import { SchemaMissing } from '../../src/schema/errors.ts'
import { openStore } from '../../src/store.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'

test('dropping a store drops its schema with everything in it, and a second drop finds nothing', async () => {
  const schema = freshSchema()
  await using store = await openStore({ database: await openDatabase(), schema, migrate: true })
  await store.events.append('order-1', { type: 'OrderPlaced', data: { total: 99 } })

  const { tables } = await store.schema.drop()

  expect(tables).toBeGreaterThan(5)
  expect(await store.schema.state()).toMatchObject({ status: 'missing' })
  await expect(store.schema.drop()).rejects.toThrow(SchemaMissing)
})

test('a schema without a store in it is not dropped', async () => {
  const database = await openDatabase()
  const schema = freshSchema()
  await database.transaction(tx => tx.query(`create schema ${schema} create table customers (id text primary key)`))
  await using store = await openStore({ database, schema, migrate: 'manual' })

  await expect(store.schema.drop()).rejects.toThrow(SchemaMissing)

  await database.transaction(tx => tx.query(`drop schema ${schema} cascade`))
})
