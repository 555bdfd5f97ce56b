/**
 * What becomes of an event whose handler failed: how often it is tried again and after which waits, and what happens at
 * the end. One shape for everybody; the names are shorthands for it.
 *
 *     deadLetter()                                     3 retries, then set aside and go on: the default of projections
 *     failFast()                                       stop at the first failure: the default of processors
 *     retryWithBackoff({ retries: 10, end: 'skip' })
 *     custom(({ error, attempt }) => (attempt < 5 && isTemporary(error) ? 'retry' : 'dead-letter'))
 *     deadLetter({ byType: { OrderShipped: failFast() } })
 */
import type { Awaitable } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { type Backoff, delay } from '../../core/retry.ts'
import type { RecordedEvent } from '../../events/definition.ts'

export type FailureEnd = 'stop' | 'skip' | 'dead-letter'

export type Decision = FailureEnd | 'retry'

/** One failure of one event. */
export interface Failure {
  readonly consumer: string
  readonly event: RecordedEvent
  readonly error: unknown
  /** How often the event has been tried by now, from 1. */
  readonly attempt: number
}

export interface FailurePolicy {
  /** How many more times after the first try. */
  readonly retries: number
  readonly backoff: Backoff
  /** What happens after the last try, or a function that decides after each. */
  readonly end: FailureEnd | ((failure: Failure) => Awaitable<Decision>)
  /** Other policies for some types of events. */
  readonly byType?: Readonly<Record<string, FailurePolicy>> | undefined
}

export interface PolicyOptions {
  /** How many more times after the first try. Default 3. */
  retries?: number | undefined
  /** The wait after the first failure; it doubles with each one. Default 1000. */
  baseMs?: number | undefined
  /** The longest wait. Default 30 000. */
  maxMs?: number | undefined
  /** The share of a wait that is left to chance, 0 to 1. Default 0.1. */
  jitter?: number | undefined
  /** Other policies for some types of events. */
  byType?: Readonly<Record<string, FailurePolicy>> | undefined
}

/** Stops the consumer at the first failure. */
export function failFast(options: PolicyOptions = {}): FailurePolicy {
  return policy({ retries: 0, ...options }, 'stop')
}

/** Goes on after the first failure, and says so to the logger. */
export function logAndSkip(options: PolicyOptions = {}): FailurePolicy {
  return policy({ retries: 0, ...options }, 'skip')
}

/** Tries again, then sets the event aside as a dead letter and goes on. */
export function deadLetter(options: PolicyOptions = {}): FailurePolicy {
  return policy(options, 'dead-letter')
}

/** Tries again with growing waits, then does what `end` says. Default 'stop'. */
export function retryWithBackoff(options: PolicyOptions & { end?: FailureEnd | undefined } = {}): FailurePolicy {
  const { end = 'stop', ...rest } = options
  return policy(rest, end)
}

/** Asks after each failure; there is no limit but the one it sets. */
export function custom(decide: (failure: Failure) => Awaitable<Decision>, options: PolicyOptions = {}): FailurePolicy {
  if (typeof decide !== 'function') throw new InvalidOption({ option: 'policy', reason: 'custom takes a function' })
  return policy({ retries: 0, ...options }, decide)
}

export function policyFor(given: FailurePolicy, type: string): FailurePolicy {
  const { byType } = given
  return byType !== undefined && Object.hasOwn(byType, type) ? byType[type]! : given
}

/** What happens now, and after which wait if it is tried again. */
export async function decide(
  given: FailurePolicy,
  failure: Failure,
): Promise<{ decision: FailureEnd } | { decision: 'retry'; delayMs: number }> {
  const { retries, backoff, end } = policyFor(given, failure.event.type)
  const delayMs = delay(backoff, failure.attempt)
  if (typeof end !== 'function') return failure.attempt <= retries ? { decision: 'retry', delayMs } : { decision: end }
  const decision: unknown = await end(failure)
  if (decision === 'retry') return { decision, delayMs }
  if (decision === 'stop' || decision === 'skip' || decision === 'dead-letter') return { decision }
  throw new InvalidOption({ option: 'policy', reason: `${String(decision)} is no decision: ${decisions}` })
}

/** Refuses what came from JavaScript, or from a file, and is no policy. */
export function checkPolicy(given: FailurePolicy): FailurePolicy {
  const { retries, backoff, end, byType } = given ?? {}
  const known = typeof end === 'function' || (ends as readonly unknown[]).includes(end)
  if (!known) throw new InvalidOption({ option: 'policy', reason: `has an unknown end, ${String(end)}: ${decisions}` })
  if (!Number.isSafeInteger(retries) || retries < 0)
    throw new InvalidOption({ option: 'policy', reason: `retries must be a whole number from 0, not ${retries}` })
  if (!(backoff.baseMs >= 0 && backoff.maxMs >= 0 && backoff.factor >= 1 && backoff.jitter >= 0 && backoff.jitter <= 1))
    throw new InvalidOption({
      option: 'policy',
      reason: 'needs waits from 0, a factor from 1, and a jitter from 0 to 1',
    })
  for (const each of Object.values(byType ?? {})) checkPolicy(each)
  return given
}

const ends = ['stop', 'skip', 'dead-letter'] as const
const decisions = 'it is stop, skip, retry or dead-letter'

function policy(options: PolicyOptions, end: FailurePolicy['end']): FailurePolicy {
  const { retries = 3, baseMs = 1_000, maxMs = 30_000, jitter = 0.1, byType } = options
  return checkPolicy({ retries, backoff: { baseMs, factor: 2, maxMs, jitter }, end, byType })
}
