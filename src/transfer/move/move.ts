import type { Place } from '../place.ts'

/** One store on its way. The same four values name the same move in every process, before and after a crash. */
export interface Move {
  /** Where the store is. */
  readonly source: Place
  /** Where it will be. */
  readonly target: Place
  /** What its schema is called on the target until it is in use. */
  readonly incoming: string
  /** What its schema is called on the source afterwards. */
  readonly retired: string
}

export interface MoveProgress {
  readonly phase: 'copy' | 'fence'
  readonly table: string
  /** Rows of this table that were copied in this pass, of `totalRows` that differ. */
  readonly rows: number
  readonly totalRows: number
}

/** What was copied, in all passes; what changed meanwhile, and its neighbours, more than once. */
export interface Copied {
  /** Rows of all tables but `events`. */
  readonly rows: number
  readonly events: number
  readonly bytes: number
  readonly passes: number
}
