/**
 * A history of transactions over streams and documents: what each has read and written, and the objects as they are in the
 * end. Every object is a list: a stream of its events, a document (with `history: true`) of its versions. Each element is
 * written by one transaction, so the order of the writes of an object is known.
 */

export interface RecordedTransaction {
  readonly name: string
  readonly began: number
  /** Undefined if it never returned. */
  readonly ended?: number | undefined
  /** Unknown: committed, or not. */
  readonly outcome: 'committed' | 'rolled back' | 'unknown'
  /** In the order in which they were made. */
  readonly operations: readonly Operation[]
}

export type Operation = Write | Read

/** One version of an object. */
export interface Write {
  readonly kind: 'write'
  readonly object: string
  /** Unique: the id of an event, or a name that the document holds. */
  readonly element: string
}

export interface Read {
  readonly kind: 'read'
  readonly object: string
  /** The elements that it has seen, or the version and the last of them. */
  readonly version: number
  readonly element?: string | undefined
  /** Whether the transaction commits only if the object still has this version (`expected`). Default false. */
  readonly isChecked?: boolean | undefined
  readonly began: number
  readonly ended: number
}

export interface TransactionHistory {
  readonly transactions: readonly RecordedTransaction[]
  /** The elements of each object, by version. */
  readonly objects: ReadonlyMap<string, readonly string[]>
  /**
   * Read committed (default): a read that is not checked may come before the rest of its transaction. Serializable: all
   * that a transaction reads and writes happens at one moment.
   */
  readonly isolation?: 'read committed' | 'serializable' | undefined
}
