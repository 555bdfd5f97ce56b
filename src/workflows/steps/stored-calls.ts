/**
 * The stored calls of executions: loaded before a handler runs and written while it runs, always under the fence of the
 * attempt. The row of the execution is locked while they are written, so a worker that takes the execution over either sees
 * them or knows that they will never exist.
 *
 * The calls of an execution that has failed for good stay: when its dead letter is retried, those that had ended answer
 * from memory, as in any other retry, so no customer is charged twice. Only their kind and name count then, not their place
 * in the order of calls, because the code has usually been fixed meanwhile. Calls that failed, or waited, are deleted. With
 * edited data every step runs again: results for other data do not count.
 */
import { consumerNames } from '../../consumers/schema.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumns } from '../../events/read/rows.ts'
import { EventGone, EventUndecodable } from '../errors.ts'
import { workflowNames } from '../schema.ts'
import { type Claimed, decodeEvents } from '../work/claim.ts'
import type { Call, CallKind, End, Recorded } from './replay.ts'
import { revived, type StepFailure } from './step-failure.ts'

/** Whether an execution may have stored calls: it ran before. */
export function mayHaveCalls({ attempt, ranMs, crashes, isRetry }: Claimed): boolean {
  return attempt > 1 || ranMs > 0 || crashes > 0 || isRetry
}

interface StepRow {
  readonly kind: CallKind
  readonly name: string
  readonly track: number
  readonly ordinal: number
  readonly turn: number | null
  readonly state: End['state'] | 'waiting'
  readonly result: unknown
  readonly has_result: boolean
  readonly position: number | null
  readonly at: Date
  readonly due_at: Date | null
  readonly due_in: number | null
}

export async function loadCalls(log: Log, execution: Claimed): Promise<Recorded[]> {
  if (!mayHaveCalls(execution)) return []
  const rows = await log.database.run<StepRow>(sql`/* workflows.load_steps */
    select kind, name, track, ordinal, turn, state, result, result is not null as has_result, position, at, due_at,
      (extract(epoch from due_at - ${log.names.clock}(due_at)) * 1000)::float8 as due_in
    from ${workflowNames(log).workflow_steps}
    where execution = ${execution.id}::uuid
    order by ordinal`)
  const events = await eventsAt(
    log,
    rows.flatMap(({ position }) => position ?? []),
  )
  return rows.map(row => recordedOf(row, execution.attempt, events))
}

/** The events that ended waits. */
async function eventsAt(log: Log, positions: readonly number[]): Promise<ReadonlyMap<number, RecordedEvent>> {
  if (positions.length === 0) return new Map()
  const rows = await log.database.runArrays(sql`/* workflows.signals */
    select ${eventColumns}
    from ${log.names.events}
    where position = any(${positions}::bigint[])`)
  const events = new Map<number, RecordedEvent>()
  for (const { event, fault } of await decodeEvents(log, rows)) {
    if (fault !== undefined) throw new EventUndecodable({ eventId: event!.id, type: event!.type }, fault)
    events.set(event!.position, event!)
  }
  const missing = positions.find(position => !events.has(position))
  if (missing !== undefined) throw new EventGone({ position: missing })
  return events
}

function recordedOf(row: StepRow, attempt: number, events: ReadonlyMap<number, RecordedEvent>): Recorded {
  const { kind, name, track, ordinal, at } = row
  const isForgotten = row.state === 'failed' && (row.result as StepFailure).attempt !== attempt
  return {
    ...{ kind, name, track, ordinal, at },
    turn: row.turn ?? undefined,
    state: isForgotten ? 'forgotten' : row.state,
    end: isForgotten ? undefined : endOf(row, events),
    dueInMs: row.due_in ?? undefined,
  }
}

function endOf(row: StepRow, events: ReadonlyMap<number, RecordedEvent>): End | undefined {
  const { kind, state, position } = row
  // A wait that ended while no attempt ran has its time when its end is delivered.
  const at = row.turn === null && (kind === 'wait' || kind === 'child') ? undefined : row.at
  if (state === 'failed') return { state, value: revived(row.result as StepFailure), at }
  if (state === 'expired') return { state, value: undefined, at }
  if (state === 'done') {
    const value = position === null ? (row.has_result ? row.result : undefined) : events.get(position)
    return { state, value, at, position: position ?? undefined }
  }
  if (row.due_in === null || row.due_in > 0) return undefined
  return { state: kind === 'sleep' ? 'done' : 'expired', value: undefined, at: row.due_at! }
}

/** A row to be written: all of it, or only the place of a call whose end is stored already. */
export interface CallRow {
  readonly call: Call
  readonly state: End['state'] | 'waiting'
  readonly turn: number | undefined
  readonly at: Date
  readonly result?: string | undefined
  readonly position?: number | undefined
  readonly dueInMs?: number | undefined
}

