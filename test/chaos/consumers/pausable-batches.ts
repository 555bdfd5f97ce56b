/**
 * A database on which a test can pause the batches of one process, and, for the self-check, one whose checkpoints ignore
 * the fence.
 *
 *     renew leases ─────► waits while a batch is paused
 *     batch ──► paused? ──► begin · effects · checkpoint · commit
 */
import { deferred } from '../../../src/core/abort.ts'
import type { Database, Transaction } from '../../../src/database/database.ts'
import type { Statement } from '../../../src/database/sql.ts'

export interface PausableBatches {
  /** To be given to the consumers. */
  readonly database: Database
  /** Lets the given number of batches begin, then pauses all further ones. */
  pauseAfter(batches: number): void
  resume(): void
  /** Number of paused batches. 0 while a renewal runs that began before they were paused. */
  paused(): number
  /** How the paused batches ended: 'committed', or the code of their error. */
  ends(): readonly string[]
}

export function pausableBatches(database: Database, { isUnfenced }: { readonly isUnfenced: boolean }): PausableBatches {
  let left = Number.POSITIVE_INFINITY
  let resumed = deferred<void>()
  let ended: Promise<unknown> = Promise.resolve()
  let paused = 0
  let renewals = 0
  const ends: string[] = []

  const transaction: Database['transaction'] = async (work, options) => {
    const begin = () => database.transaction(tx => work(isUnfenced ? withoutFence(tx) : tx), options)
    // Only batches have an idle limit.
    if (options?.idleMs === undefined || left-- > 0) return begin()
    paused++
    const batch = resumed.promise.then(begin)
    ended = batch.then(
      () => ends.push('committed'),
      (error: { code?: string }) => ends.push(String(error.code)),
    )
    return batch.finally(() => paused--)
  }

  return {
    database: {
      ...database,
      transaction,
      async run(statement) {
        if (statement.label !== 'runners.heartbeat') return database.run(statement)
        await ended
        renewals++
        return database.run<never>(statement).finally(() => renewals--)
      },
    },
    pauseAfter(batches) {
      left = batches
      resumed = deferred<void>()
    },
    resume() {
      left = Number.POSITIVE_INFINITY
      resumed.resolve()
    },
    paused: () => (renewals === 0 ? paused : 0),
    ends: () => ends,
  }
}

function withoutFence(tx: Transaction): Transaction {
  return {
    ...tx,
    run: statement => tx.run(statement.label === 'consumers.save' ? unfenced(statement) : statement),
  }
}

/** The rule of the checkpoint would refuse it, too. */
function unfenced(statement: Statement): Statement {
  const text = statement.text.replace(/and c\.(?:fence|checkpoint) = (\$\d+::bigint)/g, 'and $1 is not null')
  if (text === statement.text) throw new Error('the checkpoint statement has no fence to remove')
  return { ...statement, text }
}
