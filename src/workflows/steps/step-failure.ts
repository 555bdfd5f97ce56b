/** Errors of steps, as they are remembered for the rest of their attempt. */
import { describeError, propertyOf } from '../../consumers/run/failure.ts'
import { isRillflowError } from '../../core/errors.ts'

/** What of an error decides what becomes of it. */
export interface Failure {
  /** The attempt that it happened in. */
  readonly attempt: number
  readonly name: string
  readonly message: string
  readonly code?: string | undefined
  readonly retryable?: false | undefined
  readonly retryAfterMs?: number | undefined
}

export function failureOf(error: unknown, attempt: number): Failure {
  const { name, message, code } = describeError(error)
  const retryable = isFinal(error) ? (false as const) : undefined
  return { attempt, name, message, code, retryable, retryAfterMs: retryAfter(error) }
}

/** Told apart by name and code, not by class: that is not remembered. */
export function revived({ name, message, code, retryable, retryAfterMs }: Failure): Error {
  const error = new Error(message)
  Object.defineProperty(error, 'name', { value: name })
  const more = { code, retryable, retryAfterMs }
  return Object.assign(error, Object.fromEntries(Object.entries(more).filter(([, value]) => value !== undefined)))
}

/** Whether it says of itself that no other try can help. */
function isFinal(error: unknown): boolean {
  return isRillflowError(error) ? error.code === 'non_retryable' : propertyOf(error, 'retryable') === false
}

/** How long it says to wait before the next try. */
export function retryAfter(error: unknown): number | undefined {
  const wanted = propertyOf(error, isRillflowError(error, 'retry_later') ? 'delayMs' : 'retryAfterMs')
  return typeof wanted === 'number' && wanted >= 0 && wanted < 2 ** 31 ? wanted : undefined
}
