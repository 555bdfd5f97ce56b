/**
 * Trying again: how long to wait, and the one loop that does it.
 *
 * Waits grow by `factor` up to a limit, and a random share of each is left out, so that calls that failed together do not
 * all come back together. A call is tried again only if `when` says that it can help; by default the error itself says so
 * (`retryable`).
 */

import { sleep, throwIfAborted } from './abort.ts'
import type { Clock } from './clock.ts'
import type { Awaitable } from './core.ts'
import { isRillflowError } from './errors.ts'
import { chance } from './host.ts'
import { optionNames } from './options.ts'

/** Calls `fn`, and again after each failure that `when` allows, at most `retries` more times; then throws the last error. */
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
  /** How many more times after the first. */
  retries: number
  backoff?: Backoff | undefined
  /** Whether another attempt can help. Default: the `retryable` of the error. */
  when?: ((error: unknown) => boolean) | undefined
  signal?: AbortSignal | undefined
  clock?: Clock | undefined
  random?: (() => number) | undefined
}

export interface Backoff {
  /** The wait after the first failure. */
  readonly baseMs: number
  /** Each wait is this many times the one before, */
  readonly factor: number
  /** up to this limit. */
  readonly maxMs: number
  /** The share of the wait that is random: from 0 (the exact wait) to 1 (anything from 0 to the wait). */
  readonly jitter: number
}

/** The names of a backoff, for options that have one. */
export const backoffNames: readonly string[] = optionNames<Backoff>({
  baseMs: true,
  factor: true,
  maxMs: true,
  jitter: true,
})

export const defaultBackoff: Backoff = { baseMs: 50, factor: 2, maxMs: 5000, jitter: 0.5 }

/** The wait in milliseconds after the given attempt (the first is 1) has failed. */
export function delay(backoff: Backoff, attempt: number, random: () => number = chance): number {
  const { baseMs, factor, maxMs, jitter } = backoff
  // The power overflows to Infinity after some thousand attempts. It is limited first, because 0 × Infinity is NaN.
  const growth = Math.min(factor ** (attempt - 1), Number.MAX_VALUE)
  const full = Math.min(baseMs * growth, maxMs)
  return full * (1 - jitter * random())
}

function isRetryable(error: unknown): boolean {
  return isRillflowError(error) && error.retryable
}
