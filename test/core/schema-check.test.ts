import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type } from 'arktype'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { checkSchema } from '../../src/core/schema-check.ts'

const orders: [string, StandardSchemaV1][] = [
  ['zod', z.object({ items: z.array(z.object({ price: z.number() })) })],
  ['valibot', v.object({ items: v.array(v.object({ price: v.number() })) })],
  ['arktype', type({ items: type({ price: 'number' }).array() })],
]

test.each(orders)('a value that fits a %s schema has no issues, and the result is synchronous', (_, schema) => {
  expect(checkSchema(schema, { items: [{ price: 1 }] })).toEqual([])
})

test.each(orders)('an issue of %s has its path in one format', (_, schema) => {
  const issues = checkSchema(schema, { items: [{ price: 1 }, { price: 'two' }] }, 'data')

  expect(issues).toEqual([{ path: 'data.items[1].price', message: expect.stringMatching(/number/) }])
})

test.each(orders)('an issue of %s with the whole value has the root as its path', (_, schema) => {
  expect(checkSchema(schema, 'tea')).toMatchObject([{ path: '' }])
  expect(checkSchema(schema, 'tea', 'data')).toMatchObject([{ path: 'data' }])
})

test('without a root the path begins with the first key', () => {
  expect(checkSchema(orders[0]![1], { items: [{ price: null }] })).toMatchObject([{ path: 'items[0].price' }])
})

test('an asynchronous schema gives a promise of its issues', async () => {
  const inStock = z.object({ sku: z.string().refine(async sku => sku === 'tea', 'is sold out') })

  const issues = checkSchema(inStock, { sku: 'coffee' }, 'data')

  expect(issues).toBeInstanceOf(Promise)
  await expect(issues).resolves.toEqual([{ path: 'data.sku', message: 'is sold out' }])
  await expect(checkSchema(inStock, { sku: 'tea' })).resolves.toEqual([])
})

test('a schema that transforms the value does not change it', () => {
  const order = { total: '9', extra: true }
  const schema = z.object({ total: z.coerce.number(), currency: z.string().default('EUR') })

  expect(checkSchema(schema, order)).toEqual([])
  expect(order).toEqual({ total: '9', extra: true })
})
