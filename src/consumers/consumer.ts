/**
 * A consumer as the protocol sees it: a name, the events it wants, and a function that applies them. Projections,
 * processors, snapshotters and the dispatcher of workflows are consumers; each is one row of the table `consumers`.
 */
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import { checkWhole, describe, maxPosition } from '../core/options.ts'
import type { Executor, Transaction } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import type { EventFilter } from '../events/read/log.ts'
import { change } from './operator.ts'
import { ensure, type Held } from './row.ts'
import { type BreakerOptions, checkBreaker } from './run/breaker.ts'
import {
  type FailureEnd,
  type FailureOptions,
  type FailurePolicy,
  failureOptionNames,
  failurePolicy,
} from './run/policy.ts'
import { consumerNames } from './schema.ts'

export type ConsumerKind = 'projection' | 'processor' | 'subscription' | 'snapshotter' | 'dispatcher'

/** Which events a consumer wants; all given conditions must hold. The database evaluates all but `where`. */
export interface ConsumerFilter<Type extends string = string> extends EventFilter<Type> {
  /** Evaluated in this process, for conditions that a filter cannot express. */
  where?: ((event: RecordedEvent) => boolean) | undefined
}

/**
 * Where a new consumer begins: at the start of the log, now, or after a position. A position beyond the head is
 * refused, because the events up to it would be skipped when they come.
 *
 * @example
 * ```ts
 * const from: From = 'start'
 * for await (const event of store.events.readAll({ from })) event.type
 * ```
 */
export type From = 'start' | 'now' | number

export interface Consumer {
  readonly name: string
  readonly kind: ConsumerKind
  readonly filter: ConsumerFilter
  readonly from: From
  /** The tables of a projection: they are stored with its row, so that they can be dropped without its code. */
  readonly tables?: readonly string[] | undefined
  /** The most events that are applied in one batch. */
  readonly batchSize: number
  readonly leaseMs: number
  /** How long the handler may keep a transaction open; undefined: 30 s, embedded 5 s. */
  readonly timeoutMs: number | undefined
  readonly policy: FailurePolicy
  readonly breaker: BreakerOptions | undefined
  /**
   * Whether a policy that says 'stop' also pauses the consumer, so that no runner starts it again. False where a program
   * waits for the error: it decides what happens next.
   */
  readonly pausesWhenStopped: boolean
  /** Whether it also wants events that could not be decoded, as they are stored, instead of failing at them. */
  readonly takesFaults?: boolean | undefined
  /**
   * Called before its events are read, outside of any transaction; while it rejects, the consumer waits. The signal
   * aborts when the lease is to be released.
   */
  prepare?(signal?: AbortSignal): Promise<void>
  /**
   * Applies events in the order of their positions, within `ctx.tx`. If it throws, its writes are undone, and the same
   * events come again one by one. It may be called with any number of events from 1 to `batchSize`.
   */
  handle(events: readonly RecordedEvent[], ctx: BatchContext): Promise<void>
  /**
   * The same with one call that checks the fence, applies the events and moves the checkpoint, instead of a transaction
   * around `handle`. Undefined: nothing was done, and `handle` is called.
   */
  handleAtOnce?(events: readonly RecordedEvent[], ctx: AtOnceContext): Promise<{ isPaused: boolean } | undefined>
  /**
   * Moves the checkpoint over a part of the log in which it wants nothing, without reading the events. Asked only far from
   * the end. Undefined: there may be something, and the events are read.
   */
  passOver?(part: PassOver): Promise<PassedOver | undefined>
}

/** A part of the log, and the place of the consumer before it. */
export interface PassOver {
  readonly held: Held
  /** The checkpoint that is stored. */
  readonly from: number
  /** Everything up to here was applied, or is not wanted. */
  readonly after: number
  readonly to: number
}

export interface PassedOver {
  readonly isPaused: boolean
}

export interface AtOnceContext {
  /** The fence of the lease. */
  readonly fence: number
  /** The checkpoint that is stored. */
  readonly from: number
  /** The checkpoint once these events are applied. */
  readonly checkpoint: number
  readonly faults: ReadonlyMap<number, unknown>
  /** How much the events take, about. */
  readonly bytes: number
  /** Whether the holder before has let the lease expire. */
  readonly isAbandoned: boolean
}

