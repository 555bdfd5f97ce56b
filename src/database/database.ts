/**
 * The database: one small interface, two engines behind it.
 *
 *     events/ documents/ …  ──►  Database  ──►  postgres.ts   a pool of connections to a server
 *                                          ──►  pglite.ts     one connection, in this process, on this thread
 *
 * Guarantees, held by one conformance suite on both engines:
 * - `run` sends one statement, which is a transaction of its own at read committed; `transaction` gives a handle that
 *   is revoked when it ends, fails or times out, before its connection is used again.
 * - A commit that did not commit rejects. (The server answers the commit of a failed transaction with the tag
 *   ROLLBACK and no error.)
 * - bigint, timestamptz and json come back as bigint, Date and parsed values, by parsers passed with each query; the
 *   driver's global parsers are neither used for these types nor changed.
 * - A call on the database from inside its own open transaction fails at once (`InsideTransaction`): embedded it would
 *   wait for itself for ever, on a server it would silently run outside of the transaction.
 *
 * What can fail: every error of our own statements is one of `core/errors.ts`. A lost connection is `ConnectionLost`,
 * which says nothing about whether a statement took effect: who sends writes decides what to do then. Errors of users'
 * statements (`query`) are passed on as the driver made them.
 *
 * No session state is relied on: no `set` survives a transaction, so a pooler in transaction mode may stand between.
 */
import type { Statement } from './sql.ts'

/** The oldest major version of PostgreSQL that works. */
export const oldestMajor = 15

export interface Database extends Executor {
  readonly engine: 'postgres' | 'pglite'
  /**
   * Set where nobody else can use this database: who left a lease under another sign is gone. A new one with each opening.
   */
  readonly soleUser: string | undefined
  /** Those of this process who share this database, by what they want to be told. */
  readonly neighbours: Set<(channel: string, payload: string) => void>
  /** How many statements can be under way at once. */
  readonly maxConnections: number
  /** The connections there are now, and the calls that wait for one. */
  connections(): Connections
  /** The folder that the data is in, where it is ours to copy: an embedded database that is not in memory. */
  readonly files: DatabaseFiles | undefined
  /** Work worth sending in one call: about 10 ms of the embedded engine's thread, more on a server. */
  readonly batch: { readonly appendEvents: number; readonly readEvents: number }
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>
  /** The rows of a query in COPY's text form. The statement takes no parameters: only numbers are ever put in. */
  copyOut(text: string): Promise<Buffer>
  /** Calls back for each notification until it is closed; reconnects by itself. */
  listen(channel: string, onNotify: (payload: string) => void): Listener
  /** Fails if called inside an open transaction of this database; `call` names the caller for people. */
  refuseInsideTransaction(call: string): void
  /** Waits for running work up to `closeMs`, then cuts it off. */
  close(closeMs: number): Promise<void>
}

export interface Connections {
  readonly busy: number
  readonly idle: number
  readonly waiting: number
}

export interface DatabaseFiles {
  /**
   * Lets `work` copy the folder while nothing changes in it: all that is committed by then is in its files. Everybody else
   * waits in line, for as long as it takes.
   */
  hold<T>(work: (held: HeldFiles) => Promise<T>, signal?: AbortSignal): Promise<T>
}

export interface HeldFiles extends Executor {
  readonly folder: string
}

/** What runs statements: the database itself, one of its transactions, or a user's own transaction. */
export interface Executor {
  run<R extends object = Record<string, unknown>>(statement: Statement): Promise<R[]>
  /** The same, each row as an array of its columns: cheaper for many rows. */
  runArrays(statement: Statement): Promise<unknown[][]>
}

/** An open transaction. It ends with the function it was given to. */
export interface Transaction extends Executor {
  /** The transaction's own id, for telling transactions apart in memory. */
  readonly id: symbol
  /** Runs SQL of yours; `$1`… are taken from `values`. */
  query<R extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>
  /** Undoes what `work` did if it fails, and lets the transaction go on. */
  savepoint<T>(work: () => Promise<T>): Promise<T>
  /** Loads rows given in COPY's text form. */
  copyIn(table: string, columns: readonly string[], rows: string): Promise<void>
  /** Runs `hook` after the commit; never after a rollback. */
  afterCommit(hook: () => void): void
}

export interface TransactionOptions {
  /** Rolled back after this long. Default 30 000, embedded 5 000. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
  /** How long the server lets it idle between two statements before it is cut off. Default: as long as it may take. */
  idleMs?: number | undefined
  /** How long one of its statements may wait for a lock. Default: as long as it may take. */
  lockTimeoutMs?: number | undefined
  isolation?: 'read committed' | 'repeatable read' | 'serializable' | undefined
}

export interface Listener {
  /** Resolves when the first `listen` has been acknowledged. */
  readonly ready: Promise<void>
  close(): Promise<void>
}
