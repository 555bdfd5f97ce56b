/**
 * A join: a handler that runs once for a whole batch, with the events of its branches in the order of the batch. Events
 * that a handler emits for an event of a batch stay in the batch; events that the join emits belong to the batch around
 * it.
 *
 *     OrderPlaced ─► defineHandler: batch(items.map(item => emit('CheckAsked', { item })))
 *     CheckAsked ──► defineHandler: emit('OrderChecked', …), one for each item
 *     OrderChecked ─► defineJoin('clear', { on: 'OrderChecked', joinTimeoutMs: 60_000, run: events => … }), once
 *
 * The events of a join are read when it runs, and do not change between its attempts. A join that failed, or whose time
 * is over, fails as any handler does; when its dead letter is retried, it runs with all events that have arrived by
 * then, late ones included.
 */

import type { Awaitable } from '../../core/core.ts'
import { checkDefinition } from '../../core/definition.ts'
import { describe, refuseUnknownOptions } from '../../core/options.ts'
import { sql } from '../../database/sql.ts'
import type { EventMap, EventsCarried, RecordedEvent, UntypedEvents } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumnCount, eventColumnsOf } from '../../events/read/rows.ts'
import type { Emitter, HandlerResult } from '../emit.ts'
import { EventGone, EventUndecodable, JoinFailed, JoinTimeout } from '../errors.ts'
import {
  type AnyHandlerOptions,
  checkCount,
  type HandledEvent,
  type Handler,
  handlerOf,
  type JoinRoute,
  maxWaitMs,
  type ReactOptions,
  reactOptions,
  refusal,
  typesOf,
} from '../handler.ts'
import { type BatchPlace, envelopeOf } from '../publish.ts'
import { workflowNames } from '../schema.ts'
import type { HandlerContext } from '../steps/context.ts'
import { type Claimed, type DecodedEvent, decodeEvents } from '../work/claim.ts'
import type { EntryOutcome, JoinState } from './arrive.ts'

/**
 * When a join has enough. `'all'`: every branch has an event or ended without one; one that failed fails the join at
 * once. `'allSettled'`: every branch has ended, whether it failed or not. `'first'`, `{ quorum }`: so many events have
 * arrived.
 */
export type JoinPolicy = 'all' | 'allSettled' | 'first' | { readonly quorum: number }

export interface JoinOptions<M extends EventMap, T extends keyof M & string, E extends keyof M & string>
  extends ReactOptions<M, T, E> {
  /** The event types it joins, of the innermost batch that an event is part of. */
  on: T | readonly T[]
  run(
    events: readonly HandledEvent<M, NoInfer<T>>[],
    ctx: JoinContext<M, NoInfer<E>>,
  ): Awaitable<HandlerResult<NoInfer<E>>>
  /** Default 'all'. */
  policy?: JoinPolicy | undefined
  /** How long it waits for its events, from the moment it is opened. Default: no limit. */
  joinTimeoutMs?: number | undefined
  /** The action after that time: a dead letter (default), or a run with the events that have arrived. */
  onJoinTimeout?: 'deadLetter' | 'partial' | undefined
}

/** The batch of a join, as its code sees it. */
export interface JoinInfo {
  readonly batchId: string
  readonly size: number
  /** Branches in which an execution was dead-lettered, and that have no event. */
  readonly failed: readonly number[]
  /** Branches that ended without an event. */
  readonly empty: readonly number[]
  /** Whether it runs although some branches have not ended. */
  readonly isPartial: boolean
}

/** The context of a join: that of a handler, and the join. */
export interface JoinContext<M extends EventMap = UntypedEvents, E extends keyof M & string = keyof M & string>
  extends HandlerContext<M, E> {
  readonly join: JoinInfo
}

/**
 * Defines what happens once when all events of a batch are there, or when its time is over.
 *
 * @example
 * ```ts
 * const close = defineJoin('close', {
 *   events,
 *   on: 'OrderShipped',
 *   joinTimeoutMs: 60_000,
 *   run: shipped => console.log(`${shipped.length} parcels`),
 * })
 * ```
 */
export function defineJoin<
  M extends EventMap = UntypedEvents,
  T extends keyof M & string = keyof M & string,
  E extends keyof M & string = keyof M & string,
>(name: string, definition: JoinOptions<M, T, E>): Handler<EventsCarried<M>> {
  checkDefinition('defineJoin', name, definition)
  const what = `Join "${name}"`
  const { policy = 'all', joinTimeoutMs, onJoinTimeout = 'deadLetter' } = definition
  refuseUnknownOptions(what, definition, [...reactOptions, 'policy', 'joinTimeoutMs', 'onJoinTimeout'])
  const types = typesOf(what, definition.on)
  if (types === undefined || types.includes('*'))
    throw refusal(what, 'on', `cannot join events of all types. Name the types it waits for: on: ['OrderChecked'].`)
  if (joinTimeoutMs !== undefined) checkCount(what, 'joinTimeoutMs', joinTimeoutMs, 1, maxWaitMs)
  if (onJoinTimeout !== 'deadLetter' && onJoinTimeout !== 'partial')
    throw refusal(
      what,
      'onJoinTimeout',
      `needs 'deadLetter' or 'partial' as "onJoinTimeout", not ${describe(onJoinTimeout)}.`,
    )
  const join = { ...readPolicy(what, policy), timeoutMs: joinTimeoutMs, onTimeout: onJoinTimeout }
  return handlerOf('join', name, definition as unknown as AnyHandlerOptions, types, join)
}