export interface BatchContext {
  readonly consumer: string
  readonly tx: Transaction
  /** Aborts when the time of the handler is over, or the consumer has to stop at once. */
  readonly signal: AbortSignal
  /** How often the first of the events has been tried, this time included. */
  readonly attempt: number
  /** True for the retry of a dead letter: newer events were applied before. */
  readonly isReplay: boolean
  /** By position: why an event could not be decoded; only for consumers that take such events. */
  readonly faults?: ReadonlyMap<number, unknown> | undefined
  /**
   * Says which event is being worked on: only that one counts as failed, and the events before it are kept without
   * being tried one by one. Undefined while that is not known.
   */
  at(event: RecordedEvent | undefined): void
}

export interface ConsumerOptions extends FailureOptions {
  /** The most events that are applied in one batch. Default 500. */
  batchSize?: number | undefined
  /** How long a lease lasts without being renewed. Default 30 000. */
  leaseMs?: number | undefined
  /** How long a handler may keep its transaction open. Default 30 000, embedded 5000. */
  timeoutMs?: number | undefined
  /** Pauses the consumer while its target is down, instead of using up its retries. */
  breaker?: BreakerOptions | undefined
  /** Where it begins when it is new. Default 'start'. */
  from?: From | undefined
}

/** The names of `ConsumerOptions`, for definitions that have further options. */
export const consumerOptionNames: readonly (keyof ConsumerOptions)[] = [
  'batchSize',
  'leaseMs',
  'timeoutMs',
  'breaker',
  'from',
  ...failureOptionNames,
]

export interface ConsumerDefaults {
  /** The action after the last attempt, unless the options say otherwise. Default 'deadLetter'. */
  readonly onFailure?: FailureEnd | undefined
  readonly pausesWhenStopped?: boolean | undefined
}

export function consumer(
  given: Pick<Consumer, 'name' | 'kind' | 'filter' | 'tables' | 'handle' | 'handleAtOnce' | 'passOver' | 'takesFaults'>,
  options: ConsumerOptions = {},
  { onFailure, pausesWhenStopped = true }: ConsumerDefaults = {},
): Consumer {
  const { batchSize = 500, leaseMs = 30_000, timeoutMs, from = 'start', breaker } = options
  checkName('Consumer', given.name)
  checkWhole('batchSize', batchSize, 1)
  checkWhole('leaseMs', leaseMs, 50)
  if (timeoutMs !== undefined) checkWhole('timeoutMs', timeoutMs, 1)
  checkFrom(given.name, from)
  if (breaker !== undefined) checkBreaker(breaker)
  const policy = failurePolicy(`Consumer "${given.name}"`, options, onFailure)
  return { ...given, batchSize, leaseMs, timeoutMs, from, policy, breaker, pausesWhenStopped }
}

export function checkFrom(name: string, from: From): void {
  if (from === 'start' || from === 'now') return
  if (typeof from === 'number' && Number.isSafeInteger(from) && from >= 0 && from <= maxPosition) return
  const reason = `Consumer "${name}" begins from ${describe(from)}. It must be 'start', 'now' or a position.`
  throw new InvalidOption({ option: 'from', reason })
}

/** The checkpoint with which a new consumer begins. */
export async function startOf(log: Log, name: string, from: From, executor: Executor = log.database): Promise<number> {
  if (from === 'start') return 0
  const { settled, head } = await settle(log, executor)
  if (from === 'now') return settled
  if (from > head) throw beyondHead(name, 'from', from, head)
  return from
}

export function beyondHead(name: string, option: string, position: number, head: number): Error {
  const reason = `Consumer "${name}" cannot begin after position ${position}: the log ends at ${head}. The events up to it would be skipped when they come.`
  return new InvalidOption({ option, reason })
}

/** Makes the consumer's row if there is none. An existing row keeps its checkpoint, and gets the list of its tables. */
export async function ensureConsumer(
  log: Log,
  { name, kind, from, tables }: Pick<Consumer, 'name' | 'kind' | 'from' | 'tables'>,
  given: object = {},
  executor: Executor = log.database,
): Promise<void> {
  const definition = tables === undefined || tables.length === 0 ? given : { ...given, tables }
  const [known] = await executor.run<{ tables: readonly string[] | null }>(sql`/* consumers.known */
    select definition -> 'tables' as tables
    from ${consumerNames(log).consumers}
    where name = ${name}::text`)
  if (known === undefined)
    await ensure(log, [{ name, kind, checkpoint: await startOf(log, name, from, executor), definition }], executor)
  else if (JSON.stringify(known.tables ?? []) !== JSON.stringify(tables ?? []))
    await change(log, [name], { definition: { tables }, keepsHolder: true }, executor)
}
