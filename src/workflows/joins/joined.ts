/**
 * What the run of a join gets: the events its branches came to, in the order of the batch, read when it is run. They do not
 * change between its attempts. One that failed, or whose time was over, fails as any handler does; when its dead letter is
 * retried, it runs with all that is there, also with what has come too late for it.
 */

import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumnCount, eventColumnsOf } from '../../events/read/rows.ts'
import type { Emitter } from '../emitted.ts'
import { type BatchPlace, envelopeOf } from '../envelope.ts'
import { EventGone, EventUndecodable, JoinFailed, JoinTimeout } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import { type Claimed, type Decoded, decodeEvents } from '../work/claim.ts'
import type { EntryOutcome, JoinState } from './arrive.ts'
import type { JoinInfo } from './join.ts'

export interface JoinedBatch {
  readonly id: string
  readonly state: JoinState
  readonly info: JoinInfo
  /** The batches around its own: what the join emits belongs to them. */
  readonly outer: readonly BatchPlace[]
  readonly arrived: readonly (Decoded & { readonly position: number })[]
}

/** The batches that an execution is part of, and what it emits is. */
export function batchesOf({ event, join }: Pick<Claimed, 'event' | 'join'>): readonly BatchPlace[] {
  return join?.outer ?? (event === undefined ? [] : envelopeOf(event).batches)
}

/** Where what it emits belongs, and what sets it apart: one event can close several joins of one handler. */
export function placeOf(execution: Claimed): Pick<Emitter, 'batches' | 'about'> {
  const { join } = execution
  return { batches: batchesOf(execution), ...(join === undefined ? {} : { about: `join ${join.id}` }) }
}

/** The execution with the batch that it joins, if its handler is a join. */
export async function withJoin(log: Log, execution: Claimed): Promise<Claimed> {
  const { id, joinId, position, isLetter, event, fault } = execution
  // The execution of a join has the join's id, so whoever queues it again need not know what it is.
  const join = await loadJoin(log, joinId ?? id)
  if (join === undefined) return execution
  // The data of a dead letter's event may have been mended.
  const arrived = join.arrived.map(each =>
    isLetter && each.position === position ? { position, event, ...(fault === undefined ? {} : { fault }) } : each,
  )
  // What closed it may be a branch that failed: then it is not looked at.
  return { ...execution, fault: undefined, join: { ...join, arrived } }
}

/** What its handler is called with. */
export function joinedEvents(handler: Handler, { join, position, isLetter }: Claimed): RecordedEvent[] {
  if (join === undefined) throw new EventGone({ position })
  const { info, state, arrived } = join
  const about = { handler: handler.name, batchId: info.batchId, size: info.size, arrived: arrived.length }
  if (!isLetter && state === 'failed') throw new JoinFailed({ ...about, failed: info.failed })
  if (!isLetter && state === 'expired')
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
      ${eventColumnsOf('e')},
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
  const [index, outcome, position, ofJoin] = [0, 1, 2, 3].map(at => eventColumnCount + at) as [
    number,
    number,
    number,
    number,
  ]
  const [state, batchId, size, outer] = first.slice(ofJoin) as [JoinState, string, number, BatchPlace[]]
  const ofOutcome = (...wanted: EntryOutcome[]): unknown[][] =>
    rows.filter(row => wanted.includes(row[outcome] as EntryOutcome))
  const present = state === 'closed' ? ofOutcome('arrived') : ofOutcome('arrived', 'late')
  const decoded = await decodeEvents(log, present)
  const arrived = present.map((row, at) => ({ ...decoded[at]!, position: row[position] as number }))
  const failed = ofOutcome('failed').map(row => row[index] as number)
  const empty = ofOutcome('empty').map(row => row[index] as number)
  const isPartial = arrived.length + failed.length + empty.length < size
  return { id, state, outer, arrived, info: { batchId, size, failed, empty, isPartial } }
}
