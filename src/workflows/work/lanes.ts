/**
 * Lanes: executions of one key that wait for each other.
 *
 * A handler with `onDead: 'park'` stops its lane when the head of it is set aside as a dead letter, in that transaction: what
 * comes later queues, and waits for a person. The lane goes on when a retry of that letter has succeeded, or when it is told
 * to. Retries of letters go through a parked lane, in the order of their events; nothing else does.
 */

import { createHash } from 'node:crypto'
import { consumerNames } from '../../consumers/schema.ts'
import { InvalidOption } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { LaneNotParked } from '../errors.ts'
import { workflowNames } from '../schema.ts'
import type { Claimed } from './claim.ts'

/** The name of a handler's lane for a key. No two pairs have one name. */
export function laneOf(handler: string, key: string): string {
  const short = Buffer.byteLength(key) <= longestKey ? key : createHash('sha256').update(key).digest('hex')
  return `${laneOfHandler(handler)}${short}`
}

function laneOfHandler(handler: string): string {
  return `${encodeURIComponent(handler)}/`
}

const longestKey = 255

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
