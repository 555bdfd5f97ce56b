/** A consumer as the protocol sees it: what it wants of the log, and what it does with it. */
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import { checkWhole } from '../core/whole.ts'
import type { Executor, Transaction } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import type { EventFilter } from '../events/read/log.ts'
import { ensure } from './row.ts'
import { type BreakerOptions, checkBreaker } from './run/breaker.ts'
import { checkPolicy, deadLetter, type FailurePolicy } from './run/policy.ts'
import { consumerNames } from './schema.ts'

export type ConsumerKind = 'projection' | 'processor' | 'subscription' | 'snapshotter' | 'dispatcher'

/** Which events a consumer wants; all that is given must hold. All but `where` is looked at by the database. */
export interface ConsumerFilter<Type extends string = string> extends EventFilter<Type> {
  /** Looked at here, for what a filter cannot say. */
  where?: ((event: RecordedEvent) => boolean) | undefined
}

/** Where a consumer begins that has no checkpoint yet. */
export type StartFrom = 'beginning' | 'now' | number

export interface Consumer {
  readonly name: string
  readonly kind: ConsumerKind
  readonly filter: ConsumerFilter
  readonly startFrom: StartFrom
  /** The most events handed over at once. */
  readonly batchSize: number
  readonly leaseMs: number
  /** How long the handler may keep a transaction open; undefined: 30 s, embedded 5 s. */
  readonly timeoutMs: number | undefined
  readonly policy: FailurePolicy
  readonly breaker: BreakerOptions | undefined
  /** Whether it also wants events that could not be given their shape, as they are stored, instead of failing at them. */
  readonly takesFaults?: boolean | undefined
  /**
   * Called before its events are read, outside of any transaction; while it rejects, the consumer is held up. The signal
   * aborts when the consumer is to be given back.
   */
  prepare?(signal?: AbortSignal): Promise<void>
  /**
   * Applies events in the order of their positions, within `ctx.tx`. If it throws, all it did there is undone, and the
   * same events come again one by one. It may be called with any number of events from 1 to `batchSize`.
   */
  handle(events: readonly RecordedEvent[], ctx: BatchContext): Promise<void>
  /**
   * The same with one call that checks the fence, applies the events and moves the checkpoint, instead of a transaction
   * around `handle`. Undefined: nothing was done, and `handle` is called.
   */
  handleAtOnce?(events: readonly RecordedEvent[], ctx: AtOnceContext): Promise<{ isPaused: boolean } | undefined>
}

export interface AtOnceContext {
  /** The fence of the lease. */
  readonly fence: number
  /** Where the consumer is when these events are done with. */
  readonly checkpoint: number
  readonly faults: ReadonlyMap<number, unknown>
}

export interface BatchContext {
  readonly consumer: string
  readonly tx: Transaction
  /** Aborts when the time of the handler is over, or the consumer has to stop at once. */
  readonly signal: AbortSignal
  /** How often the first of the events has been tried, this time included. */
  readonly attempt: number
  /** True for a dead letter that is tried again: newer events were applied before. */
  readonly isReplay: boolean
  /** By position: why an event is as it is stored; only for who takes such events. */
  readonly faults?: ReadonlyMap<number, unknown> | undefined
  /**
   * Tells which event is being worked on, so that only it counts as failed and the ones before it are kept without being
   * tried one by one; undefined while that cannot be told.
   */
  at(event: RecordedEvent | undefined): void
}

export interface ConsumerOptions {
  /** The most events handed over at once. Default 500. */
  batchSize?: number | undefined
  /** How long a lease lasts without being renewed. Default 30 000. */
  leaseMs?: number | undefined
  /** How long a handler may keep its transaction open. Default 30 000, embedded 5000. */
  timeoutMs?: number | undefined
  /** What becomes of events that fail. */
  policy?: FailurePolicy | undefined
  /** Pauses the consumer while its target is down, instead of using up its retries. */
  breaker?: BreakerOptions | undefined
  /** Where it begins when it is new. Default 'beginning'. */
  startFrom?: StartFrom | undefined
}

/** The names of `ConsumerOptions`, for definitions that have further options. */
export const consumerOptionNames = [
  'batchSize',
  'leaseMs',
  'timeoutMs',
  'policy',
  'breaker',
  'startFrom',
] satisfies readonly (keyof ConsumerOptions)[] as readonly (keyof ConsumerOptions)[]

export function consumer(
  given: Pick<Consumer, 'name' | 'kind' | 'filter' | 'handle' | 'handleAtOnce' | 'takesFaults'>,
  options: ConsumerOptions = {},
): Consumer {
  const { batchSize = 500, leaseMs = 30_000, timeoutMs, startFrom = 'beginning', breaker } = options
  checkName('Consumer', given.name)
  checkWhole('batchSize', batchSize, 1)
  checkWhole('leaseMs', leaseMs, 50)
  if (timeoutMs !== undefined) checkWhole('timeoutMs', timeoutMs, 1)
  const isStart =
    startFrom === 'beginning' || startFrom === 'now' || (Number.isSafeInteger(startFrom) && (startFrom as number) >= 0)
  if (!isStart) throw new InvalidOption({ option: 'startFrom', reason: "must be 'beginning', 'now' or a position" })
  if (breaker !== undefined) checkBreaker(breaker)
  const policy = checkPolicy(options.policy ?? deadLetter())
  return { ...given, batchSize, leaseMs, timeoutMs, startFrom, policy, breaker }
}

/** Makes the consumer's row if there is none. A row that is there keeps its checkpoint. */
export async function ensureConsumer(
  log: Log,
  consumer: Pick<Consumer, 'name' | 'kind' | 'startFrom'>,
  definition: object = {},
  executor: Executor = log.database,
): Promise<void> {
  const { name, kind, startFrom } = consumer
  const known = await executor.runArrays(sql`/* consumers.known */
    select 1
    from ${consumerNames(log).consumers}
    where name = ${name}::text`)
  if (known.length > 0) return
  const checkpoint =
    startFrom === 'beginning' ? 0 : startFrom === 'now' ? (await settle(log, executor)).settled : startFrom
  await ensure(log, [{ name, kind, checkpoint, definition }], executor)
}
