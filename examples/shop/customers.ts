/** Data with a current value and no history: documents under an id. */
import { defineCollection } from 'rillflow'

export interface Customer {
  name: string
  email: string
  visits: number
  address: { city: string }
}

export const customers = defineCollection<Customer>('customers', {
  indexes: ['address.city', { path: 'email', unique: true }],
  search: ['name'],
})
