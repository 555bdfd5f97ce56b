/**
 * The definition of a subscription: events that are delivered to your code, one by one, and acknowledged.
 *
 *     export const mailer = defineSubscription('mailer', { events, types: ['OrderShipped'], run: event => mail(event) })
 *
 * With `run` a runner delivers to it (`store.start()`); without, a program iterates over it (`store.subscribe(mailer)`).
 */
import type { Awaitable } from '../core/core.ts'
import { checkDefinition, type Definition } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkWhole, describe } from '../core/options.ts'
import type { EventDefinitions, EventMap, UntypedEvents } from '../events/definition.ts'
import type { Delivery } from './delivery.ts'
import { type SubscribeOptions, type SubscriptionOptions, subscriptionOptions } from './options.ts'

export interface SubscriptionDefinition<M extends EventMap, T extends keyof M & string>
  extends Omit<SubscribeOptions<M, T>, 'signal'> {
  /** The events of the store; only their types are used. */
  readonly events?: EventDefinitions<M> | undefined
  /** Called with each event. The event is acknowledged when it has returned, and given back if it throws. */
  readonly run?: ((event: Delivery<Pick<M, T>>) => Awaitable<void>) | undefined
  /** How many calls of `run` at the same time, never two of one key. Default 1. */
  readonly concurrency?: number | undefined
}

/** A subscription, as it was defined. */
export interface Subscription<M extends EventMap = never, T extends keyof M & string = keyof M & string>
  extends Definition<'subscription'> {
  /** Absent at run time: it carries the types. A subscription to some of a store's events fits that store. */
  readonly '~events'?: ((map: M) => T) | undefined
  readonly options: SubscriptionOptions
  readonly run: ((event: Delivery) => Awaitable<void>) | undefined
  readonly concurrency: number
}

/**
 * Defines a delivery of events to code of yours, such as a client of another system. It remembers how far it is.
 *
 * @example
 * ```ts
 * const mailer = defineSubscription('mailer', {
 *   events,
 *   types: ['OrderShipped'],
 *   run: async event => console.log(`mail: shipped by ${event.data.carrier}`),
 * })
 * ```
 */
export function defineSubscription<M extends EventMap = UntypedEvents, T extends keyof M & string = keyof M & string>(
  name: string,
  definition: SubscriptionDefinition<M, T>,
): Subscription<M, T> {
  checkDefinition('defineSubscription', name, definition)
  const { events: _, run, concurrency = 1, ...rest } = definition
  const options = subscriptionOptions(name, rest as unknown as SubscribeOptions, ['events', 'run', 'concurrency'])
  checkWhole('concurrency', concurrency, 1)
  if (run !== undefined && typeof run !== 'function') {
    const reason = `Subscription "${name}" has ${describe(run)} as "run". It must be a function: run(event) { … }.`
    throw new InvalidOption({ option: 'run', reason })
  }
  return Object.freeze({
    ...{ kind: 'subscription' as const, name, options, concurrency },
    run: run as unknown as Subscription['run'],
  })
}
