/** The documents that every contestant writes: about 330 bytes of JSON, found by a unique field or by a city of 50. */

// A type and not an interface: Pongo takes only types that are assignable to a record.
export type Customer = {
  readonly email: string
  readonly name: string
  readonly tier: string
  readonly active: boolean
  readonly visits: number
  readonly tags: readonly string[]
  readonly address: { readonly city: string; readonly street: string; readonly zip: string }
  readonly note: string
}

export interface Item {
  readonly id: string
  readonly data: Customer
}

const perCity = 50
const tiers = ['free', 'plus', 'pro']
const note = 'Calls back in the afternoon and wants invoices on paper, sent to the address of the company.'

export function customer(n: number): Customer {
  return {
    email: emailOf(n),
    name: `Alicia Customer ${n}`,
    tier: tiers[n % tiers.length]!,
    active: n % 7 !== 0,
    visits: n % 100,
    tags: [`segment-${n % 20}`, n % 2 === 0 ? 'newsletter' : 'post'],
    address: { city: cityOf(n), street: `Harbour Street ${1 + (n % 300)}`, zip: String(10_000 + (n % 89_000)) },
    note: note.slice(n % 8),
  }
}

export function emailOf(n: number): string {
  return `customer-${n}@example.com`
}

export function cityOf(n: number): string {
  return `city-${Math.floor(n / perCity)}`
}

/** Like the ids that the store makes: in the order of time, 36 characters. */
export function idOf(n: number): string {
  const hex = n.toString(16).padStart(12, '0')
  return `019a8b7c-${hex.slice(0, 4)}-7abc-8def-0123${hex.slice(4)}`
}

export function* customers(count: number, from = 0): Generator<Item, void, undefined> {
  for (let n = from; n < from + count; n++) yield { id: idOf(n), data: customer(n) }
}

/** A store of customers, ours or a peer's, as the documents bench drives it. */
export interface CustomerStore {
  get(id: string): Promise<unknown>
  /** Replaces the existing document. */
  put(id: string, data: Customer): Promise<unknown>
  /** Sets the tier, and adds one to the visits. */
  patch(id: string, tier: string): Promise<unknown>
  putMany(items: readonly Item[]): Promise<unknown>
  byEmail(email: string): Promise<readonly unknown[]>
  byCity(city: string): Promise<readonly unknown[]>
}
