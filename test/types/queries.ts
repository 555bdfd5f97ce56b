/**
 * What must compile and what must not, of the types of queries. Nothing here runs: the type check of the project is the
 * test, and a `@ts-expect-error` that expects in vain fails it.
 */
import type { Documents } from '../../src/documents/documents.ts'
import { compileQuery } from '../../src/documents/query/compile.ts'
import {
  and,
  between,
  contains,
  elemMatch,
  eq,
  gt,
  isIn,
  isNull,
  like,
  lte,
  ne,
  search,
  startsWith,
} from '../../src/documents/query/condition.ts'
import { at, type Field, lower, type Path } from '../../src/documents/query/field.ts'
import { filterFrom } from '../../src/documents/query/filter.ts'
import { avg, count, max, sum } from '../../src/documents/query/group.ts'
import type { StoredDocument } from '../../src/documents/read.ts'
import type { OpenDocuments } from '../../src/projections/read.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}

interface Customer {
  email: string
  tier: 'free' | 'pro'
  age?: number
  active: boolean
  nickname: string | null
  born: Date
  tags: string[]
  address?: { city: string; street?: { number: number } }
  orders: { sku: string; quantity: number }[]
  stock: Record<string, number>
}

declare const customers: Documents<Customer>
declare const documents: OpenDocuments
const query = customers.query()

// ── Fields and what they are compared with ──────────────────────────────────────────────────────────────────────────

query.where(c => {
  same<typeof c.email, Field<string>>(true)
  same<typeof c.address.city, Field<string>>(true)
  same<typeof c.age, Field<number | undefined>>(true)
  return and(
    eq(c.email, 'a@x'),
    eq(c.tier, 'pro'),
    eq(c.nickname, null),
    eq(c.address.street.number, 7),
    gt(c.age, 18),
    between(c.born, new Date(), '2026-01-01'),
    isIn(c.tier, ['free', 'pro']),
    contains(c.tags, ['vip']),
    contains(c.address, { city: 'Paris' }),
    elemMatch(c.orders, order => lte(order.quantity, 3)),
    eq(at(c.orders, 0).sku, 'tea'),
    eq(at(c.stock, 'berlin'), 4),
    startsWith(lower(c.email), 'a'),
    search(c, 'red shoes'),
    isNull(c.address.street),
    filterFrom(JSON.parse('{}')),
  )
})
// @ts-expect-error: there is no such field
query.where(c => eq(c.emial, 'a@x'))
// @ts-expect-error: there is no such field further down
query.where(c => eq(c.address.town, 'Paris'))
// @ts-expect-error: text is not a number
query.where(c => eq(c.age, '18'))
// @ts-expect-error: a number is not text
query.where(c => eq(c.email, 18))
// @ts-expect-error: not one of the values there are
query.where(c => ne(c.tier, 'gold'))
// @ts-expect-error: it is never null
query.where(c => eq(c.email, null))
// @ts-expect-error: true is not greater than anything
query.where(c => gt(c.active, false))
// @ts-expect-error: an object is not greater than anything
query.where(c => gt(c.address, 'x'))
// @ts-expect-error: one of the values has another type
query.where(c => isIn(c.age, [1, 'two']))
// @ts-expect-error: its elements are texts
query.where(c => contains(c.tags, [1]))
// @ts-expect-error: text contains nothing
query.where(c => contains(c.email, 'a'))
// @ts-expect-error: a number does not begin with text
query.where(c => startsWith(c.age, '1'))
// @ts-expect-error: nor is it like a pattern
query.where(c => like(c.age, '1%'))
// @ts-expect-error: it has no small letters
query.where(c => eq(lower(c.age), '1'))
// @ts-expect-error: it has no elements
query.where(c => elemMatch(c.email, element => eq(element, 'a')))
// @ts-expect-error: a comparison of JavaScript's is no condition
query.where(c => c.age > 18)
// @ts-expect-error: a field is no value
query.where(c => eq(c.email, c.nickname))
// @ts-expect-error: nothing but a field can be compared
query.where(() => eq('email', 'a@x'))

