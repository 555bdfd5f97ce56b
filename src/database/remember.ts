/** Transactions that know which events were appended in them: one whose commit got no answer names them. */
import { isRillflowError } from '../core/errors.ts'
import type { Database, Transaction, TransactionOptions } from './database.ts'
import { OutcomeUnknown } from './errors.ts'
import type { AnyTransaction } from './transaction.ts'

export interface RememberingTransactions {
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>
  rememberIds(tx: AnyTransaction, ids: readonly string[]): void
}

export function rememberingTransactions(database: Database): RememberingTransactions {
  const appended = new WeakMap<AnyTransaction, string[]>()
  return {
    async transaction(work, options) {
      const eventIds: string[] = []
      try {
        return await database.transaction(tx => {
          appended.set(tx, eventIds)
          return work(tx)
        }, options)
      } catch (error) {
        if (!isRillflowError(error, 'outcome_unknown')) throw error
        throw new OutcomeUnknown({ eventIds, reason: 'the connection was lost during the commit' }, error)
      }
    },
    rememberIds(tx, ids) {
      appended.get(tx)?.push(...ids)
    },
  }
}
