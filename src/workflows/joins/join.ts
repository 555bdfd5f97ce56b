/**
 * A join: a handler that runs once for a whole batch, with the events of its branches in the order of the batch. What a
 * handler emits for an event of a batch stays in the batch; what the join emits belongs to the batch around it.
 *
 *     flows.on('OrderPlaced', { name: 'check' }, e => batch(e.data.items.map(item => emit('CheckAsked', { item }))))
 *     flows.on('CheckAsked', { name: 'look' }, async e => emit('OrderChecked', await look(e.data)))
 *     flows.join('OrderChecked', { name: 'cleared', of: 'batch', timeoutMs: 60_000 }, events => emit('OrderCleared', {}))
 *
 * The events of a join are read when it runs, and do not change between its attempts. A join that failed, or whose time is
 * over, fails as any handler does; when its dead letter is retried, it runs with all events that are there then, late ones
 * included.
 */
import type { Awaitable } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { checkWhole } from '../../core/whole.ts'
import { sql } from '../../database/sql.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { EmissionOf, Emitter, HandlerResult } from '../emit.ts'
import { type BatchPlace, envelopeOf } from '../envelope.ts'
import { EventGone, EventUndecodable, JoinFailed, JoinTimeout } from '../errors.ts'
import { type AnyHandlerOptions, defineHandler, type Handler, type HandlerOptions, type Run } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import type { HandlerContext } from '../steps/context.ts'
import { type Claimed, type DecodedEvent, decodeEvents } from '../work/claim.ts'
import type { EntryOutcome, JoinState } from './arrive.ts'

/**
 * When a join has enough. `'all'`: every branch has an event or ended without one; one that failed fails the join at
 * once. `'all-settled'`: every branch has ended, however. `'first'`, `{ quorum }`: so many events are there.
 */
export type JoinPolicy = 'all' | 'all-settled' | 'first' | { readonly quorum: number }

type Unfit = 'timeoutMs' | 'ordered' | 'inline' | 'inlineMs' | 'onDead' | 'when' | 'transition' | 'concurrency'

export interface JoinOptions<M extends EventMap, T extends keyof M & string, E extends keyof M & string>
  extends Omit<HandlerOptions<M, T, E>, Unfit> {
  /** What it joins: the innermost batch that an event is part of. */
  of: 'batch'
  /** Default 'all'. */
  policy?: JoinPolicy | undefined
  /** How long it waits for its events, from the moment it is opened. Default: no limit. */
  timeoutMs?: number | undefined
  /** What comes of it then: a dead letter (default), or a run with what is there. */
  onTimeout?: 'dead-letter' | 'partial' | undefined
  /** How long one attempt of the handler may run. Default 30 000. */
  attemptTimeoutMs?: number | undefined
  /** The most that run at once, in all processes. Default: no limit. */
  concurrency?: number | undefined
}

/** What a join knows of its batch. */
export interface JoinInfo {
  readonly batchId: string
  readonly size: number
  /** Branches in which an execution was dead-lettered, and no event came of it. */
  readonly failed: readonly number[]
  /** Branches that ended without an event. */
  readonly empty: readonly number[]
  /** Whether it runs although some branches have not come to their end. */
  readonly isPartial: boolean
}

export interface JoinContext<M extends EventMap = UntypedEvents> extends HandlerContext<M> {
  readonly join: JoinInfo
}

export interface Joins<M extends EventMap> {
  /** Runs a handler once for each batch that has events of this type, when they are complete; see `batch([…])`. */
  join<T extends keyof M & string, E extends keyof M & string = keyof M & string>(
    types: T | readonly T[],
    options: JoinOptions<M, T, E>,
    run: (
      events: readonly RecordedEvent<Pick<M, T>>[],
      ctx: JoinContext<M>,
    ) => Awaitable<HandlerResult<EmissionOf<Pick<M, NoInfer<E>>>>>,
  ): void
}

export type AnyJoinOptions = JoinOptions<UntypedEvents, string, string>

