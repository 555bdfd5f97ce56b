/** A circuit breaker pauses a consumer whose target is down. */

export interface BreakerOptions {
  /** Failures in a row that open it. Default 5. */
  failures?: number | undefined
  /** How long it stays open before trials are let through. Default 30 000. */
  openMs?: number | undefined
  /** Trials that are let through at once while half open, and successes that close it. Default 1. */
  trials?: number | undefined
}
