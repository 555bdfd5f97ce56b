/** Ours: a collection of the store, with default options except for the parameters. */

import { compileQuery, type Documents, eq, increment, type Store } from '../harness/rillflow.ts'
import type { Customer, CustomerStore } from '../workloads/customers.ts'

export interface OurCustomers extends CustomerStore {
  readonly collection: Documents<Customer>
  readonly compiled: Pick<CustomerStore, 'byEmail' | 'byCity'>
}

export function openCustomers(store: Store, name: string, gin: boolean): OurCustomers {
  const collection = store.documents<Customer>(name, { gin, indexes: ['email', 'address.city'] })
  const byEmail = compileQuery(collection, (query, email: string) => query.where(c => eq(c.email, email)))
  const byCity = compileQuery(collection, (query, city: string) => query.where(c => eq(c.address.city, city)))
  return {
    collection,
    get: id => collection.get(id),
    put: (id, data) => collection.put(id, data),
    patch: (id, tier) => collection.patch(id, { tier, visits: increment(1) }),
    putMany: items => collection.putMany(items),
    byEmail: email =>
      collection
        .query()
        .where(c => eq(c.email, email))
        .toArray(),
    byCity: city =>
      collection
        .query()
        .where(c => eq(c.address.city, city))
        .toArray(),
    compiled: {
      byEmail: email => byEmail(email).toArray(),
      byCity: city => byCity(city).toArray(),
    },
  }
}
