/**
 * Subscriptions: events pushed to code of the user's, which says of each what became of it.
 *
 *     for await (const event of store.subscribe('mailer', { types: ['OrderPlaced'], group: 'workers' })) …
 *     const mailer = store.subscribe('mailer', { group: 'workers', onEvent: async event => … })
 *
 *     [events] ─► reader ─► window of each partition held ─► pull ─► consumer
 *                              ▲                                       │ ack, nack
 *     host: leases             └── forget ◄── partition ◄──────────────┘
 *                                                 └─► [consumers: checkpoint]  [deliveries: beyond it]
 *
 * A subscription has a name and a filter; each of its groups gets every event once, and has a checkpoint, a limit and a
 * lease of its own: one row of `consumers`, or one per partition. Partitions are shared among all processes that run the
 * group; events of one key (the stream, or what `partitionBy` gives) stay in order, and in one partition.
 *
 * Guarantees:
 * - At-least-once: an event counts as done when its acknowledgement is stored, never before; what was delivered and not
 *   acknowledged when a consumer ends, for whatever reason, is delivered to the next one.
 * - Effectively once for effects in the transaction given to `ack(tx)`: they commit with the acknowledgement, or neither.
 * - Acknowledgements are fenced: those of a consumer whose lease is lost get `LeaseLost` and change nothing. The checkpoint
 *   never goes back by itself. It also passes what the filter leaves out.
 * - Never more than `maxInFlight` events of a group are delivered and not acknowledged. Those acknowledged beyond one that is
 *   not are stored, and count too, so nothing grows without bound.
 * - An event that was given back holds up its key, not the others, until it is done or its policy has ended it.
 *
 * What it cannot do: effects outside the database may be done twice, and at a handover by two consumers at once: the old
 * one may be at work until it notices. Use the event's id as a key for idempotency there.
 *
 * What can fail: a database that is away is waited for. A lease that is lost goes to somebody else; this consumer goes on
 * with what it gets next. A policy that says stop, a log that is another one, or a subscription that was deleted end it
 * with an error.
 */

import { InvalidOption } from '../core/errors.ts'
import { checkWhole } from '../core/whole.ts'
import type { EventMap, UntypedEvents } from '../events/definition.ts'
import { type Administration, openAdministration } from './administration.ts'
import { type AtWork, callBack, iterate, type RunningSubscription, type Subscription } from './consume.ts'
import type { Delivery } from './delivery.ts'
import { type CallbackOptions, type CreateOptions, planOf, type SubscribeOptions } from './plan.ts'
import { registerGroup } from './register.ts'
import type { SubscriptionParts } from './runner.ts'

export interface Subscribe<M extends EventMap = UntypedEvents> {
  /** Calls back with each event until it is stopped. Starts at once. */
  <T extends keyof M & string>(name: string, options: CallbackOptions<M, T>): RunningSubscription
  /** Events to iterate over, for ever. Starts with the iteration, ends when it is left. */
  <T extends keyof M & string>(name: string, options?: SubscribeOptions<M, T>): Subscription<Delivery<Pick<M, T>>>
}

export interface Subscriptions<M extends EventMap = UntypedEvents> extends Administration {
  /** Makes a group without running it; one that is there must be the same. */
  create<T extends keyof M & string>(name: string, options?: CreateOptions<M, T>): Promise<void>
}

export interface OpenSubscriptions<M extends EventMap> {
  readonly subscribe: Subscribe<M>
  readonly subscriptions: Subscriptions<M>
  /** Stops all that is at work in this store. */
  stopAll(): Promise<void>
}

export function openSubscriptions<M extends EventMap>(parts: SubscriptionParts): OpenSubscriptions<M> {
  const atWork: AtWork = new Set()
  const subscribe = (name: string, options: SubscribeOptions | CallbackOptions = {}): unknown => {
    const plan = planOf(name, options)
    if (!('onEvent' in options) || options.onEvent === undefined) return iterate(parts, plan, atWork, options.signal)
    const { onEvent, concurrency = 1, signal } = options
    if (typeof onEvent !== 'function') throw new InvalidOption({ option: 'onEvent', reason: 'must be a function' })
    checkWhole('concurrency', concurrency, 1)
    parts.log.database.refuseInsideTransaction('subscribe')
    return callBack(parts, plan, atWork, { onEvent, concurrency, signal })
  }
  return {
    subscribe: subscribe as Subscribe<M>,
    subscriptions: {
      ...openAdministration(parts),
      async create(name, options = {}) {
        await registerGroup(parts.log, planOf(name, options as unknown as CreateOptions))
      },
    },
    async stopAll() {
      await Promise.all([...atWork].map(stop => stop()))
    },
  }
}
