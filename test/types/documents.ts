/** Documents, as they are typed: what compiles here must, and what is marked as an error must not. */
import { type Collection, defineCollection } from '../../src/documents/collection.ts'
import type { Documents } from '../../src/documents/documents.ts'
import { append, increment, insert, remove, rename, set, unset } from '../../src/documents/patch/patch.ts'
import type { OpenDocuments } from '../../src/projections/read.ts'

interface Customer {
  email: string
  tier: 'free' | 'pro'
  visits?: number
  tags: string[]
  profile: { name: string; age?: number; address?: { city: string } }
  lines: { sku: string; price: number }[]
  notes?: Record<string, string>
}

declare const documents: OpenDocuments
declare const customers: Documents<Customer>

const ada: Customer = { email: 'ada@x', tier: 'free', tags: [], profile: { name: 'Ada' }, lines: [] }

export async function collectionsAreTyped(): Promise<void> {
  const opened: Documents<Customer> = documents<Customer>('customers')
  await opened.put('ada', ada)
  // @ts-expect-error a field is missing
  await customers.put('ada', { email: 'ada@x' })
  // @ts-expect-error a tier that there is not
  await customers.insert('ada', { ...ada, tier: 'gold' })

  const version: number = await customers.insert('ada', ada)
  const made: { id: string; version: number } = await customers.insert(ada)
  await customers.update('ada', customer => ({ ...customer, tier: 'pro' }), { expected: version })
  // @ts-expect-error the function must return a customer
  await customers.update('ada', customer => ({ email: customer.email }))

  const found = await customers.get(made.id)
  const tier: 'free' | 'pro' | undefined = found?.data.tier
  // @ts-expect-error it may not be there
  found.data
  const [first] = (await customers.getMany(['ada'])).values()
  const city: string | undefined = first?.data.profile.address?.city
  await customers.putMany([{ data: ada }, { id: 'bob', data: ada, expected: 2 }])
  // @ts-expect-error an update needs the id
  await customers.updateMany([{ data: ada }])
  void [tier, city]
}

export async function patchesAreTyped(): Promise<void> {
  await customers.patch('ada', { email: 'b@x', 'profile.name': 'Alicia', visits: increment(2) }, { expected: 2 })
  await customers.patch('ada', { 'profile.address.city': set('London'), tags: append('vip', 'new'), visits: unset() })
  await customers.patch('ada', { 'lines[0].price': 12, 'lines.1.sku': 'tea', lines: insert(0, { sku: 'a', price: 1 }) })
  await customers.patch('ada', { tags: remove('vip'), 'profile.age': rename('years'), 'notes.today': 'rain' })
  // @ts-expect-error there is no such field
  await customers.patch('ada', { 'profile.nick': 'Al' })
  // @ts-expect-error a name is no number
  await customers.patch('ada', { 'profile.name': 7 })
  // @ts-expect-error a text cannot be incremented
  await customers.patch('ada', { email: increment(1) })
  // @ts-expect-error tags are texts
  await customers.patch('ada', { tags: append(1) })
  // @ts-expect-error a price is a number
  await customers.patch('ada', { 'lines[0].price': 'much' })

  await customers.merge('ada', { profile: { age: null, address: { city: 'Paris' } }, tags: ['a'] })
  // @ts-expect-error a city is a text
  await customers.merge('ada', { profile: { address: { city: 1 } } })

  const anything = documents('anything')
  await anything.put('1', { what: 'ever' })
  await anything.patch('1', { 'a.b[0].c': 1, d: append(1, 2) })
}

export function collectionsAreDefined(): void {
  const named: Collection<Customer> = defineCollection<Customer>('customers', {
    indexes: [
      'email',
      { path: 'profile.address', method: 'gin' },
      { paths: ['tier', { path: 'visits', as: 'number' }] },
    ],
    columns: ['email', { path: 'visits', as: 'number' }],
    search: ['profile.name'],
  })
  const opened: Documents<Customer> = documents(named)
  const list: readonly Collection[] = [named, defineCollection('anything', { indexes: ['whatever.there.is'] })]
  // @ts-expect-error there is no such field
  defineCollection<Customer>('customers', { indexes: [{ path: 'emial', unique: true }] })
  // @ts-expect-error an index on several fields has its order in paths
  defineCollection<Customer>('customers', { indexes: [{ path: ['email', 'tier'] }] })
  void [opened, list]
}

// ── A Date is typed as what comes back: text ─────────────────────────────────────────────────────────────────────────

interface Visit {
  at: Date
  pages: { seen: Date | null; name: string }[]
}

export async function datesAreText(): Promise<void> {
  const visits = documents(defineCollection<Visit>('visits'))
  const data = (await visits.get('v-1'))!.data
  const at: string = data.at
  const seen: string | null | undefined = data.pages[0]?.seen
  await visits.put('v-1', { at: new Date().toISOString(), pages: [{ seen: seen ?? null, name: at }] })
  // @ts-expect-error it would come back as text
  await visits.put('v-1', { at: new Date(), pages: [] })
  const plain: Customer | undefined = (await documents<Customer>('customers').get('ada'))?.data
  void plain
}
