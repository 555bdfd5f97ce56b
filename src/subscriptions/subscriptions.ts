/**
 * Subscriptions: events delivered to your code, which acknowledges each of them.
 *
 *     defineSubscription('mailer', { types: ['OrderShipped'], run: event => mail(event) })      a runner delivers to it
 *     for await (const event of store.subscribe('mailer', { types: ['OrderShipped'] })) …       a program iterates over it
 *
 *     [events] ─► reader ─► window of each partition held ─► pull ─► run, or the loop
 *                              ▲                                       │ ack, nack
 *     runner: leases           └── forget ◄── partition ◄──────────────┘
 *                                                 └─► [consumers: checkpoint]  [deliveries: beyond it]
 *
 *     subscription  the definition       options     checked; part of them is stored
 *     callback      delivers to `run`    iterate     delivers to a loop       live  neither stored nor acknowledged
 *     group         in this process      groups      its rows                 repartition, administration, status
 *     partition     writes, fenced       window      events in memory         reader  reads the log
 *
 * A subscription has a name and a filter; each of its groups gets every event once, and has a checkpoint, a limit and a
 * lease of its own: one row of `consumers`, or one per partition. Partitions are shared among all processes that run
 * the group; events of one key (the stream, or the result of `partitionBy`) stay in order, and in one partition.
 *
 * Guarantees:
 * - At-least-once: an event counts as done when its acknowledgement is stored, never before; an event that was
 *   delivered and not acknowledged when its code ends, for any reason, is delivered again.
 * - Effectively once for effects in the transaction given to `ack(tx)`: they commit with the acknowledgement, or neither.
 * - Acknowledgements are fenced: after the lease is lost they get `LeaseLost` and change nothing. The checkpoint never
 *   goes back by itself. It also passes events that the filter skips.
 * - Never more than `maxInFlight` events of a group are delivered and not acknowledged. Events that are acknowledged beyond
 *   one that is not are stored, and count too, so nothing grows without bound.
 * - An event that was given back delays later events of its key, not the others, until it is acknowledged or its policy
 *   has ended it.
 *
 * Effects outside the database may happen twice, and at a handover in two processes at once: the old one may still run
 * until it notices. Use the event's id as an idempotency key there.
 *
 * What can fail: a database that is away is waited for. A lease that is lost goes to another runner. Its policy,
 * another log in the place of this one, or its removal end it with an error.
 */

import type { Consumers } from '../consumers/consumers.ts'
import { CheckpointBeyondHead } from '../consumers/errors.ts'
import { readRows } from '../consumers/row-names.ts'
import type { RunOptions, RunResult } from '../consumers/run/run.ts'
import type { Runnable, RunningPart } from '../consumers/runners/runnable.ts'
import { startRunner } from '../consumers/runners/runner.ts'
import { readStatus } from '../consumers/status.ts'
import { sleep } from '../core/abort.ts'
import { DuplicateConsumer } from '../core/errors.ts'
import { sql } from '../database/sql.ts'
import type { EventMap, UntypedEvents } from '../events/definition.ts'
import { settle } from '../events/order/order.ts'
import { type Administration, openAdministration } from './administration.ts'
import { startCallback } from './callback.ts'
import type { Delivery } from './delivery.ts'
import type { SubscriptionParts } from './group.ts'
import { storedGroups, storeGroup } from './groups.ts'
import { iterate, type SubscriptionIteration } from './iterate.ts'
import { type CreateOptions, type SubscribeOptions, subscriptionOptions } from './options.ts'
import { subscriptionNames } from './schema.ts'
import type { Subscription } from './subscription.ts'

export interface Subscribe<M extends EventMap = UntypedEvents> {
  /** Events to iterate over, for ever. Begins with the iteration, ends when it is left or the signal aborts. */
  <T extends keyof M & string>(
    name: string,
    options?: SubscribeOptions<M, T>,
  ): SubscriptionIteration<Delivery<Pick<M, T>>>
  <N extends EventMap, T extends keyof N & string>(
    definition: Subscription<N, T>,
    options?: Pick<SubscribeOptions, 'signal'>,
  ): SubscriptionIteration<Delivery<Pick<N, T>>>
}

export interface Subscriptions<M extends EventMap = UntypedEvents> extends Administration {
  /** Makes a group without running it; an existing one must be the same. */
  create<T extends keyof M & string>(name: string, options?: CreateOptions<M, T>): Promise<void>
}

export interface OpenSubscriptions<M extends EventMap> {
  readonly subscribe: Subscribe<M>
  readonly subscriptions: Subscriptions<M>
  /** Makes a definition known to this store. One with `run` runs in its runners. */
  register(definition: Subscription): void
  /** Stores the groups of registered subscriptions that do not begin at the start and have none: 'now' is from then on. */
  store(): Promise<void>
  /** For the runners of the store. */
  readonly runnable: Runnable
}

