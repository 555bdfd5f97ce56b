/** An event store that appends, ours or a peer, as the append benches drive it. */
import type { OrderEvent } from '../workloads/orders.ts'

export interface Appender extends AsyncDisposable {
  /** Appends to a stream that must be at `version` (or at any version); throws otherwise. */
  append(stream: string, version: number | 'any', events: readonly OrderEvent[]): Promise<unknown>
  /** The tables it writes to, to be emptied between runs. */
  readonly tables: readonly string[]
}

/** Thrown by a peer if the stream is at another version; the store's own error has the same field. */
export class Conflict extends Error {
  readonly actual: number

  constructor(actual: number) {
    super(`the stream is at version ${actual}`)
    this.actual = actual
  }
}
