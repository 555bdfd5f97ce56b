/** Random documents and random queries, through the query builder and through plain JavaScript over the same data. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Documents } from '../../src/documents/documents.ts'
import {
  and,
  between,
  type Condition,
  contains,
  elemMatch,
  eq,
  exists,
  gt,
  gte,
  isIn,
  isNull,
  like,
  lt,
  lte,
  ne,
  not,
  or,
  startsWith,
} from '../../src/documents/query/condition.ts'
import { at, lower, type UntypedField } from '../../src/documents/query/field.ts'
import type { OrderAs } from '../../src/documents/query/order.ts'
import type { Query } from '../../src/documents/query/query.ts'
import type { Store } from '../../src/store.ts'
import { openShop, type ShopMap } from '../support/shop.ts'
import { type Json, type Kind, meets, type Order, ordered, type Scalar, type Spec } from './document-model.ts'

type Doc = Record<string, unknown>

const long = 'x'.repeat(140)
// Few values, of all types and ordered by bytes, not by UTF-16, so that hits and near misses are common.
const texts = fc.constantFrom(
  '',
  'a',
  'A',
  'ab',
  'b',
  'ä',
  '\uffff',
  '😀',
  '1',
  'true',
  '50%_\\',
  `${long}a`,
  `${long}b`,
  'vip',
)
const numbers = fc.constantFrom(0, 1, 1.5, -3, 1e21, 2.5e-7, 1000000)
const scalars: fc.Arbitrary<Scalar> = fc.oneof(texts, numbers, fc.boolean(), fc.constant(null))
const lists = fc.array(scalars, { maxLength: 3 })
const values: fc.Arbitrary<Json> = fc.oneof(
  { weight: 6, arbitrary: scalars },
  { weight: 1, arbitrary: lists },
  { weight: 1, arbitrary: fc.record({ x: scalars, y: scalars }, { requiredKeys: [] }) },
)
const documents = fc.record(
  {
    a: values,
    b: values,
    n: fc.oneof({ weight: 3, arbitrary: fc.record({ x: values }, { requiredKeys: [] }) }, values),
    tags: fc.oneof({ weight: 3, arbitrary: lists }, values),
    items: fc.oneof(
      { weight: 3, arbitrary: fc.array(fc.record({ k: texts, q: scalars }, { requiredKeys: [] }), { maxLength: 3 }) },
      values,
    ),
  },
  { requiredKeys: [] },
)

const paths = fc.constantFrom('a', 'b', 'n.x', 'a', 'n', 'tags', 'tags.0', 'items.1.k', 'nowhere')
const comparables = fc.oneof(texts, numbers)
const patterns = fc.constantFrom('a%', '_', '%b', '50\\%\\_%', 'x%a', '%', '', '_b')

const leaf = (path: fc.Arbitrary<string>): fc.Arbitrary<Spec> =>
  fc.oneof(
    fc.record({ op: fc.constantFrom('eq' as const, 'eq' as const, 'ne' as const), path, value: values }),
    fc.record({ op: fc.constantFrom('gt', 'gte', 'lt', 'lte') as fc.Arbitrary<'gt'>, path, value: comparables }),
    fc.record({ op: fc.constant('between' as const), path, from: comparables, to: comparables }),
    fc.record({ op: fc.constant('isIn' as const), path, values: lists }),
    fc.record({ op: fc.constantFrom('isNull' as const, 'exists' as const), path }),
    fc.record({ op: fc.constant('contains' as const), path, value: fc.oneof(lists, fc.record({ x: scalars })) }),
    fc.record({ op: fc.constant('startsWith' as const), path, value: texts }),
    fc.record({ op: fc.constant('like' as const), path, value: patterns }),
    fc.record({ op: fc.constant('lowerEq' as const), path, value: fc.constantFrom('A', 'aB', 'VIP', '') }),
  )
const { spec } = fc.letrec<{ spec: Spec }>(tie => ({
  spec: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    { weight: 5, arbitrary: leaf(paths) },
    {
      weight: 2,
      arbitrary: fc.record({
        op: fc.constantFrom('and' as const, 'or' as const),
        of: fc.array(tie('spec'), { maxLength: 3 }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ op: fc.constant('not' as const), of: tie('spec') }) },
    {
      weight: 1,
      arbitrary: fc.record({
        op: fc.constant('elemMatch' as const),
        path: fc.constantFrom('items', 'tags', 'a'),
        of: leaf(fc.constantFrom('k', 'q', '')),
      }),
    },
  ),
}))
const order: fc.Arbitrary<Order> = fc.record({
  path: fc.constantFrom('a', 'b', 'n.x', 'nowhere'),
  as: fc.constantFrom<Kind>('text', 'number', 'boolean'),
  direction: fc.constantFrom('asc', 'desc'),
  nulls: fc.constantFrom('first', 'last'),
})
const asking = fc.record({
  spec,
  orders: fc.array(order, { maxLength: 2 }),
  limit: fc.integer({ min: 1, max: 8 }),
  offset: fc.integer({ min: 0, max: 4 }),
})

const tests = { eq, ne, gt, gte, lt, lte, startsWith, like, isNull, exists }

function toCondition(spec: Spec, c: UntypedField): Condition {
  if (spec.op === 'and') return and(...spec.of.map(each => toCondition(each, c)))
  if (spec.op === 'or') return or(...spec.of.map(each => toCondition(each, c)))
  if (spec.op === 'not') return not(toCondition(spec.of, c))
  const field = fieldAt(c, spec.path)
  switch (spec.op) {
    case 'elemMatch':
      return elemMatch(field, element => toCondition(spec.of, element))
    case 'between':
      return between(field, spec.from, spec.to)
    case 'isIn':
      return isIn(field, spec.values)
    case 'isNull':
    case 'exists':
      return tests[spec.op](field)
    case 'contains':
      return contains(field, spec.value as object)
    case 'lowerEq':
      return eq(lower(field as never), spec.value)
    default:
      return tests[spec.op](field, spec.value as never)
  }
}

function fieldAt(c: UntypedField, path: string): UntypedField {
  return path === '' ? c : path.split('.').reduce<UntypedField>((field, step) => at(field, step), c)
}

function asked(collection: Documents<Doc>, { spec, orders }: { spec: Spec; orders: readonly Order[] }): Query<Doc> {
  let query = collection.query().where(c => toCondition(spec, c as never))
  for (const { path, ...options } of orders)
    query = query.orderBy(c => fieldAt(c as never, path), options as OrderAs<unknown>)
  return query
}

test('every query returns the same as plain JavaScript, with and without indexes', async () => {
  const { store, query: run } = await openShop()
  const collections = [
    store.documents<Doc>('plain', { gin: false }),
    store.documents<Doc>('with_body'),
    store.documents<Doc>('with_indexes', {
      gin: false,
      indexes: [
        'a',
        { path: 'a', lower: true },
        { path: 'a', as: 'number' },
        { paths: ['b', 'n.x'] },
        { path: 'n.x', as: 'boolean' },
        { path: 'tags', method: 'gin' },
        { path: 'n.x', where: { a: 'a' }, name: 'partial' },
      ],
      columns: ['b', { path: 'n.x', as: 'number' }],
    }),
  ]
  for (const each of collections) await each.ready()

  const property = fc.asyncProperty(
    fc.array(documents, { minLength: 1, maxLength: 25 }),
    fc.array(asking, { minLength: 12, maxLength: 12 }),
    async (bodies, questions) => {
      const stored = new Map(bodies.map((body, i) => [`d${i}`, body as Json]))
      await run('truncate ~plain, ~with_body, ~with_indexes')
      for (const each of collections) await each.putMany([...stored].map(([id, data]) => ({ id, data: data as Doc })))

      for (const question of questions) {
        const found = [...stored].filter(([, body]) => meets(question.spec, body)).map(([id]) => id)
        const wanted = ordered(stored, found, question.orders)
        for (const each of collections) await compareWith(store, each, question, wanted)
      }
    },
  )
  await fc.assert(property, { numRuns: 8 })
})

async function compareWith(
  store: Store<ShopMap>,
  collection: Documents<Doc>,
  question: { spec: Spec; orders: readonly Order[]; limit: number; offset: number },
  wanted: readonly string[],
): Promise<void> {
  const { limit, offset } = question
  const query = asked(collection, question)
  await store.transaction(async tx => {
    // Tables as small as these would be scanned, whatever indexes they have.
    if (collection.name !== 'plain') await tx.query('set local enable_seqscan = off')
    // A sort that keeps only the first few uses another plan than a full sort.
    const part = await query.offset(offset).limit(limit).toArray({ tx })
    expect(
      part.map(each => each.id),
      collection.name,
    ).toEqual(wanted.slice(offset, offset + limit))
    const all: string[] = []
    for await (const { id } of query.iterate({ pageSize: 9, tx })) all.push(id)
    expect(all, collection.name).toEqual(wanted)
  })
}
