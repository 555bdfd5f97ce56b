/**
 * Trying again: how long to wait, and the one loop that does it.
 *
 * Waits grow by `factor` up to a cap, and a random share of each is left out, so that many who failed together do not
 * come back together. Nothing is tried again unless `when` says that it can help; by default that is what the error
 * itself says (`retryable`).
 */
import type { Clock } from './clock.ts'
import type { Awaitable } from './core.ts'
import { isRillflowError } from './errors.ts'
import { sleep, throwIfAborted } from './lifecycle.ts'

/** Calls `fn`, and again after each failure that `when` allows, `retries` more times at most; then the last error. */
export async function retry<T>(fn: (attempt: number) => Awaitable<T>, options: RetryOptions): Promise<T> {
  const { retries, backoff = defaultBackoff, when = isRetryable, random, ...wait } = options
  for (let attempt = 1; ; attempt++) {
    throwIfAborted(options.signal)
    try {
      return await fn(attempt)
    } catch (error) {
      if (attempt > retries || !when(error)) throw error
    }
    await sleep(delay(backoff, attempt, random), wait)
  }
}

export interface RetryOptions {
  /** How many more times after the first; 0 is once. */
  retries: number
  backoff?: Backoff | undefined
  /** Whether this error is worth another attempt; default: its `retryable`. */
  when?: ((error: unknown) => boolean) | undefined
  signal?: AbortSignal | undefined
  clock?: Clock | undefined
  random?: (() => number) | undefined
}

export interface Backoff {
  /** The wait after the first failure. */
  readonly baseMs: number
  /** Each wait is this many times the one before… */
  readonly factor: number
  /** …until it has grown to this. */
  readonly maxMs: number
  /** From 0 (the exact wait) to 1 (anything down to none): the share of the wait that is left to chance. */
  readonly jitter: number
}

export const defaultBackoff: Backoff = { baseMs: 50, factor: 2, maxMs: 5000, jitter: 0.5 }

/** The wait in milliseconds after the given attempt (the first is 1) has failed. */
export function delay(backoff: Backoff, attempt: number, random: () => number = Math.random): number {
  const { baseMs, factor, maxMs, jitter } = backoff
  // The power overflows to Infinity after some thousand attempts; capped first, since 0 × Infinity would be NaN.
  const growth = Math.min(factor ** (attempt - 1), Number.MAX_VALUE)
  const full = Math.min(baseMs * growth, maxMs)
  return full * (1 - jitter * random())
}

function isRetryable(error: unknown): boolean {
  return isRillflowError(error) && error.retryable
}
