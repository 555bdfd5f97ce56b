/**
 * One transaction on one connection of the pool.
 *
 * `begin` is not awaited: if the driver can pipeline, it is sent with the first statement. The commit is awaited and
 * its tag is checked: the server answers the commit of a failed transaction with the tag ROLLBACK and no error.
 *
 * The limits are also set on the server, for this transaction only, so that a process that stops in the middle of it
 * does not hold its locks for ever.
 */
import type pg from 'pg'
import { abortError, deferred, onAbort } from '../../core/abort.ts'
import { InvalidOption } from '../../core/errors.ts'
import { describe } from '../../core/options.ts'
import type { Database, Transaction, TransactionOptions } from '../database.ts'
import { DatabaseFailed, OutcomeUnknown, TransactionTimeout } from '../errors.ts'
import type { PreparedShapes } from '../prepared.ts'
import { identifier, type Statement, sql } from '../sql.ts'
import { isConnectionLost, toRillflowError } from '../sqlstate.ts'
import { refuseUnstorable } from '../storable.ts'
import { assertOpen, type OpenTransaction, runInside } from '../transaction.ts'
import { cancelStatement } from './cancel.ts'
import { copyFromText } from './copy.ts'
import { isSilence, type Pool } from './pool.ts'
import { type DriverTypes, send } from './query.ts'

export interface TransactionParts {
  readonly database: Database
  readonly pool: Pool
  readonly types: DriverTypes
  readonly shapes: PreparedShapes | undefined
  /** Revokes each open transaction when the database closes. */
  readonly openTransactions: Set<(error: Error) => void>
  /** The error of a statement of ours that got no answer. */
  lostBySilence(label: string, limitMs: number): Error
}

export async function runPostgresTransaction<T>(
  parts: TransactionParts,
  work: (tx: Transaction) => Promise<T>,
  options: TransactionOptions & { timeoutMs: number },
): Promise<T> {
  if (options.signal?.aborted) throw abortError(options.signal)
  const client = await parts.pool.connect(options.signal).catch(error => {
    throw toRillflowError(error, 'connect')
  })
  const state: OpenTransaction = { database: parts.database, open: true }
  const revoked = deferred<never>()
  revoked.promise.catch(() => {})
  const revoke = (error: Error): void => {
    state.open = false
    revoked.reject(error)
  }
  const timer = setTimeout(() => revoke(timeout(parts, connection, options.timeoutMs)), options.timeoutMs)
  const releaseSignal = options.signal && onAbort(options.signal, () => revoke(abortError(options.signal!)))
  parts.openTransactions.add(revoke)

  const connection = pipelinedConnection(client, error => revoke(toRillflowError(error, 'transaction')))
  const hooks: (() => void)[] = []
  try {
    const begun = begin(connection, options)
    // Awaited before the commit. A transaction that ends in another way does not need it.
    begun.catch(() => {})
    const tx = transactionOn(connection, parts, state, begun, hooks)
    const result = await Promise.race([runInside(state, () => work(tx)), revoked.promise])
    state.open = false
    await Promise.race([begun, revoked.promise])
    await commit(connection, parts, options.timeoutMs)
    connection.release()
    for (const hook of hooks) hook()
    return result
  } catch (error) {
    state.open = false
    await connection.abandon(error)
    throw error
  } finally {
    clearTimeout(timer)
    releaseSignal?.()
    parts.openTransactions.delete(revoke)
  }
}

/**
 * If a statement of ours has waited for its answer for half of the time, the connection is to blame and not the code that
 * uses the transaction.
 */
function timeout({ lostBySilence }: TransactionParts, connection: Connection, timeoutMs: number): Error {
  const waiting = connection.current()
  if (waiting === undefined || performance.now() - waiting.sentAt < timeoutMs / 2)
    return new TransactionTimeout({ timeoutMs })
  return lostBySilence(waiting.label, timeoutMs)
}

function transactionOn(
  connection: Connection,
  parts: TransactionParts,
  state: OpenTransaction,
  begun: Promise<void>,
  hooks: (() => void)[],
): Transaction {
  const options = { shapes: parts.shapes }
  let depth = 0
  const runStatement = async (statement: Statement, arrays: boolean): Promise<unknown[]> => {
    assertOpen(state)
    try {
      return (await connection.track(send(connection.client, statement, { ...options, arrays }), statement.label)).rows
    } catch (error) {
      throw toRillflowError(error, statement.label)
    }
  }
  const command = async (text: string): Promise<void> => {
    assertOpen(state)
    await connection.track(connection.client.query(text), 'savepoint')
  }
  return {
    id: Symbol('transaction'),
    run: async <R extends object>(statement: Statement) => (await runStatement(statement, false)) as R[],
    runArrays: async statement => (await runStatement(statement, true)) as unknown[][],
    async query<R extends object>(text: string, values: readonly unknown[] = []) {
      assertOpen(state)
      refuseUnstorable('a query', text, values)
      const query = { text, values: values as unknown[], types: parts.types as pg.CustomTypesConfig }
      return (await connection.track(connection.client.query(query))).rows as R[]
    },
    async savepoint(work) {
      const name = identifier(`rillflow_${++depth}`).quoted
      await command(`savepoint ${name}`)
      try {
        const result = await work()
        await command(`release savepoint ${name}`)
        return result
      } catch (error) {
        if (state.open) await command(`rollback to savepoint ${name}`)
        throw error
      } finally {
        depth--
      }
    },
    async copyIn(table, columns, rows) {
      assertOpen(state)
      await begun
      const list = columns.map(column => identifier(column).quoted).join(', ')
      await connection
        .unpipelined(() =>
          connection.track(copyFromText(connection.client, `copy ${table} (${list}) from stdin`, rows), 'copy'),
        )
        .catch(error => {
          throw toRillflowError(error, 'copy')
        })
    },
    afterCommit: hook => void hooks.push(hook),
  }
}

