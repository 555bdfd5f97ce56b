/** Runs consumers under leases that are spread over all hosts of the log. */
import type { ConsumerKind, StartFrom } from './consumer.ts'
import type { Lease } from './lease.ts'

/** What a host can run: it knows nothing of it but its name and how to begin. */
export interface Hosted {
  readonly name: string
  readonly kind: ConsumerKind
  readonly startFrom: StartFrom
  readonly leaseMs: number
  /** What is stored with a new row. */
  readonly definition?: object | undefined
  /** Works under the lease; returns soon after `drain` aborts, at once after `lost` does. Never rejects for long: it is started again. */
  run(hold: Hold): Promise<void>
}

/** A lease that a host keeps renewed while `run` works under it. */
export interface Hold {
  readonly lease: Lease
  /** Aborts when the lease is to be given back: finish what is under way, then return. */
  readonly drain: AbortSignal
  /** Aborts when the lease is lost: nothing may be done any more. */
  readonly lost: AbortSignal
}
