/** The options of a subscription, checked and in full, and the part of them that is stored with its rows. */

import { checkFrom, type From } from '../consumers/consumer.ts'
import { rowNames } from '../consumers/row-names.ts'
import { type FailureOptions, type FailurePolicy, failureOptionNames, failurePolicy } from '../consumers/run/policy.ts'
import { InvalidName, InvalidOption } from '../core/errors.ts'
import { checkName, nameFault } from '../core/name.ts'
import { checkWhole, describe, refuseUnknownOptions } from '../core/options.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import type { EventFilter } from '../events/read/log.ts'

/** The options that are stored when a group is made. */
export interface CreateOptions<M extends EventMap = UntypedEvents, T extends keyof M & string = keyof M & string>
  extends EventFilter<T> {
  /** Each group gets every event, and has a checkpoint of its own. Default 'default'. */
  group?: string | undefined
  /** Evaluated in this process, for conditions that a filter cannot express. */
  where?: ((event: RecordedEvent<Pick<M, T>>) => boolean) | undefined
  /** Where a new group begins. Default 'start'; 'now' if it is not durable. */
  from?: From | undefined
  /** The most events of a new group that may be delivered and not acknowledged. Default 1024. */
  maxInFlight?: number | undefined
  /** Into how many partitions a new group is divided, for as many runners. Default 1. */
  partitions?: number | undefined
  /** The key of events that must stay in order, and so in one partition. Default 'stream'. */
  partitionBy?: 'stream' | ((event: RecordedEvent<Pick<M, T>>) => string) | undefined
  /** Store this filter in place of a different one. Default false: that is an error. */
  replace?: boolean | undefined
}

export interface SubscribeOptions<M extends EventMap = UntypedEvents, T extends keyof M & string = keyof M & string>
  extends CreateOptions<M, T>,
    FailureOptions {
  /** False: nothing is stored, every run begins at `from`. Default true. */
  durable?: boolean | undefined
  /** 'auto': acknowledged when the code comes back for the next event, or has returned. Default 'auto'. */
  ack?: 'auto' | 'manual' | undefined
  /** How long a lease lasts without being renewed. Default 30 000. */
  leaseMs?: number | undefined
  /** How long running deliveries may take when a partition is handed over to another runner. Default 5000. */
  drainMs?: number | undefined
  signal?: AbortSignal | undefined
}

const optionNames: readonly (keyof SubscribeOptions)[] = [
  ...(['types', 'streams', 'categories', 'correlationId', 'headers', 'where', 'group', 'from', 'maxInFlight'] as const),
  ...(['partitions', 'partitionBy', 'replace', 'durable', 'ack', 'leaseMs', 'drainMs', 'signal'] as const),
  ...failureOptionNames,
]

/** Options in full. */
export interface SubscriptionOptions {
  readonly name: string
  readonly group: string
  readonly filter: EventFilter
  readonly where: ((event: RecordedEvent) => boolean) | undefined
  readonly keyOf: (event: RecordedEvent) => string
  readonly stored: StoredOptions
  readonly from: From
  readonly partitionsGiven: boolean
  readonly replace: boolean
  readonly durable: boolean
  readonly ack: 'auto' | 'manual'
  readonly policy: FailurePolicy
  readonly leaseMs: number
  readonly drainMs: number
}

/** The content of `definition` in each row of a group. */
export interface StoredOptions {
  readonly subscription: string
  readonly group: string
  readonly partitions: number
  readonly partitionBy: 'stream' | 'function'
  readonly maxInFlight: number
  readonly filter: StoredFilter
  /** No partition continues beyond this position, until the group has another number of them. */
  readonly barrier?: string | undefined
}

export type StoredFilter = Readonly<Record<string, unknown>>

/** Refuses options that could only fail later. `further`: option names that only the caller knows. */
export function subscriptionOptions(
  name: string,
  options: SubscribeOptions,
  further: readonly string[] = [],
): SubscriptionOptions {
  const what = `Subscription "${name}"`
  refuseUnknownOptions(what, options, [...optionNames, ...further])
  const { group = 'default', where, partitions = 1, partitionBy = 'stream', durable = true, ack = 'auto' } = options
  const { types, streams, categories, correlationId, headers, leaseMs = 30_000, drainMs = 5_000 } = options
  const { maxInFlight = Math.max(1024, partitions), from = durable ? 'start' : 'now' } = options
  checkName('Consumer', name)
  checkName('Group', group)
  checkWhole('partitions', partitions, 1, 1024)
  checkWhole('maxInFlight', maxInFlight, partitions)
  checkWhole('leaseMs', leaseMs, 50)
  checkWhole('drainMs', drainMs, 0)
  checkFrom(name, from)
  if (ack !== 'auto' && ack !== 'manual')
    refuse('ack', `${what} has ${describe(ack)} as "ack". It must be 'auto' or 'manual'.`)
  if (partitionBy !== 'stream' && typeof partitionBy !== 'function')
    refuse('partitionBy', `${what} has ${describe(partitionBy)} as "partitionBy". It must be 'stream' or a function.`)
  for (const row of rowNames({ name, group }, partitions)) {
    const reason = nameFault(row)
    if (reason !== undefined) throw new InvalidName({ what: 'Consumer', given: row, reason })
  }
  const filter = { types, streams, categories, correlationId, headers }
  return {
    ...{ name, group, filter, where, from, durable, ack, leaseMs, drainMs },
    keyOf: partitionBy === 'stream' ? event => event.stream : partitionBy,
    stored: {
      ...{ subscription: name, group, partitions, maxInFlight },
      partitionBy: partitionBy === 'stream' ? 'stream' : 'function',
      filter: storedFilter(filter, where !== undefined),
    },
    partitionsGiven: options.partitions !== undefined,
    replace: options.replace ?? false,
    policy: checkPolicy(what, failurePolicy(what, options), partitionBy),
  }
}

/** Events of one stream may be in different partitions, and none of them knows of a failure in another. */
function checkPolicy(what: string, policy: FailurePolicy, partitionBy: CreateOptions['partitionBy']): FailurePolicy {
  const parks = [policy, ...policy.byType.values()].some(each => each.onFailure === 'park')
  if (parks && partitionBy !== 'stream')
    refuse('onFailure', `${what} cannot have onFailure: 'park' with a "partitionBy" of its own: streams are parked.`)
  return policy
}

/** The order in which names were listed does not make another filter. */
function storedFilter(filter: EventFilter, hasPredicate: boolean): StoredFilter {
  const { types, streams, categories, correlationId, headers } = filter
  const sorted = (names: readonly string[] | undefined): string[] | undefined =>
    names === undefined ? undefined : [...new Set(names)].sort()
  const all = {
    types: sorted(types),
    streams: sorted(streams),
    categories: sorted(categories),
    correlationId,
    headers,
    where: hasPredicate || undefined,
  }
  return JSON.parse(JSON.stringify(all)) as StoredFilter
}

function refuse(option: string, reason: string): never {
  throw new InvalidOption({ option, reason })
}
