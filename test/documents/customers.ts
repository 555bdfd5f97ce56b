/** The customers of the shop. */

import type { CollectionOptions } from '../../src/documents/collection.ts'
import type { Documents } from '../../src/documents/documents.ts'
import { openShop, type Shop } from '../support/shop.ts'

export interface Customer {
  email: string
  tier?: 'free' | 'pro'
  visits?: number
  tags?: string[]
  profile?: { name?: string; age?: number; address?: { city?: string } } | null
  lines?: { sku: string; price: number }[]
}

export async function openCustomers(
  options: CollectionOptions<Customer> = {},
): Promise<Shop & { customers: Documents<Customer> }> {
  const shop = await openShop()
  return { ...shop, customers: shop.store.documents<Customer>('customers', options) }
}

export const ada: Customer = { email: 'ada@x', tier: 'free' }
export const bob: Customer = { email: 'bob@x', tier: 'pro' }
