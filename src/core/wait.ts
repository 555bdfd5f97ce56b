/**
 * Waiting as every `waitFor…` and `waitUntil…` of the store does: 30 seconds by default. It rejects with `TimedOut`, which says
 * what is missing, or with the reason of the caller's signal.
 */
import { deadline } from './abort.ts'
import type { Clock } from './clock.ts'
import { isRillflowError, TimedOut } from './errors.ts'
import { refuseUnknownOptions } from './options.ts'

export interface WaitOptions {
  /** Default 30 000; Infinity waits without a limit. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
}

export interface Wait {
  /** The call, for messages: `store.events.waitFor`. */
  readonly call: string
  /** The end that is waited for, as the subject of a sentence. */
  readonly what: string
  readonly clock: Clock
  /** The obstacle, in whole sentences; asked when the time is over. */
  missing(): Promise<string | undefined>
}

/** Runs `work`, whose signal aborts when the time is over or the caller's signal does. */
export async function waitWithin<T>(
  options: WaitOptions,
  { call, what, clock, missing }: Wait,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  refuseUnknownOptions(call, options, ['timeoutMs', 'signal'])
  const { timeoutMs = 30_000, signal } = options
  const limit = deadline(signal, timeoutMs, { what, clock })
  try {
    return await work(limit.signal)
  } catch (error) {
    if (signal?.aborted && (isRillflowError(error, 'aborted') || error === signal.reason)) throw signal.reason
    if (!isRillflowError(error, 'timed_out') || limit.signal.reason !== error) throw error
    throw new TimedOut({ what, timeoutMs, missing: await missing().catch(() => undefined) })
  } finally {
    limit.dispose()
  }
}