function readPolicy(what: string, policy: unknown): Pick<JoinRoute, 'policy' | 'quorum'> {
  if (policy === 'all' || policy === 'allSettled' || policy === 'first') return { policy }
  if (typeof policy === 'object' && policy !== null && 'quorum' in policy) {
    checkCount(what, 'policy.quorum', policy.quorum, 1)
    return { policy: 'quorum', quorum: policy.quorum as number }
  }
  throw refusal(
    what,
    'policy',
    `needs 'all', 'allSettled', 'first' or { quorum } as "policy", not ${JSON.stringify(policy)}.`,
  )
}

/** The batch that an execution joins. */
export interface JoinedBatch {
  readonly id: string
  readonly state: JoinState
  readonly info: JoinInfo
  /** The batches around its own, to which events that the join emits belong. */
  readonly outer: readonly BatchPlace[]
  readonly arrived: readonly (DecodedEvent & { readonly position: number })[]
}

/** The batches that an execution and the events it emits are part of. */
export function batchesOf({ event, join }: Pick<Claimed, 'event' | 'join'>): readonly BatchPlace[] {
  return join?.outer ?? (event === undefined ? [] : envelopeOf(event).batches)
}

/**
 * The place of emitted events, and the part of their ids that makes them unique: one event can close several joins of
 * one handler.
 */
export function placeOf(execution: Claimed): Pick<Emitter, 'batches' | 'about'> {
  const { join } = execution
  return { batches: batchesOf(execution), ...(join === undefined ? {} : { about: `join ${join.id}` }) }
}

/** The execution with the batch that it joins, if its handler is a join. */
export async function withJoin(log: Log, execution: Claimed): Promise<Claimed> {
  const { id, joinId, position, isRetry, event, fault } = execution
  // The execution of a join has the id of the join, so it can be queued again like any other execution.
  const join = await loadJoin(log, joinId ?? id)
  if (join === undefined) return execution
  // The data of a dead letter's event may have been edited.
  const arrived = join.arrived.map(each =>
    isRetry && each.position === position ? { position, event, ...(fault === undefined ? {} : { fault }) } : each,
  )
  // The event that closed it may be that of a branch that failed, which the join does not get.
  return { ...execution, fault: undefined, join: { ...join, arrived } }
}

/** The events that its handler is called with. */
export function joinedEvents(handler: Handler, { join, position, isRetry }: Claimed): RecordedEvent[] {
  if (join === undefined) throw new EventGone({ position })
  const { info, state, arrived } = join
  const about = { handler: handler.name, batchId: info.batchId, size: info.size, arrived: arrived.length }
  if (!isRetry && state === 'failed') throw new JoinFailed({ ...about, failed: info.failed })
  if (!isRetry && state === 'expired')
    throw new JoinTimeout({ ...about, timeoutMs: handler.definition.join?.timeoutMs ?? 0 })
  return arrived.map(each => {
    if (each.event === undefined) throw new EventGone({ position: each.position })
    if (each.fault === undefined) return each.event
    throw new EventUndecodable({ eventId: each.event.id, type: each.event.type }, each.fault)
  })
}

/** The columns after those of the event. */
type EntryColumns = [
  index: number,
  outcome: EntryOutcome,
  position: number,
  state: JoinState,
  batchId: string,
  size: number,
  outer: BatchPlace[],
]

async function loadJoin(log: Log, id: string): Promise<JoinedBatch | undefined> {
  const { workflow_joins, workflow_join_entries } = workflowNames(log)
  const rows = await log.database.runArrays(sql`/* workflows.joined */
    select
      ${eventColumnsOf('e')},
      n.index, n.outcome, n.position, j.state, j.batch_id, j.size, j.outer_batches
    from ${workflow_joins} as j
    left join ${workflow_join_entries} as n on n.join_id = j.id
    -- One by one, by index, however many the planner expects.
    left join lateral (
      select *
      from ${log.names.events} as found
      where found.position = n.position
        and (n.outcome = 'arrived' or (n.outcome = 'late' and j.state <> 'closed'))
      limit 1) as e on true
    where j.id = ${id}::uuid
    order by n.index`)
  const entries = rows.map(row => ({ row, columns: row.slice(eventColumnCount) as EntryColumns }))
  const [first] = entries
  if (first === undefined) return undefined
  const [, , , state, batchId, size, outer] = first.columns
  const ofOutcome = (...wanted: EntryOutcome[]): typeof entries =>
    entries.filter(({ columns: [, outcome] }) => wanted.includes(outcome))
  const indexesOf = (outcome: EntryOutcome): number[] => ofOutcome(outcome).map(({ columns: [index] }) => index)
  const present = state === 'closed' ? ofOutcome('arrived') : ofOutcome('arrived', 'late')
  const decoded = await decodeEvents(
    log,
    present.map(({ row }) => row),
  )
  const arrived = present.map(({ columns: [, , position] }, at) => ({ ...decoded[at]!, position }))
  const [failed, empty] = [indexesOf('failed'), indexesOf('empty')]
  const isPartial = arrived.length + failed.length + empty.length < size
  return { id, state, outer, arrived, info: { batchId, size, failed, empty, isPartial } }
}
