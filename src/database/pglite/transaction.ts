/**
 * One transaction on the only connection. It has the connection for itself from begin to end, so its limits are
 * enforced: the calls behind it wait for user code.
 *
 * Statements that are not awaited run in the order in which they were given, and before the commit. At the end, at a
 * timeout or an abort, the handle is revoked first; then statements that still wait in it are rejected, and only then
 * the transaction is ended.
 */

import { abortError, deferred, onAbort } from '../../core/abort.ts'
import type { Clock } from '../../core/clock.ts'
import { InvalidOption, isRillflowError } from '../../core/errors.ts'
import { describe } from '../../core/options.ts'
import type { Database, Transaction, TransactionOptions } from '../database.ts'
import { DatabaseFailed, OutcomeUnknown, TransactionClosed, TransactionTimeout } from '../errors.ts'
import { identifier, type Statement } from '../sql.ts'
import { toRillflowError } from '../sqlstate.ts'
import { assertOpen, type OpenTransaction, runInside } from '../transaction.ts'
import type { Engine } from './engine.ts'
import { openTurns, type Turns } from './turns.ts'

export interface TransactionParts {
  readonly database: Database
  readonly engine: Engine
  readonly clock: Clock
  readonly maxQueued: number
  /** Called with the function that revokes the transaction; the function returned is called at its end. */
  onOpen(revoke: (error: Error) => void): () => void
}

interface Opened extends OpenTransaction {
  /** For the statements of this transaction, one after the other. */
  readonly turns: Turns
  readonly engine: Engine
  readonly hooks: (() => void)[]
  firstError: unknown
}

const isolations = ['read committed', 'repeatable read', 'serializable']

export async function runPgliteTransaction<T>(
  parts: TransactionParts,
  work: (tx: Transaction) => Promise<T>,
  { timeoutMs, signal, isolation = 'read committed' }: TransactionOptions & { timeoutMs: number },
): Promise<T> {
  if (!isolations.includes(isolation))
    throw new InvalidOption({
      option: 'isolation',
      reason: `The option "isolation" is ${describe(isolation)}. It must be one of ${isolations.join(', ')}.`,
    })
  const { database, engine, clock, maxQueued } = parts
  const turns = openTurns('transaction', maxQueued)
  const opened: Opened = { database, engine, turns, open: true, hooks: [], firstError: undefined }
  const revoked = deferred<never>()
  revoked.promise.catch(() => {})
  const revoke = (error: Error): void => {
    opened.open = false
    revoked.reject(error)
  }
  const timer = clock.setTimeout(() => revoke(new TransactionTimeout({ timeoutMs })), timeoutMs)
  const releaseSignal = signal && onAbort(signal, () => revoke(abortError(signal)))
  const onEnd = parts.onOpen(revoke)
  try {
    await command(opened, `begin isolation level ${isolation}`, 'begin')
    if (!opened.open) return await revoked.promise
    const ended = runInside(opened, async () => work(transactionOn(opened))).then(async result => {
      opened.open = false
      await turns.whenFree()
      return result
    })
    const result = await Promise.race([ended, revoked.promise])
    await commit(opened)
    return result
  } catch (error) {
    opened.open = false
    turns.rejectWaiting(() => new TransactionClosed({}))
    await turns.whenFree()
    if (engine.isInTransaction) await engine.command('rollback').catch(() => {})
    throw error
  } finally {
    timer.cancel()
    releaseSignal?.()
    onEnd()
  }
}

function transactionOn(opened: Opened): Transaction {
  const { engine, hooks } = opened
  let savepoints = 0
  const run = (statement: Statement, arrays: boolean): Promise<unknown[]> =>
    inTurn(opened, () => engine.run(statement, arrays)).catch(error => {
      throw toRillflowError(error, statement.label)
    })
  const send = (text: string): Promise<string> => inTurn(opened, () => command(opened, text, 'savepoint'))
  return {
    id: Symbol('transaction'),
    run: async <R extends object>(statement: Statement) => (await run(statement, false)) as R[],
    runArrays: async statement => (await run(statement, true)) as unknown[][],
    query: async <R extends object>(text: string, values: readonly unknown[] = []) =>
      (await inTurn(opened, () => engine.query(text, values))) as R[],
    async savepoint(work) {
      const name = identifier(`rillflow_${++savepoints}`).quoted
      await send(`savepoint ${name}`)
      try {
        const result = await work()
        await send(`release savepoint ${name}`)
        return result
      } catch (error) {
        if (opened.open) await send(`rollback to savepoint ${name}; release savepoint ${name}`)
        throw error
      }
    },
    async copyIn(table, columns, rows) {
      const list = columns.map(column => identifier(column).quoted).join(', ')
      const text = `copy ${table} (${list}) from stdin`
      await inTurn(opened, () => engine.copyIn(text, rows)).catch(error => {
        throw toRillflowError(error, 'copy')
      })
    },
    afterCommit: hook => void hooks.push(hook),
  }
}

async function inTurn<T>(opened: Opened, job: () => Promise<T>): Promise<T> {
  assertOpen(opened)
  const endTurn = await opened.turns.take()
  try {
    return await job()
  } catch (error) {
    opened.firstError ??= error
    throw error
  } finally {
    // A `commit` or `rollback` of the user has ended it: further statements would not be part of any transaction.
    if (!opened.engine.isInTransaction) opened.open = false
    endTurn()
  }
}

async function commit(opened: Opened): Promise<void> {
  if (!opened.engine.isInTransaction) throw new TransactionClosed({})
  const tag = await command(opened, 'commit', 'commit').catch(error => {
    if (!isRillflowError(error, 'connection_lost')) throw error
    throw new OutcomeUnknown({ eventIds: [], reason: 'the connection was lost during the commit' }, error)
  })
  if (tag !== 'COMMIT') {
    const reason = 'a statement of the transaction had failed, so all of it was rolled back'
    throw new DatabaseFailed({ sqlState: '25P02', reason, statement: 'commit' }, opened.firstError)
  }
  for (const hook of opened.hooks) {
    try {
      hook()
    } catch {
      // A committed transaction must not appear to have failed because of a hook.
    }
  }
}

async function command({ engine }: Opened, text: string, label: string): Promise<string> {
  try {
    return await engine.command(text)
  } catch (error) {
    throw toRillflowError(error, label)
  }
}