export function defineJoin(types: string | readonly string[], options: AnyJoinOptions, run: Run): Handler {
  const { of, policy = 'all', timeoutMs, onTimeout = 'dead-letter', attemptTimeoutMs, ...rest } = options
  const { name } = rest
  if (of !== 'batch')
    throw new InvalidOption({ option: 'of', reason: `of join "${name}" must be 'batch', not ${String(of)}` })
  if (timeoutMs !== undefined) checkWhole('timeoutMs', timeoutMs, 1)
  if (attemptTimeoutMs !== undefined) checkWhole('attemptTimeoutMs', attemptTimeoutMs, 1)
  if (onTimeout !== 'dead-letter' && onTimeout !== 'partial')
    throw new InvalidOption({
      option: 'onTimeout',
      reason: `of join "${name}" must be 'dead-letter' or 'partial', not ${String(onTimeout)}`,
    })
  const stray = unfit.find(option => (rest as Record<string, unknown>)[option] !== undefined)
  if (stray !== undefined) throw new InvalidOption({ option: stray, reason: `is nothing that join "${name}" can have` })
  const list = typeof types === 'string' ? [types] : types
  if (list.includes('*'))
    throw new InvalidOption({ option: 'types', reason: `of join "${name}" have to be named one by one` })
  const given: AnyHandlerOptions = { ...rest, timeoutMs: attemptTimeoutMs }
  return defineHandler(list, given, run, {
    kind: 'join',
    join: { ...readPolicy(name, policy), timeoutMs, onTimeout },
  })
}

const unfit = ['ordered', 'inline', 'inlineMs', 'onDead', 'when', 'transition'] as const

function readPolicy(name: string, policy: unknown): { policy: Named; quorum?: number } {
  if (typeof policy === 'string' && (named as readonly string[]).includes(policy)) return { policy: policy as Named }
  if (typeof policy === 'object' && policy !== null && 'quorum' in policy) {
    checkWhole('policy.quorum', policy.quorum as number, 1)
    return { policy: 'quorum', quorum: policy.quorum as number }
  }
  throw new InvalidOption({
    option: 'policy',
    reason: `of join "${name}" must be 'all', 'all-settled', 'first' or { quorum }, not ${JSON.stringify(policy)}`,
  })
}

type Named = 'all' | 'all-settled' | 'first' | 'quorum'

const named = ['all', 'all-settled', 'first'] as const

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

/** The place of emitted events, and what tells their ids apart: one event can close several joins of one handler. */
export function placeOf(execution: Claimed): Pick<Emitter, 'batches' | 'about'> {
  const { join } = execution
  return { batches: batchesOf(execution), ...(join === undefined ? {} : { about: `join ${join.id}` }) }
}

/** The execution with the batch that it joins, if its handler is a join. */
export async function withJoin(log: Log, execution: Claimed): Promise<Claimed> {
  const { id, joinId, position, isRetry, event, fault } = execution
  // The execution of a join has the id of the join, so it can be queued again without knowing what it is.
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

async function loadJoin(log: Log, id: string): Promise<JoinedBatch | undefined> {
  const rows = await log.database.runArrays(sql`/* workflows.joined */
    select
      e.position, e.stream, e.version, e.event_id, e.type, e.schema_version, e.data, e.headers, e.correlation_id,
      e.causation_id, e.user_id, e.created_at,
      n.index, n.outcome, n.position, j.state, j.batch_id, j.size, j.outer_batches
    from ${workflowNames(log).workflow_joins} as j
    left join ${workflowNames(log).workflow_join_entries} as n on n.join_id = j.id
    -- One by one, by index, however many the planner expects.
    left join lateral (
      select *
      from ${log.names.events} as found
      where found.position = n.position
        and (n.outcome = 'arrived' or (n.outcome = 'late' and j.state <> 'closed'))
      limit 1) as e on true
    where j.id = ${id}::uuid
    order by n.index`)
  const [first] = rows
  if (first === undefined) return undefined
  const [state, batchId, size, outer] = first.slice(15) as [JoinState, string, number, BatchPlace[]]
  const ofOutcome = (...wanted: EntryOutcome[]): unknown[][] =>
    rows.filter(row => wanted.includes(row[13] as EntryOutcome))
  const present = state === 'closed' ? ofOutcome('arrived') : ofOutcome('arrived', 'late')
  const decoded = await decodeEvents(log, present)
  const arrived = present.map((row, at) => ({ ...decoded[at]!, position: row[14] as number }))
  const failed = ofOutcome('failed').map(row => row[12] as number)
  const empty = ofOutcome('empty').map(row => row[12] as number)
  const isPartial = arrived.length + failed.length + empty.length < size
  return { id, state, outer, arrived, info: { batchId, size, failed, empty, isPartial } }
}
