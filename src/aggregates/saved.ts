/** The outcome of a save: of a session, and of a command, however it was given. */
import type { AppendResult } from '../events/append/send.ts'

/** The outcome of a save: the versions and positions of what was written. */
export interface Saved {
  readonly documents: readonly SavedDocument[]
  readonly streams: readonly AppendResult[]
  /** The position of its last event, for `waitFor`; undefined if it had none. */
  readonly position: number | undefined
  /** True if an earlier save with this idempotency key, or an earlier try of this one, had stored it. */
  readonly repeated: boolean
}

export interface SavedDocument {
  readonly collection: string
  readonly id: string
  /** The version it has now; of one that was deleted, the version it had. */
  readonly version: number
}
