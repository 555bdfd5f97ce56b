/**
 * Databases and transactions as other code gets them: lent for a time, shared by many, or brought along by the user.
 *
 *     lendDatabase       a view for one of several stores on one database; it ends with that store
 *     shareListeners     a view with one listening connection per channel, however many listeners there are
 *     lendTransaction    a handle for user code, which is revoked when that code has returned
 *     foreignHandle      a transaction of the user's client, as one of ours
 */
import { InvalidOption, StoreClosed } from '../core/errors.ts'
import { CopiedLine } from './copy-text.ts'
import type { Database, Executor, Listener, Transaction } from './database.ts'
import { TransactionClosed } from './errors.ts'
import { identifier, type Statement } from './sql.ts'
import { type AnyTransaction, refuseUnknownTransaction } from './transaction.ts'

/** Closing the view refuses further calls through it. The database itself stays open. */
export function lendDatabase(database: Database): Database {
  let isClosed = false
  const ifOpen = <T>(call: () => Promise<T>): Promise<T> => (isClosed ? Promise.reject(new StoreClosed({})) : call())
  return {
    ...database,
    run: statement => ifOpen(() => database.run(statement)),
    runArrays: statement => ifOpen(() => database.runArrays(statement)),
    transaction: (work, options) => ifOpen(() => database.transaction(work, options)),
    copyOut: text => ifOpen(() => database.copyOut(text)),
    notify: (channel, payload) => {
      if (!isClosed) database.notify(channel, payload)
    },
    async close() {
      isClosed = true
    },
  }
}

interface SharedListener {
  readonly listener: Listener
  readonly callbacks: Set<(payload: string) => void>
}

/** So that the number of connections does not grow with the number of tenants. */
export function shareListeners(database: Database): Database {
  const channels = new Map<string, SharedListener>()

  const open = (channel: string): SharedListener => {
    const callbacks = new Set<(payload: string) => void>()
    const listener = database.listen(channel, payload => {
      for (const callback of [...callbacks]) callback(payload)
    })
    const shared = { listener, callbacks }
    channels.set(channel, shared)
    return shared
  }

  return {
    ...database,
    listen(channel, onNotify) {
      const shared = channels.get(channel) ?? open(channel)
      const callback = (payload: string): void => onNotify(payload)
      shared.callbacks.add(callback)
      return {
        ready: shared.listener.ready,
        receives: shared.listener.receives,
        async close() {
          shared.callbacks.delete(callback)
          if (shared.callbacks.size > 0 || channels.get(channel) !== shared) return
          channels.delete(channel)
          await shared.listener.close()
        },
      }
    },
  }
}

const lent = Symbol('lent transaction')

/**
 * The handle, and the function that revokes it. Code that outlives its call, such as an inline projection that did not
 * await its writes, can then neither write while positions are drawn nor into a transaction of another caller.
 */
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

/** An append by an inline projection would draw positions while its code runs, and before the append it is part of. */
export function refuseLent(tx: AnyTransaction): void {
  refuseUnknownTransaction(tx)
  if (!(lent in tx)) return
  const reason =
    'This transaction is lent to your code for its own writes and cannot append events. Emit them from a handler, or append them from an async projection.'
  throw new InvalidOption({ option: 'tx', reason })
}

/** A transaction of the user as one of ours, for the time of one append. */
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
      const reason =
        'The transaction "tx" is a client of yours, so the store does not know when it commits and cannot run code after that.'
      throw new InvalidOption({ option: 'tx', reason })
    },
  }
}

/** A statement has at most 65 535 parameters. COPY itself cannot be sent through a client of the user. */
function* pagesOf(rows: string, width: number): Generator<(string | null)[][]> {
  const line = new CopiedLine(Buffer.from(rows))
  const maxRows = Math.floor(60_000 / width)
  let page: (string | null)[][] = []
  while (line.next()) {
    page.push(Array.from({ length: width }, () => line.textOrNull()))
    if (page.length < maxRows) continue
    yield page
    page = []
  }
  if (page.length > 0) yield page
}
