/**
 * A circuit breaker pauses a consumer whose target is down, instead of letting it use up its retries.
 *
 *     closed ──failures in a row──► open ──openMs──► half-open ──trials succeed──► closed
 *                                    ▲                  │ a trial fails
 *                                    └──────────────────┘
 *
 * An outcome counts only in the period in which its call was let through. So a call that was running when the breaker
 * opened neither prolongs nor ends that, and does not count as a trial afterwards.
 */
import type { Clock } from '../../core/clock.ts'
import type { Awaitable } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { describe, refuseUnknownInside } from '../../core/options.ts'
import { CircuitOpen } from '../errors.ts'

export interface BreakerOptions {
  /** Failures in a row that open it. Default 5. */
  failures?: number | undefined
  /** How long it stays open before trials are let through. Default 30 000. */
  openMs?: number | undefined
  /** Trials that are let through at once while half open, and successes that close it. Default 1. */
  trials?: number | undefined
}

export type BreakerState = 'closed' | 'open' | 'halfOpen'

export interface Breaker {
  state(): BreakerState
  /** How often it has opened: more than before a failure means that the failure says more about the target than the event. */
  openings(): number
  /** How long until a call can be let through; 0 unless it is open. */
  retryInMs(): number
  /** Calls `work` and counts its outcome; rejects with `CircuitOpen`, without calling it, while the breaker is open. */
  run<T>(work: () => Awaitable<T>): Promise<T>
}

export function circuitBreaker(consumer: string, clock: Clock, options: BreakerOptions = {}): Breaker {
  const { failures: most, openMs, trials } = checkBreaker(options)
  let state: BreakerState = 'closed'
  let period = 0
  let openedAt = 0
  let failures = 0
  let successes = 0
  let underWay = 0
  let openings = 0

  const enter = (next: BreakerState): void => {
    state = next
    period++
    failures = successes = underWay = 0
    openedAt = clock.now().getTime()
  }

  const retryInMs = (): number => {
    if (state !== 'open') return 0
    const now = clock.now().getTime()
    // A clock that was set back must not keep it open for longer than was asked for.
    openedAt = Math.min(openedAt, now)
    return Math.max(0, openMs - (now - openedAt))
  }

  const look = (): BreakerState => {
    if (state === 'open' && retryInMs() === 0) enter('halfOpen')
    return state
  }

  const succeeded = (): void => {
    failures = 0
    if (state === 'halfOpen' && ++successes >= trials) enter('closed')
  }

  const failed = (): void => {
    failures++
    if (state !== 'halfOpen' && failures < most) return
    openings++
    enter('open')
  }

  return {
    state: look,
    openings: () => openings,
    retryInMs,
    async run(work) {
      const now = look()
      if (now === 'open' || (now === 'halfOpen' && underWay >= trials))
        throw new CircuitOpen({ consumer, retryInMs: retryInMs() })
      const entered = period
      underWay++
      const tell = (outcome: () => void): void => {
        if (entered !== period) return
        underWay--
        outcome()
      }
      try {
        const result = await work()
        tell(succeeded)
        return result
      } catch (error) {
        tell(failed)
        throw error
      }
    },
  }
}

/** Refuses options that could never open it, or never close it again. */
export function checkBreaker(options: BreakerOptions): { failures: number; openMs: number; trials: number } {
  refuseUnknownInside('a consumer', 'breaker', options, ['failures', 'openMs', 'trials'])
  const { failures = 5, openMs = 30_000, trials = 1 } = options
  for (const [option, value] of Object.entries({ failures, openMs, trials })) {
    if (!(Number.isSafeInteger(value) && value >= 1))
      throw new InvalidOption({
        option: `breaker.${option}`,
        reason: `The option "breaker.${option}" is ${describe(value)}. It must be a whole number from 1.`,
      })
  }
  return { failures, openMs, trials }
}
