/**
 * Lanes: executions of one key that wait for each other, in the order of their events.
 *
 *     [unkeyed] ─► lane assigned by a process that has the handler's code ─► blocked ─► ready ─► … ─► the next one
 *
 * The lane of an ordered handler is its workflow, which the dispatcher knows. The key of a handler that has one is computed
 * by the handler's own code, which the dispatcher may not have: it queues such executions without a lane, and any worker
 * that has the code assigns theirs, in the order of the log, one worker at a time for each handler. An event whose key
 * cannot be computed gets no lane; its attempt computes the key again, and fails with that error.
 *
 * A handler with `onFailure: 'park'` stops its lane when the head of the lane is dead-lettered, in that transaction. Later
 * executions queue until an operator acts: the lane continues when a retry of that dead letter has succeeded, or when it is
 * unparked. Retries of dead letters pass through a parked lane, in the order of their events; nothing else does.
 */

import { createHash } from 'node:crypto'
import { handlerRow } from '../../consumers/dead-letters/owner.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { type Named, nameOf } from '../../core/definition.ts'
import { checkName } from '../../core/name.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, maxPageBytes, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import type { Executor } from '../../database/database.ts'
import { numeral, sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumnCount } from '../../events/read/rows.ts'
import { lockWorkflows } from '../dispatch/enqueue.ts'
import { LaneNotParked } from '../errors.ts'
import { checkCount, type Handler } from '../handler.ts'
import type { WorkflowHints } from '../hints.ts'
import { workflowNames } from '../schema.ts'
import { type Claimed, decodeEvents, editedEventColumns } from './claim.ts'

/** The name of a handler's lane for a key. No two pairs have one name. */
export function laneOf(handler: string, key: string): string {
  const short = Buffer.byteLength(key) <= maxKeyBytes ? key : createHash('sha256').update(key).digest('hex')
  return `${laneOfHandler(handler)}${short}`
}

function laneOfHandler(handler: string): string {
  return `${encodeURIComponent(handler)}/`
}

const maxKeyBytes = 255

export interface Lane {
  readonly handler: string
  /** The correlation id, or the result of the handler's key function; of a very long one a digest. */
  readonly key: string
  /** Whether it waits for an operator. */
  readonly isParked: boolean
  /** The event of the dead letter for which it was parked, if that still exists. */
  readonly parkedFor: string | undefined
  /** How many executions are in it, those that wait for their turn included. */
  readonly open: number
}

export interface ListLanesOptions extends PageOptions {
  handler?: Named | undefined
  /** Default: both. */
  isParked?: boolean | undefined
}

/** The lanes of a store: `store.workflows.lanes`. */
export interface Lanes {
  /** The lanes that have executions, or are parked: 100 in a page by default, at most 10 000. */
  list(options?: ListLanesOptions): Promise<Page<Lane>>
  /**
   * Lets a parked lane continue with its executions; its dead letter stays as it is. Without a key: all of the handler's.
   * Returns how many.
   */
  unpark(handler: Named, options?: { key?: string | undefined }): Promise<number>
}

export function openLanes(log: Log, hints: WorkflowHints): Lanes {
  return {
    list: async (options = {}) => listLanes(log, options),
    async unpark(handler, options = {}) {
      refuseUnknownOptions('store.workflows.lanes.unpark', options, ['key'])
      const count = await unpark(log, checkName('Handler', nameOf(handler)), options.key)
      if (count > 0) hints.ready()
      return count
    },
  }
}

async function listLanes(log: Log, options: ListLanesOptions): Promise<Page<Lane>> {
  refuseUnknownOptions('store.workflows.lanes.list', options, ['handler', 'isParked', ...pageOptionNames])
  const { handler, isParked, limit = 100, after } = options
  checkCount('A list of lanes', 'limit', limit, 1, 10_000)
  const prefix = handler === undefined ? null : laneOfHandler(checkName('Handler', nameOf(handler)))
  const rows = await log.database.run<{
    lane: string
    parked: boolean
    open: number
    event_id: string | null
  }>(sql`/* workflows.lanes */
    select l.lane, l.parked, l.open, d.event_id
    from ${workflowNames(log).workflow_lanes} as l
    left join ${consumerNames(log).dead_letters} as d on d.execution = l.parked_by
    where l.lane > ${after === undefined ? '' : (decodeCursor(after, 1)[0] as string)}::text
      and (${prefix}::text is null or starts_with(l.lane, ${prefix}::text))
      and (${isParked ?? null}::boolean is null or l.parked = ${isParked ?? null}::boolean)
    order by l.lane
    limit ${limit + 1}::integer`)
  const page = pageOf(rows, limit, last => [last.lane])
  return { ...page, items: page.items.map(row => ({ ...keyOfLane(row.lane), ...laneStateOf(row) })) }
}

function laneStateOf(row: {
  parked: boolean
  open: number
  event_id: string | null
}): Pick<Lane, 'isParked' | 'parkedFor' | 'open'> {
  return { isParked: row.parked, parkedFor: row.event_id ?? undefined, open: row.open }
}

/** The handler of a lane, and its key. */
export function keyOfLane(lane: string): Pick<Lane, 'handler' | 'key'> {
  const end = lane.indexOf('/')
  return { handler: decodeURIComponent(lane.slice(0, end)), key: lane.slice(end + 1) }
}

