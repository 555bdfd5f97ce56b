/**
 * The failure policy: it decides about an event whose handler failed.
 *
 *     failed ──► the breaker opened ──────► wait until it lets a trial through; it does not count as an attempt
 *            ──► retries are left ────────► wait (backoff), then the same event again; the consumer waits with it
 *            ──► none is left, onFailure:
 *                  'deadLetter'  record a dead letter, continue after the event
 *                  'skip'        continue after the event
 *                  'stop'        stay before the event, and stop the consumer
 *                  'park'        record a dead letter, hold back the later events of its stream, continue with others
 *                  a function    is called after every failure, and returns one of these or 'retry'
 *
 * Everything that follows the log has these options in one shape. Options for some types of events (`byType`) replace
 * those of the definition, one by one.
 *
 *     defineProcessor('mailer', { on: …, retries: 10, onFailure: 'skip', byType: { OrderShipped: { onFailure: 'stop' } } })
 *
 * The outcome is written in the transaction that keeps the events before the failed one.
 */
import type { Awaitable } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { describe, refuseUnknownInside, refuseUnknownOptions } from '../../core/options.ts'
import { type Backoff, backoffNames, delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import { channels } from '../../telemetry/telemetry.ts'
import { record } from '../dead-letters/row.ts'
import { DeadLetterUnwritable } from '../errors.ts'
import { save } from '../row.ts'
import type { Work } from './batch.ts'
import { describeError, isInterruption } from './failure.ts'

/**
 * The action after the last attempt. `'park'` also holds back the later events of the stream, until a retry succeeds.
 *
 * @example
 * ```ts
 * const end: FailureEnd = 'park' // later events of its stream wait for it
 * ```
 */
export type FailureEnd = 'deadLetter' | 'skip' | 'stop' | 'park'

/**
 * One failure of one event.
 *
 * @example
 * ```ts
 * const onFailure = ({ attempt, error }: Failure) => (attempt < 5 && error instanceof TypeError ? 'retry' : 'deadLetter')
 * ```
 */
export interface Failure {
  readonly consumer: string
  readonly event: RecordedEvent
  readonly error: unknown
  /** How often the event has been tried by now, from 1. */
  readonly attempt: number
}

/**
 * The reaction to a failure in the code of a consumer: retries, the waits between them, and the end.
 *
 * @example
 * ```ts
 * const patient: FailureOptions = { retries: 10, backoff: { baseMs: 500, maxMs: 60_000 }, onFailure: 'park' }
 * ```
 */
export interface FailureOptions {
  /** How many more times after the first attempt. Default 3. */
  retries?: number | undefined
  /** The waits between attempts. Default: 1 s, doubling up to 30 s, a tenth of it left to chance. */
  backoff?: Partial<Backoff> | undefined
  /** False for an error that no further attempt can cure. Default: every error is retried. */
  isRetryable?: ((error: unknown) => boolean) | undefined
  /**
   * The action after the last attempt. Default 'deadLetter'; a processor's is 'stop'. A function is called after every
   * failure, and sets the limit itself.
   */
  onFailure?: FailureEnd | ((failure: Failure) => Awaitable<FailureEnd | 'retry'>) | undefined
  /** Other options for events of some types; a missing option is that of the definition. */
  byType?: Readonly<Record<string, Omit<FailureOptions, 'byType'>>> | undefined
}

/** The names of `FailureOptions`, for definitions that have further options. */
export const failureOptionNames: readonly (keyof FailureOptions)[] = [
  'retries',
  'backoff',
  'isRetryable',
  'onFailure',
  'byType',
]

/** The options in full. */
export interface FailurePolicy {
  readonly retries: number
  readonly backoff: Backoff
  readonly isRetryable: (error: unknown) => boolean
  readonly onFailure: NonNullable<FailureOptions['onFailure']>
  readonly byType: ReadonlyMap<string, FailurePolicy>
}

/** `what` is the definition, as messages name it: `Projection "sales"`. */
export function failurePolicy(
  what: string,
  options: FailureOptions,
  otherwise: FailureEnd = 'deadLetter',
): FailurePolicy {
  const { byType = {}, ...own } = options
  const policies = Object.entries(byType).map(([type, given]) => {
    refuseUnknownOptions(`The failure policy of ${type} in ${what}`, given, failureOptionNames.slice(0, -1))
    return [type, policyOf(what, { ...own, ...given }, otherwise)] as const
  })
  return { ...policyOf(what, own, otherwise), byType: new Map(policies) }
}

function policyOf(what: string, options: FailureOptions, otherwise: FailureEnd): FailurePolicy {
  const { retries = 3, isRetryable = () => true, onFailure = otherwise } = options
  refuseUnknownInside(what, 'backoff', options.backoff, backoffNames)
  const backoff = { baseMs: 1_000, factor: 2, maxMs: 30_000, jitter: 0.1, ...options.backoff }
  const refuse = (option: string, reason: string): never => {
    throw new InvalidOption({ option, reason: `${what} ${reason}` })
  }
  if (!Number.isSafeInteger(retries) || retries < 0)
    refuse('retries', `has ${describe(retries)} as "retries". It must be a whole number from 0.`)
  const { baseMs, factor, maxMs, jitter } = backoff
  if (!(baseMs >= 0 && maxMs >= 0 && factor >= 1 && jitter >= 0 && jitter <= 1))
    refuse(
      'backoff',
      'has a "backoff" that is not valid. Its waits must be at least 0, its factor at least 1, and its jitter from 0 to 1.',
    )
  if (typeof isRetryable !== 'function')
    refuse('isRetryable', `has ${describe(isRetryable)} as "isRetryable". It must be a function.`)
  if (typeof onFailure !== 'function' && !ends.includes(onFailure))
    refuse('onFailure', `has ${describe(onFailure)} as "onFailure". It must be ${endNames}, or a function.`)
  return { retries, backoff, isRetryable, onFailure, byType: new Map() }
}

const ends: readonly FailureEnd[] = ['deadLetter', 'skip', 'stop', 'park']
const endNames = `'deadLetter', 'skip', 'stop' or 'park'`

/** Whether it may park the stream of an event, so that those that are parked have to be looked up. */
export function mayPark(policy: FailurePolicy): boolean {
  const { onFailure, byType } = policy
  return onFailure === 'park' || typeof onFailure === 'function' || [...byType.values()].some(mayPark)
}

export type Decision = { readonly decision: FailureEnd } | { readonly decision: 'retry'; readonly delayMs: number }

/** The decision, with the wait before the next attempt if there is one. */
export async function decide(policy: FailurePolicy, failure: Failure): Promise<Decision> {
  const { retries, backoff, isRetryable, onFailure } = policy.byType.get(failure.event.type) ?? policy
  const { attempt, error, consumer } = failure
  const again = { decision: 'retry', delayMs: delay(backoff, attempt) } as const
  if (typeof onFailure !== 'function') return attempt <= retries && isRetryable(error) ? again : { decision: onFailure }
  const decision: unknown = await onFailure(failure)
  if (decision === 'retry') return again
  if ((ends as readonly unknown[]).includes(decision)) return { decision: decision as FailureEnd }
  const reason = `"onFailure" of "${consumer}" returned ${describe(decision)}. It must return ${endNames}, or 'retry'.`
  throw new InvalidOption({ option: 'onFailure', reason: `The function ${reason}` })
}

/** The outcome of a failed event. */
export interface PolicyOutcome {
  readonly checkpoint: number
  /** How often the event after the checkpoint has failed. */
  readonly attempts: number
  /** How long it has to wait before it is tried again. */
  readonly retryInMs: number
  readonly isPaused: boolean
  /** Undefined if there was no failure, or the event is tried again. */
  readonly end: FailureEnd | undefined
  readonly error: unknown
}

/**
 * Carries out the decision of the policy, as the last statements of the transaction. `savesPassed` false: if the event
 * is passed and others follow in the same transaction, the caller saves the checkpoint after them. None follow one that
 * parks its stream.
 */
export async function applyPolicy(
  work: Work,
  tx: Transaction,
  event: RecordedEvent,
  error: unknown,
  attempt: number,
  savesPassed = true,
): Promise<PolicyOutcome> {
  const { log, consumer, lease, from, breaker } = work
  const { telemetry } = log
  const about = { schema: log.schema, consumer: consumer.name, eventId: event.id, position: event.position, attempt }
  const stored = { ...describeError(error), eventId: event.id, position: event.position, attempt }
  const before = event.position - 1
  telemetry.count('consumer_failures_total', 1, consumer.name)

  const wait = async (attempts: number, retryInMs: number): Promise<PolicyOutcome> => {
    const { isPaused } = await save(log, lease, { from, checkpoint: before, attempts, retryInMs, error: stored }, tx)
    return { checkpoint: before, attempts, retryInMs, isPaused, end: undefined, error }
  }

  // A breaker that this failure has opened says that the target is down, not that the event is bad.
  if (breaker !== undefined && breaker.openings() > work.openings) return wait(attempt - 1, breaker.retryInMs())

  const decided = await decide(consumer.policy, { consumer: consumer.name, event, error, attempt })
  const { decision } = decided
  telemetry.publish(channels.failure, () => ({ ...about, error, decision }))
  telemetry.log.warn({ ...about, error, decision }, 'An event could not be applied.')
  if (decided.decision === 'retry') return wait(attempt, decided.delayMs)

  if (decision === 'deadLetter' || decision === 'park')
    await record(log, lease, { event, error, attempts: attempt, parks: decision === 'park' }, tx).catch(
      (cause: unknown) => {
        if (isInterruption(cause)) throw cause
        throw new DeadLetterUnwritable({ consumer: consumer.name, eventId: event.id }, cause)
      },
    )
  const end = decided.decision
  const isStopped = end === 'stop'
  const checkpoint = isStopped ? before : event.position
  const attempts = isStopped ? attempt : 0
  if (!isStopped && end !== 'park' && !savesPassed)
    return { checkpoint, attempts, retryInMs: 0, isPaused: false, end, error }
  const progress = { from, checkpoint, attempts, error: stored, pause: isStopped && consumer.pausesWhenStopped }
  const { isPaused } = await save(log, lease, progress, tx)
  return { checkpoint, attempts, retryInMs: 0, isPaused, end, error }
}
