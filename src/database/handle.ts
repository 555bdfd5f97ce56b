/**
 * The transaction as an inline projection gets it: the append's own, whoever opened it, and taken away when the projection
 * has returned. What outlives it cannot write while positions are drawn, or into a transaction of somebody else.
 */
import { InvalidOption } from '../core/errors.ts'
import { CopiedLine } from './copy-text.ts'
import type { Executor, Transaction } from './database.ts'
import { TransactionClosed } from './errors.ts'
import { identifier, type Statement } from './sql.ts'
import type { AnyTransaction } from './transaction.ts'

const lent = Symbol('inline projection')

/** The handle, and the function that shuts it. */
export function lendTransaction(tx: Transaction): { handle: Transaction; shut: () => void } {
  let isOpen = true
  const ifOpen = async <T>(call: () => Promise<T>): Promise<T> => {
    if (!isOpen) throw new TransactionClosed({})
    return call()
  }
  const handle: Transaction & { [lent]: true } = {
    [lent]: true,
    id: tx.id,
    run: statement => ifOpen(() => tx.run(statement)),
    runArrays: statement => ifOpen(() => tx.runArrays(statement)),
    query: (text, values) => ifOpen(() => tx.query(text, values)),
    savepoint: work => ifOpen(() => tx.savepoint(work)),
    copyIn: (table, columns, rows) => ifOpen(() => tx.copyIn(table, columns, rows)),
    afterCommit: hook => tx.afterCommit(hook),
  }
  return {
    handle,
    shut: () => {
      isOpen = false
    },
  }
}

/** An append by an inline projection would draw positions while its code still runs, and before the append it is part of. */
export function refuseLent(tx: AnyTransaction): void {
  if (!(lent in tx)) return
  const reason =
    'is lent to your code for its writes and cannot append: emit from a handler, or append from an async projection'
  throw new InvalidOption({ option: 'tx', reason })
}

/** A transaction of the user's as one of ours, for the time of one append. */
export function foreignHandle(executor: Executor): Transaction {
  let savepoints = 0
  const send = <R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> =>
    executor.run<R>({ label: 'query', text, values })
  return {
    id: Symbol('transaction'),
    run: <R extends object>(statement: Statement) => executor.run<R>(statement),
    runArrays: statement => executor.runArrays(statement),
    query: send,
    async savepoint(work) {
      const name = identifier(`rillflow_inline_${++savepoints}`).quoted
      await send(`savepoint ${name}`)
      try {
        const result = await work()
        await send(`release savepoint ${name}`)
        return result
      } catch (error) {
        await send(`rollback to savepoint ${name}`)
        await send(`release savepoint ${name}`)
        throw error
      }
    },
    async copyIn(table, columns, rows) {
      const names = columns.map(column => identifier(column).quoted).join(', ')
      for (const page of pagesOf(rows, columns.length)) {
        const marks = page.map((_, row) => `(${columns.map((_, n) => `$${row * columns.length + n + 1}`).join(', ')})`)
        await send(`insert into ${table} (${names}) values ${marks.join(', ')}`, page.flat())
      }
    },
    afterCommit() {
      const reason = 'the transaction is a client of yours, and nobody tells the store when it commits'
      throw new InvalidOption({ option: 'tx', reason })
    },
  }
}

/** A statement takes 65 535 parameters. COPY itself cannot be sent through somebody else's client. */
function* pagesOf(rows: string, width: number): Generator<(string | null)[][]> {
  const line = new CopiedLine(Buffer.from(rows))
  const most = Math.floor(60_000 / width)
  let page: (string | null)[][] = []
  while (line.next()) {
    page.push(Array.from({ length: width }, () => line.textOrNull()))
    if (page.length < most) continue
    yield page
    page = []
  }
  if (page.length > 0) yield page
}