async function unpark(log: Log, handler: string, key: string | undefined): Promise<number> {
  const wanted = key === undefined ? null : laneOf(handler, key)
  return log.database.transaction(async tx => {
    const rows = await tx.run<{ lane: string }>(sql`/* workflows.lock_parked */
      select lane
      from ${workflowNames(log).workflow_lanes}
      where parked
        and (lane = ${wanted}::text or (${wanted}::text is null and starts_with(lane, ${laneOfHandler(handler)}::text)))
      order by lane
      for update`)
    if (rows.length === 0 && key !== undefined) throw new LaneNotParked({ handler, key })
    const lanes = rows.map(row => row.lane)
    await tx.run(sql`/* workflows.unpark */
      update ${workflowNames(log).workflow_lanes}
      set parked = false,
        parked_by = null
      where lane = any(${lanes}::text[])`)
    await tx.run(sql`/* workflows.advance */
      select ${workflowNames(log).workflow_advance}(
        p_owner => '',
        p_lanes => ${lanes}::text[],
        p_next => null,
        p_grace_ms => 0)`)
    return lanes.length
  })
}

/**
 * Parks the lane of an execution that has failed for good. The caller holds the lane, and completes the execution after.
 * [claim-12]
 */
export async function parkLane(log: Log, tx: Executor, { lane, id }: Claimed): Promise<void> {
  if (lane === undefined) return
  await tx.run(sql`/* workflows.park */
    update ${workflowNames(log).workflow_lanes}
    set parked = true,
      parked_by = coalesce(parked_by, ${id}::uuid)
    where lane = ${lane}::text
      and ordered`)
}

/** Unparks the lane that was parked for this execution, which has completed now. The caller holds the lane. */
export async function unparkAfter(log: Log, tx: Executor, { lane, id }: Claimed): Promise<void> {
  if (lane === undefined) return
  await tx.run(sql`/* workflows.unpark_after */
    update ${workflowNames(log).workflow_lanes}
    set parked = false,
      parked_by = null
    where lane = ${lane}::text
      and parked_by = ${id}::uuid`)
}

const maxAtOnce = 500
/** The worker sends no heartbeat meanwhile. */
const maxRounds = 5

/** Assigns lanes to executions that have none yet, the first ones of many; returns how many. */
export async function assignLanes(log: Log, handlers: ReadonlyMap<number, Handler>): Promise<number> {
  let total = 0
  for (const [route, handler] of handlers) {
    if (handler.keyOf === undefined) continue
    let isMore = true
    for (let round = 0; round < maxRounds && isMore; round++) {
      const assigned = await assignSome(log, route, handler)
      total += assigned.count
      isMore = assigned.isMore
    }
  }
  return total
}

/** A page of them ends with the event that reaches `maxPageBytes`. */
async function assignSome(log: Log, route: number, handler: Handler): Promise<{ count: number; isMore: boolean }> {
  return log.database.transaction(async tx => {
    const held = await tx.run(sql`/* workflows.lock_route */
      select id
      from ${workflowNames(log).workflow_routes}
      where id = ${route}::integer
      for update skip locked`)
    if (held.length === 0) return { count: 0, isMore: false }
    const rows = await tx.runArrays(sql`/* workflows.unkeyed */
      select
        ${editedEventColumns},
        x.id, x.correlation_id, x.found
      from (
        select sized.*, count(*) over () as found,
          sum(coalesce(sized.bytes, 0)) over (order by sized.position rows unbounded preceding) as total
        from (
          select each.id, each.correlation_id, each.position, each.is_retry, e.bytes
          from ${workflowNames(log).workflow_executions} as each
          left join lateral (
            select found.bytes
            from ${log.names.events} as found
            where found.position = each.position
            limit 1) as e on true
          where each.route = ${route}::integer
            and each.state = 'unkeyed'
          order by each.position
          limit ${maxAtOnce}::integer) as sized) as x
      left join lateral (
        select *
        from ${log.names.events} as found
        where found.position = x.position
        limit 1) as e on true
      left join lateral (
        select found.edited
        from ${consumerNames(log).dead_letters} as found
        where x.is_retry
          and found.consumer = ${handlerRow(handler.name)}::text
          and found.event_id = e.event_id
        limit 1) as d on true
      where x.total - coalesce(x.bytes, 0) < ${numeral(maxPageBytes)}
      order by x.position`)
    if (rows.length === 0) return { count: 0, isMore: false }
    await lockWorkflows(
      log,
      tx,
      rows.map(row => row[eventColumnCount + 1] as string),
    )
    const events = await decodeEvents(log, rows)
    const lanes = events.map(({ event, fault }) => (fault === undefined ? laneFor(handler, event) : null))
    await tx.run(sql`/* workflows.assign */
      select assigned
      from ${workflowNames(log).workflow_assign}(
        p_ids => ${rows.map(row => row[eventColumnCount])}::uuid[],
        p_lanes => ${lanes}::text[])`)
    const found = rows[0]!.at(-1) as number
    return { count: rows.length, isMore: found === maxAtOnce || rows.length < found }
  })
}

function laneFor(handler: Handler, event: RecordedEvent | undefined): string | null {
  try {
    const key: unknown = event === undefined ? undefined : handler.keyOf!(event)
    return typeof key === 'string' ? laneOf(handler.name, key) : null
  } catch {
    return null
  }
}
