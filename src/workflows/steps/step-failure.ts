/**
 * Errors of steps, as they are stored for the rest of their attempt: a handler that has caught one takes the same way when
 * it runs again after a wait.
 */
import { describeError, propertyOf } from '../../consumers/run/failure.ts'
import { isRillflowError } from '../../core/errors.ts'

/** The parts of an error that decide about retries. */
export interface StepFailure {
  /** The attempt in which it happened. */
  readonly attempt: number
  readonly name: string
  readonly message: string
  readonly code?: string | undefined
  readonly retryable?: false | undefined
  readonly retryAfterMs?: number | undefined
}

export function failureOf(error: unknown, attempt: number): StepFailure {
  const { name, message, code } = describeError(error)
  const retryable = isFinal(error) ? (false as const) : undefined
  return { attempt, name, message, code, retryable, retryAfterMs: retryAfter(error) }
}

/** The error again. It is known by its name and code, not by its class, which is not stored. */
export function revived({ name, message, code, retryable, retryAfterMs }: StepFailure): Error {
  const error = new Error(message)
  Object.defineProperty(error, 'name', { value: name })
  const more = { code, retryable, retryAfterMs }
  return Object.assign(error, Object.fromEntries(Object.entries(more).filter(([, value]) => value !== undefined)))
}

/** Whether the error itself says that no retry can help. */
export function isFinal(error: unknown): boolean {
  return isRillflowError(error) ? error.code === 'non_retryable' : propertyOf(error, 'retryable') === false
}

/** How long the error says to wait before the next attempt. */
export function retryAfter(error: unknown): number | undefined {
  const wanted = propertyOf(error, isRillflowError(error, 'retry_later') ? 'delayMs' : 'retryAfterMs')
  return typeof wanted === 'number' && wanted >= 0 && wanted < 2 ** 31 ? wanted : undefined
}
