/** What an attempt came to, before it is stored. */
import type { ErrorDescription } from '../../consumers/run/failure.ts'
import type { Transaction } from '../../database/database.ts'
import type { Emitted } from '../emitted.ts'
import { envelopeOf } from '../envelope.ts'
import type { Claimed } from './claim.ts'

export interface Outcome {
  readonly execution: Claimed
  /** The row goes · tried again later · waits · given back, not counted · waits for a person. */
  readonly kind: 'done' | 'retry' | 'suspend' | 'release' | 'park'
  /** As the activity tells of it. */
  readonly told: 'completed' | 'skipped' | 'failed' | 'suspended' | 'released' | 'parked'
  /** More of it, in a word. */
  readonly detail?: string | undefined
  /** Undefined: until somebody wakes it. */
  readonly delayMs?: number | undefined
  readonly runningMs: number
  readonly error?: ErrorDescription | undefined
  readonly emitted?: Emitted | undefined
  /** What the handler may emit, for joins that wait for it. */
  readonly emits: readonly string[]
  /** Written with it, before positions are drawn; if it throws, nothing of the outcome stands. */
  readonly inside?: ((tx: Transaction) => Promise<unknown>) | undefined
  /** What is stored instead if this is refused; undefined if whoever stored it has to find out. */
  readonly instead?: ((error: unknown) => Partial<Outcome>) | undefined
  /** Whether with it compensation begins: all of its workflow is held first. */
  readonly compensates?: boolean | undefined
  /** When the time of the execution is over, by `performance.now()`; undefined if it has no deadline. */
  readonly expiresAt?: number | undefined
  /** Whether the execution has left steps behind. */
  readonly hasSteps: boolean
}

/** Whether it can be stored together with others, by one statement, without a transaction of its own. */
export function isPlain({ inside, emitted, execution }: Outcome): boolean {
  return inside === undefined && emitted === undefined && !isInBatch(execution) && !execution.isLetter
}

export function isInBatch({ event, joinId }: Claimed): boolean {
  return joinId !== undefined || (event !== undefined && envelopeOf(event).batches.length > 0)
}