/** The row of a call whose end was delivered to the handler. */
export function deliveredRow(call: Call): CallRow {
  const { state, result, position } = call.end!
  return { call, state, turn: call.turn, at: call.at, result, position }
}

/** False if the execution was taken over: then nothing is written. */
export async function storeCalls(
  log: Log,
  executor: Executor,
  { id, fence }: Pick<Claimed, 'id' | 'fence'>,
  track: number,
  rows: readonly CallRow[],
): Promise<boolean> {
  const isWhole = ({ call, state }: CallRow): boolean => call.stored?.state !== state
  const [row] = await executor.run<{ held: boolean }>(sql`/* workflows.remember */
    with held as materialized (
      select x.id
      from ${workflowNames(log).workflow_executions} as x
      where x.id = ${id}::uuid
        and x.fence = ${fence}::bigint
        and x.state = 'running'
      for share),
    given as materialized (
      select held.id as execution, u.*
      from held
      cross join unnest(
        ${rows.map(({ call }) => call.kind)}::text[],
        ${rows.map(({ call }) => call.name)}::text[],
        ${rows.map(({ call }) => call.ordinal)}::integer[],
        ${rows.map(({ turn }) => turn ?? null)}::integer[],
        ${rows.map(({ state }) => state)}::text[],
        ${rows.map(({ result }) => result ?? null)}::text[],
        ${rows.map(({ position }) => position ?? null)}::bigint[],
        ${rows.map(({ at }) => at.getTime())}::float8[],
        ${rows.map(({ dueInMs }) => dueInMs ?? null)}::float8[],
        ${rows.map(({ call }) => call.startedAt?.getTime() ?? null)}::float8[],
        ${rows.map(({ call }) => call.calls ?? null)}::integer[],
        ${rows.map(isWhole)}::boolean[])
        as u(kind, name, ordinal, turn, state, result, position, at, due_in, started, calls, is_whole)),
    whole as (
      insert into ${workflowNames(log).workflow_steps} as s
        (execution, kind, name, track, ordinal, turn, state, result, position, at, due_at, started_at, calls)
      select g.execution, g.kind, g.name, ${track}::integer, g.ordinal, g.turn, g.state, g.result::jsonb, g.position,
        to_timestamp(g.at / 1000), ${log.names.later}(${log.names.clock}(g.at), g.due_in),
        to_timestamp(g.started / 1000), g.calls
      from given as g
      where g.is_whole
      order by g.kind, g.name
      on conflict (execution, kind, name) do update
      set track = excluded.track,
        ordinal = excluded.ordinal,
        turn = excluded.turn,
        state = excluded.state,
        result = excluded.result,
        position = excluded.position,
        at = excluded.at,
        started_at = excluded.started_at,
        calls = excluded.calls),
    placed as (
      update ${workflowNames(log).workflow_steps} as s
      set track = ${track}::integer,
        ordinal = g.ordinal,
        turn = g.turn,
        at = case when g.turn is null then s.at else to_timestamp(g.at / 1000) end
      from given as g
      where not g.is_whole
        and s.execution = g.execution
        and s.kind = g.kind
        and s.name = g.name),
    over as (
      delete from ${workflowNames(log).workflow_waits} as w
      using given as g
      where g.state <> 'waiting'
        and w.execution = g.execution
        and w.kind = g.kind
        and w.name = g.name)
    select exists (select from held) as held`)
  return row!.held
}

/** To be called when the transaction that stored them is committed. */
export function markStored(track: number, rows: readonly CallRow[]): void {
  for (const { call, state, turn } of rows) call.stored = { track, ordinal: call.ordinal, turn, state }
}

/** A number below that of every track: see `replay.ts`. */
const offTrack = 0

/** Keeps the calls that have ended, in the transaction that ends the execution and before its dead letter is written. */
export async function keepCalls(log: Log, tx: Executor, executionId: string): Promise<void> {
  await tx.run(sql`/* workflows.keep_ends */
    with dead_letter as (
      select d.edited is not null as is_edited
      from ${consumerNames(log).dead_letters} as d
      where d.execution = ${executionId}::uuid
        and d.state = 'retrying'),
    forgotten as (
      delete from ${workflowNames(log).workflow_steps} as s
      where s.execution = ${executionId}::uuid
        and (s.state not in ('done', 'expired') or exists (select from dead_letter where is_edited)))
    update ${workflowNames(log).workflow_steps} as s
    set track = ${offTrack}::integer
    where s.execution = ${executionId}::uuid
      and s.state in ('done', 'expired')
      and not exists (select from dead_letter where is_edited)`)
}

/** Deletes all calls, before a retry with edited data is queued. */
export async function forgetCalls(log: Log, tx: Executor, executionIds: readonly string[]): Promise<void> {
  if (executionIds.length === 0) return
  await tx.run(sql`/* workflows.forget_ends */
    delete from ${workflowNames(log).workflow_steps} as s
    where s.execution = any(${executionIds}::uuid[])`)
}
