/**
 * The database: one small interface, two engines behind it.
 *
 *     events/ documents/ …  ──►  Database  ──►  postgres/   a pool of connections to a server
 *                                          ──►  pglite/     one connection, in this process, on this thread
 *
 *     sql           the only way to write a statement              transaction   inside or outside of one; the user's own
 *     parse         values from the database                       handle        lent, shared and foreign handles
 *     copy-text     rows in the text form of COPY                  prune         deletes old rows in chunks
 *     sqlstate      errors of the driver into errors of ours
 *
 * Guarantees, proven by one conformance suite on both engines:
 * - `run` sends one statement, which is a transaction of its own at read committed. `transaction` gives a handle that
 *   is revoked when it ends, fails or times out, before its connection is used again.
 * - A commit that did not commit rejects. (The server answers the commit of a failed transaction with the tag ROLLBACK
 *   and no error.)
 * - bigint comes back as a number, timestamptz as a Date, and json parsed, by parsers that are passed with each query.
 *   The driver's global parsers are neither used for these types nor changed.
 * - A call on the database from inside its own open transaction fails at once (`InsideTransaction`): embedded it would
 *   wait for itself for ever, and on a server it would silently run outside of the transaction.
 *
 * What can fail: every error of our own statements is one of `errors.ts`. A lost connection is `ConnectionLost`, which
 * does not say whether a statement took effect: the sender of a write decides what to do then. Errors of users'
 * statements (`query`) are passed on as the driver made them.
 *
 * No session state is relied on: no `set` survives a transaction, so there may be a pooler in transaction mode.
 */
import type { Statement } from './sql.ts'

/** The oldest major version of PostgreSQL that works. */
export const oldestMajor = 15

export interface Database extends Executor {
  readonly engine: 'postgres' | 'pglite'
  /**
   * Whether it belongs to a cluster, where rows are on nodes: there a statement either reads tables or calls a function that
   * does, so that some calls are sent in several statements instead of one.
   */
  readonly hasNodes: boolean
  /**
   * An id of this opening, in the process that has an embedded database open. An owner of a lease whose id begins with
   * that of another opening and `/` belongs to a process that has ended. Guests have none, and owners of theirs are ids
   * without `/`: their leases expire as on a server.
   */
  readonly soleUser: string | undefined
  /** Callbacks of the stores in this process that share the database. Each is called with the hints of the others. */
  readonly neighbours: Set<(channel: string, payload: string) => void>
  /** How many statements can run at the same time. */
  readonly maxConnections: number
  /** The present connections, and the calls that wait for one. */
  connections(): Connections
  /** The folder of an embedded database that is not in memory, for a backup. */
  readonly files: DatabaseFiles | undefined
  /** How much to send in one call: about 10 ms of the embedded engine's thread, more on a server. */
  readonly batch: { readonly appendEvents: number; readonly readEvents: number }
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>
  /** The rows of a query in the text form of COPY. It cannot have parameters, so only numbers are put into its text. */
  copyOut(text: string): Promise<Buffer>
  /**
   * Tells other processes, soon: together with all that is sent within 20 ms, of all stores on this database. Only a hint,
   * which may get lost. Embedded it tells the other stores of this process, and the guests, at once.
   */
  notify(channel: string, payload: string): void
  /** Calls back for each notification until the listener is closed. It reconnects when its connection is lost. */
  listen(channel: string, onNotify: (payload: string) => void): Listener
  /** Throws if it is called inside an open transaction of this database. `call` is named in the error. */
  refuseInsideTransaction(call: string): void
  /** Waits for running work up to `closeMs`, then ends it. */
  close(closeMs: number): Promise<void>
}

export interface Connections {
  readonly busy: number
  readonly idle: number
  readonly waiting: number
}

export interface DatabaseFiles {
  /**
   * Runs `work` while nothing changes in the folder: everything that was committed before is in its files. All other
   * calls wait until it has ended.
   */
  hold<T>(work: (held: HeldFiles) => Promise<T>, signal?: AbortSignal): Promise<T>
}

export interface HeldFiles extends Executor {
  readonly folder: string
}

/** A target of statements: the database, one of its transactions, or a transaction of the user. */
export interface Executor {
  run<R extends object = Record<string, unknown>>(statement: Statement): Promise<R[]>
  /** The same, with each row as an array of its columns: cheaper for many rows. */
  runArrays(statement: Statement): Promise<unknown[][]>
}

/**
 * An open transaction. It ends when the function that received it has returned.
 *
 * @example
 * ```ts
 * const count = (tx: Transaction) => tx.query<{ n: number }>('select 1 as n')
 * await store.transaction(count)
 * ```
 */
export interface Transaction extends Executor {
  /** Identifies the transaction in memory. */
  readonly id: symbol
  /** Runs SQL of yours. `values` are its parameters `$1`, `$2`, …. */
  query<R extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>
  /** If `work` fails, its statements are undone; the transaction can continue. */
  savepoint<T>(work: () => Promise<T>): Promise<T>
  /** Inserts rows given in the text form of COPY. */
  copyIn(table: string, columns: readonly string[], rows: string): Promise<void>
  /** Runs `hook` after the commit; never after a rollback. */
  afterCommit(hook: () => void): void
}

export interface TransactionOptions {
  /** The transaction is rolled back after this time. Default 30 000, embedded 5 000. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
  /** How long it may be idle between two statements before the server ends it. Default: `timeoutMs`. */
  idleMs?: number | undefined
  /** How long one of its statements may wait for a lock. Default: `timeoutMs`. */
  lockTimeoutMs?: number | undefined
  isolation?: 'read committed' | 'repeatable read' | 'serializable' | undefined
  /** Whether it makes, changes or drops tables. On a cluster it then goes to the node that takes such changes. Default false. */
  changesTables?: boolean | undefined
}

export interface Listener {
  /** Resolves when the first `listen` has been acknowledged. */
  readonly ready: Promise<void>
  /**
   * Whether a notification that was sent through the database has arrived: tested once, after the first `listen`. Undefined
   * if there is no listening connection. A pooler that lends its connections for one transaction takes `listen` and
   * delivers nothing.
   */
  readonly receives: Promise<boolean | undefined>
  close(): Promise<void>
}
