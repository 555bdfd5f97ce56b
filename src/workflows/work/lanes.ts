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
import { consumerNames } from '../../consumers/schema.ts'
import { InvalidOption } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { lockWorkflows } from '../dispatch/enqueue.ts'
import { LaneNotParked } from '../errors.ts'
import { consumerOf, type Handler } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import { type Claimed, decodeEvents } from './claim.ts'

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
  /** The correlation id, or what the handler's key function said; of a very long one a digest. */
  readonly key: string
  /** Whether it waits for a person. */
  readonly isParked: boolean
  /** The event of the dead letter that it was parked for, if the letter is still there. */
  readonly parkedFor: string | undefined
  /** How many executions are in it, those that wait their turn included. */
  readonly open: number
}

export interface ListLanesOptions {
  handler?: string | undefined
  /** Default: both. */
  isParked?: boolean | undefined
  /** Default 100, at most 10 000. */
  limit?: number | undefined
  /** Only those that come after this one: the last of the page before. */
  after?: Pick<Lane, 'handler' | 'key'> | undefined
}

/** What a store's `workflows` has about lanes. */
export interface Lanes {
  /** A page of the lanes that have something in them, or are parked. */
  lanes(options?: ListLanesOptions): Promise<Lane[]>
  /** Lets a parked lane go on with what has queued in it; its dead letter stays as it is. Without a key: all of the handler's. */
  unparkLane(handler: string, key?: string): Promise<number>
}

export function openLanes(log: Log, onWork: () => void): Lanes {
  return {
    lanes: async (options = {}) => listLanes(log, options),
    async unparkLane(handler, key) {
      const count = await unpark(log, checkName('Handler', handler), key)
      if (count > 0) onWork()
      return count
    },
  }
}

async function listLanes(log: Log, { handler, isParked, limit = 100, after }: ListLanesOptions): Promise<Lane[]> {
  if (!Number.isSafeInteger(limit) || limit < 1 || limit > 10_000)
    throw new InvalidOption({ option: 'limit', reason: `must be a whole number from 1 to 10000, not ${String(limit)}` })
  const prefix = handler === undefined ? null : laneOfHandler(handler)
  const rows = await log.database.run<{
    lane: string
    parked: boolean
    open: number
    event_id: string | null
  }>(sql`/* workflows.lanes */
    select l.lane, l.parked, l.open, d.event_id
    from ${workflowNames(log).workflow_lanes} as l
    left join ${consumerNames(log).dead_letters} as d on d.execution = l.parked_by
    where l.lane > ${after === undefined ? '' : laneOf(after.handler, after.key)}::text
      and (${prefix}::text is null or starts_with(l.lane, ${prefix}::text))
      and (${isParked ?? null}::boolean is null or l.parked = ${isParked ?? null}::boolean)
    order by l.lane
    limit ${limit}::integer`)
  return rows.map(({ lane, parked, open, event_id }) => ({
    ...keyOf(lane),
    ...{ isParked: parked, parkedFor: event_id ?? undefined, open },
  }))
}

function keyOf(lane: string): Pick<Lane, 'handler' | 'key'> {
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

/** Stops the lane behind an execution that has failed for good. The caller holds the lane, and ends the execution after. */
export async function parkLane(log: Log, tx: Executor, { lane, id }: Claimed): Promise<void> {
  if (lane === undefined) return
  await tx.run(sql`/* workflows.park */
    update ${workflowNames(log).workflow_lanes}
    set parked = true,
      parked_by = coalesce(parked_by, ${id}::uuid)
    where lane = ${lane}::text
      and ordered`)
}

/** Lets a lane go on that was parked for this execution, which has come to a good end now. The caller holds the lane. */
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
    let count = maxAtOnce
    for (let round = 0; round < maxRounds && count === maxAtOnce; round++, total += count)
      count = await assignSome(log, route, handler)
  }
  return total
}

async function assignSome(log: Log, route: number, handler: Handler): Promise<number> {
  return log.database.transaction(async tx => {
    const held = await tx.run(sql`/* workflows.lock_route */
      select id
      from ${workflowNames(log).workflow_routes}
      where id = ${route}::integer
      for update skip locked`)
    if (held.length === 0) return 0
    const rows = await tx.runArrays(sql`/* workflows.unkeyed */
      select
        e.position, e.stream, e.version, e.event_id, coalesce(d.edited->>'type', e.type),
        coalesce((d.edited->>'schemaVersion')::integer, e.schema_version), coalesce(d.edited->'data', e.data), e.headers,
        e.correlation_id, e.causation_id, e.user_id, e.created_at,
        x.id, x.correlation_id
      from ${workflowNames(log).workflow_executions} as x
      left join lateral (
        select *
        from ${log.names.events} as found
        where found.position = x.position
        limit 1) as e on true
      left join lateral (
        select found.edited
        from ${consumerNames(log).dead_letters} as found
        where x.is_letter
          and found.consumer = ${consumerOf(handler.name)}::text
          and found.event_id = e.event_id
        limit 1) as d on true
      where x.route = ${route}::integer
        and x.state = 'unkeyed'
      order by x.position
      limit ${maxAtOnce}::integer`)
    if (rows.length === 0) return 0
    await lockWorkflows(
      log,
      tx,
      rows.map(row => row[13] as string),
    )
    const events = await decodeEvents(log, rows)
    const lanes = events.map(({ event, fault }) => (fault === undefined ? laneFor(handler, event) : null))
    await tx.run(sql`/* workflows.assign */
      select assigned
      from ${workflowNames(log).workflow_assign}(
        p_ids => ${rows.map(row => row[12])}::uuid[],
        p_lanes => ${lanes}::text[])`)
    return rows.length
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