query.where((_, meta) => and(gt(meta.createdAt, new Date()), eq(meta.version, 3), isNull(meta.deletedAt)))
// @ts-expect-error: a version is a number
query.where((_, meta) => eq(meta.version, '3'))

// ── Orders, results and selections ──────────────────────────────────────────────────────────────────────────────────

query.orderBy(c => c.email).orderBy(c => c.age, { as: 'number', direction: 'desc', nulls: 'last' })
query.orderBy(c => c.born).orderBy((_, meta) => meta.createdAt)
query.orderBy(c => c.age).orderBy(c => c.age, 'desc')
// @ts-expect-error: it is a number
query.orderBy(c => c.age, { as: 'boolean' })
// @ts-expect-error: arrays have no order
query.orderBy(c => c.tags, { as: 'text' })

export async function results(): Promise<void> {
  same<Awaited<ReturnType<typeof query.toArray>>, StoredDocument<Customer>[]>(true)
  const rows = await query
    .select({ email: c => c.email, city: c => c.address.city, age: c => c.age, key: (_, meta) => meta.id })
    .toArray()
  same<typeof rows, { email: string; city: string; age: number | null; key: string }[]>(true)
  // @ts-expect-error: it was not selected
  rows[0]?.tier

  const groups = await query
    .groupBy({ tier: c => c.tier }, c => ({ people: count(), total: sum(c.age), last: max(c.email, { as: 'text' }) }))
    .having(group => gt(group.people, 3))
    .orderBy(group => group.tier)
    .toArray()
  same<(typeof groups)[number]['tier'], 'free' | 'pro'>(true)
  same<(typeof groups)[number]['total'], number | null>(true)
  same<(typeof groups)[number]['last'], string | null>(true)
  // @ts-expect-error: text has no sum
  query.groupBy({}, c => ({ total: sum(c.email), mean: avg(c.age) }))

  const related = await query.include('friend', customers, { from: c => c.nickname }).one()
  same<typeof related.included.friend, StoredDocument<Customer> | undefined>(true)
  const many = await query.include('friends', customers, { from: c => c.tags, to: o => o.email, many: true }).one()
  same<typeof many.included.friends, StoredDocument<Customer>[]>(true)
  // @ts-expect-error: ids are texts
  query.include('friend', customers, { from: c => c.age })
}

// ── Compiled queries ────────────────────────────────────────────────────────────────────────────────────────────────

const byCity = compileQuery(customers, (q, city: string, age: number) =>
  q.where(c => and(eq(c.address.city, city), gt(c.age, age))).select({ email: c => c.email }),
)
byCity('Paris', 18)
// @ts-expect-error: the second argument is a number
byCity('Paris', '18')
same<Awaited<ReturnType<ReturnType<typeof byCity>['first']>>, { email: string } | undefined>(true)

// ── Indexes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

documents<Customer>('customers', {
  indexes: [
    { path: 'email', unique: true },
    'address.city',
    { paths: ['tier', { path: 'age', as: 'number' }], where: { active: true } },
    { path: 'tags', method: 'gin' },
  ],
  columns: [{ path: 'age', as: 'number' }],
  search: ['email', 'address.city'],
})
// @ts-expect-error: there is no such field
documents<Customer>('customers', { indexes: ['emial'] })
// @ts-expect-error: there is no such field further down
documents<Customer>('customers', { indexes: [{ paths: ['email', 'address.town'] }] })
// @ts-expect-error: there is no such field to search in
documents<Customer>('customers', { search: ['notes'] })

// ── Documents of no known shape ─────────────────────────────────────────────────────────────────────────────────────

const things = documents('things')
things.query().where(c => and(eq(at(c, 'a'), 1), gt(at(at(c, 'a'), 'b'), 'x'), startsWith(at(c, 'c'), 'x')))
same<Path<unknown> extends Path<string> ? true : false, false>(true)
