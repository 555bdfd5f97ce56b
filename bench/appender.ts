/** Somebody who can append: ours or a peer, as the append benches drive them. */
import type { OrderEvent } from './workload.ts'

export interface Appender extends AsyncDisposable {
  /** Appends to a stream that must be at `version` ('any': whatever it is at); throws otherwise. */
  append(stream: string, version: number | 'any', events: readonly OrderEvent[]): Promise<unknown>
  /** What it writes to, to be emptied between runs. */
  readonly tables: readonly string[]
}