export function openSubscriptions<M extends EventMap>(
  parts: SubscriptionParts & { readonly consumers: Consumers },
): OpenSubscriptions<M> {
  const { log, consumers } = parts
  const registered = new Map<string, Subscription>()
  const listeners = new Set<(definition: Subscription) => void>()
  const runnables = (): Subscription[] => [...registered.values()].filter(each => each.run !== undefined)

  const runnable: Runnable = {
    kinds: ['subscriptions'],
    names: () => [...registered.values()].map(each => each.name),
    async start(context) {
      const running = new Map<Subscription, Promise<RunningPart>>()
      const started: RunningPart[] = []
      const begin = async (definition: Subscription): Promise<void> => {
        if (definition.run === undefined || running.has(definition)) return
        if (!context.isWanted('subscriptions', definition.name)) return
        const starting = startCallback(parts, definition, context)
        running.set(definition, starting)
        started.push(await starting)
        context.refresh()
      }
      const onRegistered = (definition: Subscription): void =>
        void begin(definition).catch((error: unknown) => context.onFailure(definition.name, error))
      listeners.add(onRegistered)
      const stop = async (cutOff: AbortSignal): Promise<void> => {
        listeners.delete(onRegistered)
        await Promise.allSettled(running.values())
        await Promise.all(started.map(part => part.stop(cutOff)))
      }
      try {
        await Promise.all(runnables().map(begin))
      } catch (error) {
        await stop(AbortSignal.abort())
        throw error
      }
      return { leased: () => started.flatMap(part => part.leased?.() ?? []), stop }
    },
  }

  consumers.divide({
    names: () => [...new Set([...registered.values()].map(each => each.name))],
    async forget(rows, tx) {
      await tx.run(sql`/* subscriptions.forget */
        delete from ${subscriptionNames(log).deliveries}
        where consumer = any(${rows}::text[])`)
    },
    runUntilIdle: (name, options) => runUntilIdle(name, options),
  })

  const subscribe = (of: string | Subscription, given: SubscribeOptions = {}): unknown => {
    const options = typeof of === 'string' ? subscriptionOptions(of, given) : of.options
    return iterate(parts, options, given.signal)
  }

  return {
    subscribe: subscribe as Subscribe<M>,
    subscriptions: {
      ...openAdministration(parts),
      async create(name, options = {}) {
        await storeGroup(log, subscriptionOptions(name, options as unknown as CreateOptions))
      },
    },
    register(definition) {
      const key = `${definition.name}/${definition.options.group}`
      if (registered.has(key)) throw new DuplicateConsumer({ consumer: key })
      registered.set(key, definition)
      for (const listener of listeners) listener(definition)
    },
    async store() {
      for (const { options } of registered.values()) {
        if (!options.durable || options.from === 'start') continue
        const stored = await storedGroups(log, log.database, options.name)
        if (!stored.some(row => row.group === options.group)) await storeGroup(log, options)
      }
    },
    runnable,
  }

  /** Delivers in this process until the checkpoint has passed all events that are settled now. */
  async function runUntilIdle(name: string, { signal }: RunOptions): Promise<RunResult> {
    const definitions = runnables().filter(each => each.name === name && each.options.durable)
    let count = 0
    let failure: { readonly error: unknown } | undefined
    const alone: Runnable = {
      ...runnable,
      async start(context) {
        const onDelivered = (): void => {
          count++
        }
        const all = await Promise.all(definitions.map(each => startCallback(parts, each, { ...context, onDelivered })))
        return {
          leased: () => all.flatMap(part => part.leased?.() ?? []),
          stop: async cutOff => void (await Promise.all(all.map(part => part.stop(cutOff)))),
        }
      },
    }
    const onFailure = (_: string, error: unknown): void => {
      failure ??= { error }
    }
    const runner = await startRunner(parts.services, { ...parts, runnables: [alone] }, {}, { onFailure })
    try {
      const { settled } = await settle(log)
      let seen = -1
      for (;;) {
        const rows = (await Promise.all(definitions.map(each => readRows(log, name, each.options.group)))).flat()
        const statuses = await readStatus(log, { names: rows })
        if (failure !== undefined) return { result: 'stopped', count, error: failure.error }
        const beyond = statuses.find(status => status.isBeyondHead)
        if (beyond !== undefined) throw new CheckpointBeyondHead({ ...beyond, consumer: beyond.name })
        if (statuses.some(status => status.isPaused)) return { result: 'paused', count }
        if (statuses.every(status => status.checkpoint >= settled))
          return { result: count > 0 ? 'processed' : 'idle', count }
        const isElsewhere = statuses.every(({ lease }) => lease !== undefined && lease.owner !== runner.id)
        if (isElsewhere && statuses.length > 0) return { result: 'leasedByOther', count }
        if (count === seen && (await isWaiting(rows))) return { result: 'backoff', count }
        seen = count
        await sleep(10, { signal })
      }
    } finally {
      await runner.stop()
    }
  }

  /** Whether an event that was given back waits for its next attempt. */
  async function isWaiting(rows: readonly string[]): Promise<boolean> {
    const waiting = await log.database.runArrays(sql`/* subscriptions.waiting */
      select 1
      from ${subscriptionNames(log).deliveries} as d
      where d.consumer = any(${rows}::text[])
        and d.acked_at is null
        and d.retry_at > ${log.names.clock}(d.position)
      limit 1`)
    return waiting.length > 0
  }
}
