/** Somebody who can append: ours or a peer, as the append benches drive them. */
import type { OrderEvent } from '../workloads/orders.ts'

export interface Appender extends AsyncDisposable {
  /** Appends to a stream that must be at `version` ('any': whatever it is at); throws otherwise. */
  append(stream: string, version: number | 'any', events: readonly OrderEvent[]): Promise<unknown>
  /** What it writes to, to be emptied between runs. */
  readonly tables: readonly string[]
}

/** What a peer throws if the stream is elsewhere; ours has an error of its own with the same field. */
export class Conflict extends Error {
  readonly actual: number

  constructor(actual: number) {
    super(`the stream is at version ${actual}`)
    this.actual = actual
  }
}