const isolations: readonly string[] = ['read committed', 'repeatable read', 'serializable']

async function begin(connection: Connection, options: TransactionOptions & { timeoutMs: number }): Promise<void> {
  // Our own limit is shorter and keeps the connection usable; the server's is for a process that has stopped.
  const limit = `${options.timeoutMs + 1_000}ms`
  const idle = options.idleMs === undefined ? limit : `${Math.max(1, Math.ceil(options.idleMs))}ms`
  const lock = options.lockTimeoutMs === undefined ? null : `${Math.max(1, Math.ceil(options.lockTimeoutMs))}ms`
  const level = options.isolation ?? 'read committed'
  if (!isolations.includes(level))
    throw new InvalidOption({
      option: 'isolation',
      reason: `The option "isolation" is ${describe(level)}. It must be one of ${isolations.join(', ')}.`,
    })
  const opening = connection.track(connection.client.query(`begin isolation level ${level}`), 'begin')
  const limits = sql`/* transaction.limits */
    select
      set_config('idle_in_transaction_session_timeout', ${idle}::text, true),
      set_config('statement_timeout', ${limit}::text, true),
      set_config('lock_timeout', coalesce(${lock}::text, current_setting('lock_timeout')), true)`
  if (!connection.pipelines) await opening
  const limiting = connection.track(send(connection.client, limits, { shapes: undefined, arrays: false }), limits.label)
  const both = Promise.all([opening, limiting]).then(() => {})
  both.catch(() => {})
  if (!connection.pipelines) await both
  return both.catch(error => {
    throw toRillflowError(error, 'begin')
  })
}

async function commit(connection: Connection, { pool }: TransactionParts, timeoutMs: number): Promise<void> {
  let result: pg.QueryResult
  try {
    result = await connection.client.query({ text: 'commit', query_timeout: timeoutMs } as pg.QueryConfig)
  } catch (error) {
    if (isSilence(error)) pool.testIdle()
    if (!isConnectionLost(error)) throw toRillflowError(error, 'commit')
    throw new OutcomeUnknown({ eventIds: [], reason: 'the connection was lost during the commit' }, error)
  }
  if (result.command === 'COMMIT') return
  const reason = 'a statement of the transaction had failed, so all of it was rolled back'
  throw new DatabaseFailed({ sqlState: '25P02', reason, statement: 'commit' }, connection.firstError)
}

interface Connection {
  readonly client: pg.PoolClient
  readonly pipelines: boolean
  firstError: unknown
  /** Keeps track of a statement until its answer. `label` is that of one of ours. */
  track<T>(sent: Promise<T>, label?: string): Promise<T>
  /** The statement that the server is at, if it is one of ours. */
  current(): Waiting | undefined
  /** Custom queries such as COPY cannot share a pipelined connection. */
  unpipelined<T>(work: () => Promise<T>): Promise<T>
  release(): void
  abandon(error: unknown): Promise<void>
}

/** A rollback waits for no lock. */
const rollbackMs = 10_000

interface Waiting {
  readonly label: string
  readonly sentAt: number
}

/** Switches the connection to pipelining for the time of the transaction, if the driver supports it. */
function pipelinedConnection(client: pg.PoolClient, onLost: (error: Error) => void): Connection {
  // A connection that is lost between two statements emits an error. Without a listener it would end the process.
  client.on?.('error', onLost)
  const switchable = client as unknown as { pipeline?: boolean }
  const pipelines = switchable.pipeline !== undefined
  const before = switchable.pipeline
  if (pipelines) switchable.pipeline = true
  const pending = new Map<Promise<unknown>, Waiting | undefined>()
  const release = (error?: Error | boolean): void => {
    if (pipelines) switchable.pipeline = before as boolean
    if (error === undefined) client.off?.('error', onLost)
    client.release(error)
  }
  const connection: Connection = {
    client,
    pipelines,
    firstError: undefined,
    track(sent, label) {
      pending.set(sent, label === undefined ? undefined : { label, sentAt: performance.now() })
      sent.then(
        () => pending.delete(sent),
        error => {
          pending.delete(sent)
          connection.firstError ??= error
        },
      )
      return sent
    },
    current: () => pending.values().next().value,
    async unpipelined(work) {
      await Promise.allSettled(pending.keys())
      if (pipelines) switchable.pipeline = false
      try {
        return await work()
      } finally {
        if (pipelines) switchable.pipeline = true
      }
    },
    release,
    async abandon(error) {
      // A running statement would make the rollback wait, so it is ended, and the connection is closed with its transaction.
      if (pending.size > 0 || isConnectionLost(error)) {
        if (pending.size > 0 && !isConnectionLost(error)) await cancelStatement(client)
        if (pipelines) switchable.pipeline = false
        return release(error instanceof Error ? error : true)
      }
      try {
        await client.query({ text: 'rollback', query_timeout: rollbackMs } as pg.QueryConfig)
        release()
      } catch (rollbackError) {
        release(rollbackError as Error)
      }
    },
  }
  return connection
}
