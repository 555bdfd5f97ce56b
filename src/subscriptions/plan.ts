/** What a subscription was asked to be: its options, checked, and the part of them that is stored. */

import type { StartFrom } from '../consumers/consumer.ts'
import { checkPolicy, deadLetter, type FailurePolicy } from '../consumers/run/policy.ts'
import type { Awaitable } from '../core/core.ts'
import { InvalidName, InvalidOption } from '../core/errors.ts'
import { checkName, nameFault } from '../core/name.ts'
import { checkWhole } from '../core/whole.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import { checkPosition, type EventFilter } from '../events/read/log.ts'
import type { Delivery } from './delivery.ts'

/** What of a subscription is stored when it is made. */
export interface CreateOptions<M extends EventMap = UntypedEvents, T extends keyof M & string = keyof M & string>
  extends EventFilter<T> {
  /** Each group gets every event, and has a checkpoint of its own. Default 'default'. */
  group?: string | undefined
  /** Looked at here, for what a filter cannot say. */
  where?: ((event: RecordedEvent<Pick<M, T>>) => boolean) | undefined
  /** Where a new group begins. Default 'beginning'; 'now' if it is not durable. */
  startFrom?: StartFrom | undefined
  /** The most events of a new group that may be delivered and not acknowledged. Default 1024. */
  maxInFlight?: number | undefined
  /** Into how many partitions a new group is divided, for as many workers. Default 1. */
  partitions?: number | undefined
  /** What must stay in order, and so in one partition. Default 'stream'. */
  partitionBy?: 'stream' | ((event: RecordedEvent<Pick<M, T>>) => string) | undefined
  /** Store this filter in place of a different one. Default false: that is an error. */
  replace?: boolean | undefined
}

export interface SubscribeOptions<M extends EventMap = UntypedEvents, T extends keyof M & string = keyof M & string>
  extends CreateOptions<M, T> {
  /** False: nothing is stored, every run begins at `startFrom`. Default true. */
  durable?: boolean | undefined
  /** 'auto': acknowledged when the consumer comes back for the next event. Default 'auto'. */
  ack?: 'auto' | 'manual' | undefined
  /** What becomes of an event that was given back, or whose callback threw. Default `deadLetter()`. */
  policy?: FailurePolicy | undefined
  /** How often an event is delivered before the policy ends it. Default: its retries and one. */
  maxDeliveries?: number | undefined
  /** How long a lease lasts without being renewed. Default 30 000. */
  leaseMs?: number | undefined
  /** How long deliveries under way are waited for when a partition is handed over or a callback stopped. Default 5000. */
  drainMs?: number | undefined
  signal?: AbortSignal | undefined
}

export interface CallbackOptions<M extends EventMap = UntypedEvents, T extends keyof M & string = keyof M & string>
  extends SubscribeOptions<M, T> {
  /** Called with each event; acknowledged when it has come back, given back if it throws. */
  onEvent: (event: Delivery<Pick<M, T>>) => Awaitable<void>
  /** How many calls may run at once, never two of one key. Default 1. */
  concurrency?: number | undefined
}

/** Options in full. */
export interface Plan {
  readonly name: string
  readonly group: string
  readonly filter: EventFilter
  readonly where: ((event: RecordedEvent) => boolean) | undefined
  readonly keyOf: (event: RecordedEvent) => string
  readonly stored: StoredPlan
  readonly startFrom: StartFrom
  readonly partitionsGiven: boolean
  readonly replace: boolean
  readonly durable: boolean
  readonly ack: 'auto' | 'manual'
  readonly policy: FailurePolicy
  readonly leaseMs: number
  readonly drainMs: number
}

/** What each row of a group keeps beside its checkpoint. */
export interface StoredPlan {
  readonly subscription: string
  readonly group: string
  readonly partitions: number
  readonly partitionBy: 'stream' | 'function'
  readonly maxInFlight: number
  readonly filter: StoredFilter
  /** No partition goes on beyond this position, until the group has another number of them. */
  readonly barrier?: string | undefined
}

export type StoredFilter = Readonly<Record<string, unknown>>

export function planOf(name: string, options: SubscribeOptions): Plan {
  const { group = 'default', where, startFrom, partitions = 1, partitionBy = 'stream', durable = true } = options
  const {
    types,
    streams,
    categories,
    correlationId,
    headers,
    ack = 'auto',
    leaseMs = 30_000,
    drainMs = 5_000,
  } = options
  const { maxInFlight = Math.max(1024, partitions) } = options
  checkName('Consumer', name)
  checkName('Group', group)
  checkWhole('partitions', partitions, 1, 1024)
  checkWhole('maxInFlight', maxInFlight, partitions)
  checkWhole('leaseMs', leaseMs, 50)
  checkWhole('drainMs', drainMs, 0)
  checkStart(startFrom)
  if (ack !== 'auto' && ack !== 'manual')
    throw new InvalidOption({ option: 'ack', reason: `must be 'auto' or 'manual', not ${String(ack)}` })
  if (partitionBy !== 'stream' && typeof partitionBy !== 'function')
    throw new InvalidOption({ option: 'partitionBy', reason: "must be 'stream' or a function" })
  const filter = { types, streams, categories, correlationId, headers }
  const stored: StoredPlan = {
    subscription: name,
    group,
    partitions,
    partitionBy: partitionBy === 'stream' ? 'stream' : 'function',
    maxInFlight,
    filter: storedFilter(filter, where !== undefined),
  }
  for (const row of rowNames(stored)) {
    const reason = nameFault(row)
    if (reason !== undefined) throw new InvalidName({ what: 'Consumer', given: row, reason })
  }
  return {
    name,
    group,
    filter,
    where,
    keyOf: partitionBy === 'stream' ? event => event.stream : partitionBy,
    stored,
    startFrom: startFrom ?? (durable ? 'beginning' : 'now'),
    partitionsGiven: options.partitions !== undefined,
    replace: options.replace ?? false,
    durable,
    ack,
    policy: policyOf(options),
    leaseMs,
    drainMs,
  }
}

/** The consumer of each partition. Characters with a meaning are written as in a URL, so no two groups share a row. */
export function rowNames({
  subscription,
  group,
  partitions,
}: Pick<StoredPlan, 'subscription' | 'group' | 'partitions'>): string[] {
  const whole = `${escaped(subscription)}/${escaped(group)}`
  return partitions === 1 ? [whole] : Array.from({ length: partitions }, (_, index) => `${whole}#${index}`)
}

function checkStart(startFrom: StartFrom | undefined): void {
  if (startFrom !== undefined && startFrom !== 'beginning' && startFrom !== 'now') checkPosition('startFrom', startFrom)
}

function policyOf({ policy, maxDeliveries }: SubscribeOptions): FailurePolicy {
  const given = checkPolicy(policy ?? deadLetter())
  if (maxDeliveries === undefined) return given
  checkWhole('maxDeliveries', maxDeliveries, 1)
  return { ...given, retries: maxDeliveries - 1 }
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

function escaped(name: string): string {
  return name.replaceAll(/[%/#]/g, encodeURIComponent)
}
