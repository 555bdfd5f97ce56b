/**
 * Effects of handlers on other systems, recorded instead of done: a gateway for tests that honours idempotency keys.
 *
 *     const effects = recordEffects()
 *     const gateway = { charge: (cents, { idempotencyKey }) => effects.record('charge', { cents }, { idempotencyKey, result: 'receipt-1' }) }
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { StoreClosed } from '../core/errors.ts'
import { refuseUnknownOptions } from '../core/options.ts'
import { callerLine } from './caller-line.ts'
import { asJson } from './match.ts'

/** The key that makes a second call harmless, and the result of the first one. */
export interface EffectOptions<R> {
  /** Calls with the same name and key are one effect; all get the result of the first. Without one, each call is an effect. */
  idempotencyKey?: string | undefined
  /** The answer of the other system. */
  result?: R | undefined
}

/** An effect outside of the store, as it was recorded. */
export interface Effect {
  readonly name: string
  readonly data: unknown
  readonly idempotencyKey: string | undefined
  /** The line of your code that made it. */
  readonly line: string | undefined
}

/** The world outside of the store, for tests: it records what was done to it. */
export interface Effects {
  /** Records an effect, and returns its result as the other system would. */
  record<R = undefined>(name: string, data?: unknown, options?: EffectOptions<R>): Promise<R>
  /** The effects so far, in their order: one for each key, and one for each call without. */
  list(): Effect[]
  clear(): void
}

/** A process of a test that can be killed: nothing that it does after that counts. */
export interface MortalProcess {
  isDead: boolean
}

/** The process that the current code belongs to. */
export const currentProcess: AsyncLocalStorage<MortalProcess> = new AsyncLocalStorage<MortalProcess>()

/**
 * Records the effects that handlers have outside of the store; one with a key that was used is not done again.
 *
 * @example
 * ```ts
 * const effects = recordEffects()
 * await effects.record('charge', { cents: 4200 }, { idempotencyKey: 'k-1', result: 'receipt-1' })
 * ```
 */
export function recordEffects(): Effects {
  const effects: { effect: Effect; result: unknown }[] = []
  return {
    async record<R>(name: string, data?: unknown, options: EffectOptions<R> = {}): Promise<R> {
      refuseUnknownOptions('effects.record', options, ['idempotencyKey', 'result'])
      if (currentProcess.getStore()?.isDead === true) throw new StoreClosed({})
      const { idempotencyKey, result } = options
      const known = effects.find(
        ({ effect }) =>
          effect.name === name && effect.idempotencyKey === idempotencyKey && idempotencyKey !== undefined,
      )
      if (known !== undefined) return known.result as R
      effects.push({ effect: { name, data: asJson(data), idempotencyKey, line: callerLine() }, result })
      return result as R
    },
    list: () => effects.map(({ effect }) => effect),
    clear: () => void effects.splice(0),
  }
}
