/** How long others may have to wait for a transaction of a worker that is stopped in the middle of it. */
import type { TransactionOptions } from '../../database/database.ts'
import { sqlStateOf } from '../../database/sqlstate.ts'

/** No longer than it takes to be missed. */
export function idleLimit(leaseMs: number): { readonly idleMs: number } & TransactionOptions {
  return { idleMs: Math.max(1_000, leaseMs) }
}

/** Whether a transaction was cut off, and so undone, because it idled longer than that. */
export function hasIdledTooLong(error: unknown): boolean {
  const { sqlState = sqlStateOf(error), cause } = (error ?? {}) as { sqlState?: string; cause?: unknown }
  return sqlState === idledTooLong || sqlStateOf(cause) === idledTooLong
}

const idledTooLong = '25P03'
