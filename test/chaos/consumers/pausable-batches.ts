/**
 * A gate before the batches of one process, and, for the self-check, a checkpoint without its fence.
 *
 *     look ─────────────► waits while a batch stands at the gate
 *     batch ──► | gate | ──► begin · effects · checkpoint · commit
 */
import { deferred } from '../../../src/core/lifecycle.ts'
import type { Database, Transaction } from '../../../src/database/database.ts'
import type { Statement } from '../../../src/database/sql.ts'

export interface Gate {
  /** The database, seen through the gate. */
  readonly database: Database
  /** Lets so many more batches through, then none. */
  close(after: number): void
  open(): void
  /** Batches that stand at it. None while a look is under way that began before they came. */
  waiting(): number
  /** How the batches ended that had to wait: 'committed', or the code of their error. */
  ends(): readonly string[]
}

export function openGate(database: Database, { isUnfenced }: { readonly isUnfenced: boolean }): Gate {
  let passes = Number.POSITIVE_INFINITY
  let opened = deferred<void>()
  let over: Promise<unknown> = Promise.resolve()
  let waiting = 0
  let looks = 0
  const ends: string[] = []

  const transaction: Database['transaction'] = async (work, options) => {
    const begin = () => database.transaction(tx => work(isUnfenced ? withoutFence(tx) : tx), options)
    // Only batches have a limit to how long they may idle.
    if (options?.idleMs === undefined || passes-- > 0) return begin()
    waiting++
    const ended = opened.promise.then(begin)
    over = ended.then(
      () => ends.push('committed'),
      (error: { code?: string }) => ends.push(String(error.code)),
    )
    return ended.finally(() => waiting--)
  }

  return {
    database: {
      ...database,
      transaction,
      async run(statement) {
        if (statement.label !== 'consumers.look') return database.run(statement)
        await over
        looks++
        return database.run<never>(statement).finally(() => looks--)
      },
    },
    close(after) {
      passes = after
      opened = deferred<void>()
    },
    open() {
      passes = Number.POSITIVE_INFINITY
      opened.resolve()
    },
    waiting: () => (looks === 0 ? waiting : 0),
    ends: () => ends,
  }
}

function withoutFence(tx: Transaction): Transaction {
  return {
    ...tx,
    run: statement => tx.run(statement.label === 'consumers.checkpoint' ? unfenced(statement) : statement),
  }
}

function unfenced(statement: Statement): Statement {
  const text = statement.text.replace(/and fence = (\$\d+::bigint)/, 'and $1 is not null')
  if (text === statement.text) throw new Error('the checkpoint has no fence that could be left out')
  return { ...statement, text }
}
