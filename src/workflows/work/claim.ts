/** Taking work: several executions in one call, each with its event. */
import { type Fragment, sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumnCount, eventColumnsOf, eventsOfRows, rawEventOfRow } from '../../events/read/rows.ts'
import type { JoinedBatch } from '../joins/joined.ts'
import { workflowNames } from '../schema.ts'

/** One execution in the hands of a worker, until it is finished or lost. */
export interface Claimed {
  readonly id: string
  readonly position: number
  readonly route: number
  readonly fence: number
  /** This one included. */
  readonly attempt: number
  /** How many of the attempts ended with their worker. */
  readonly crashes: number
  /** How long this attempt had run before it was suspended. */
  readonly ranMs: number
  readonly correlationId: string
  readonly lane: string | undefined
  /** Held: it comes after another one of its lane that was claimed with it. */
  readonly isHeld: boolean
  readonly joinId: string | undefined
  readonly undoId: number | undefined
  readonly isLetter: boolean
  readonly queuedAt: Date
  /** How far the database's clock was beyond its rank when it was claimed; undefined for one that began as it was queued. */
  readonly beyondRankMs: number | undefined
  /** By `performance.now()`. */
  readonly claimedAt: number
  /** How long after it was claimed its time is over; undefined: never, or its handler knows, if it began as it was queued. */
  readonly leftMs: number | undefined
  /** Undefined if it is not in the log any more. */
  readonly event: RecordedEvent | undefined
  /** Why the event could not be given its shape. */
  readonly fault?: unknown
  /** The batch it joins, known from when it is run. */
  readonly join?: JoinedBatch | undefined
}

export interface ClaimRequest {
  readonly owner: string
  /** One that nobody had before: see `fences.ts`. */
  readonly fence: number
  readonly routes: readonly number[]
  readonly limit: number
  /** How many of an ordered lane to take together with its head. */
  readonly ahead: number
  /** How much longer than its timeout an attempt may last before others take it for lost. */
  readonly graceMs: number
}

export async function claim(
  log: Log,
  { owner, fence, routes, limit, ahead, graceMs }: ClaimRequest,
): Promise<Claimed[]> {
  const rows = await log.database.runArrays(sql`/* workflows.claim */
    select
      ${editedEventColumns},
      (c.execution).id, (c.execution).position, (c.execution).route, (c.execution).fence, (c.execution).attempt,
      (c.execution).crashes, (c.execution).ran_ms, (c.execution).correlation_id, (c.execution).lane,
      (c.execution).state, (c.execution).join_id, (c.execution).undo_id, (c.execution).is_letter,
      (c.execution).queued_at,
      (extract(epoch from (c.execution).expires_at - ${log.names.clock}((c.execution).id)) * 1000)::float8,
      extract(epoch from ${log.names.clock}((c.execution).id))::float8 * 1000 - (c.execution).rank
    from ${workflowNames(log).workflow_claim}(
      p_owner => ${owner}::text,
      p_fence => ${fence}::bigint,
      p_routes => ${routes}::integer[],
      p_limit => ${limit}::integer,
      p_ahead => ${ahead}::integer,
      p_grace_ms => ${graceMs}::integer) as c
    cross join lateral (
      select (c.event).*) as e
    order by (c.execution).rank, (c.execution).position`)
  const events = await decodeEvents(log, rows)
  const claimedAt = performance.now()
  return rows.map((row, at) => claimedOf(row, events[at]!, claimedAt))
}

/** The columns of an event `e`; `edited` is what a dead letter that is retried has in their place. */
export const editedEventColumns: Fragment = eventColumnsOf('e', {
  type: `coalesce(edited->>'type', e.type)`,
  schema_version: `coalesce((edited->>'schemaVersion')::integer, e.schema_version)`,
  data: `coalesce(edited->'data', e.data)`,
})

function claimedOf(row: readonly unknown[], { event, fault }: Decoded, claimedAt: number): Claimed {
  const column = <T>(at: number): T => row[eventColumnCount + at] as T
  const isHeld = column<string>(9) === 'held'
  return {
    id: column(0),
    position: column(1),
    route: column(2),
    fence: column(3),
    // One that is held is counted when it begins.
    attempt: column<number>(4) + (isHeld ? 1 : 0),
    crashes: column(5),
    ranMs: column(6),
    correlationId: column(7),
    lane: column<string | null>(8) ?? undefined,
    isHeld,
    joinId: column<string | null>(10) ?? undefined,
    undoId: column<number | null>(11) ?? undefined,
    isLetter: column(12),
    queuedAt: column(13),
    leftMs: column<number | null>(14) ?? undefined,
    beyondRankMs: column(15),
    claimedAt,
    event,
    ...(fault === undefined ? {} : { fault }),
  }
}

/** Executions that are run one after the other: the head of a lane and those held behind it. */
export function groupsOf(claimed: readonly Claimed[]): Claimed[][] {
  const heads = claimed.filter(each => !each.isHeld).map(each => [each])
  const byLane = new Map(heads.flatMap(group => (group[0]!.lane === undefined ? [] : [[group[0]!.lane, group]])))
  const held = claimed.filter(each => each.isHeld).sort((a, b) => (a.position < b.position ? -1 : 1))
  for (const each of held) byLane.get(each.lane!)?.push(each)
  return heads
}

export interface Decoded {
  /** Undefined if it is not in the log any more. */
  readonly event: RecordedEvent | undefined
  readonly fault?: unknown
}

/** The events of rows that begin with their columns. One bad event must not hide the good ones around it. */
export async function decodeEvents(log: Log, rows: readonly unknown[][]): Promise<Decoded[]> {
  const present = rows.filter(row => row[0] !== null)
  try {
    const events = await eventsOfRows(log, present)
    if (present.length === rows.length) return events.map(event => ({ event }))
    const found = new Map(present.map((row, at) => [row, events[at]!]))
    return rows.map(row => ({ event: found.get(row) }))
  } catch {
    const decoded: Decoded[] = []
    for (const row of rows) {
      if (row[0] === null) decoded.push({ event: undefined })
      else
        try {
          decoded.push({ event: (await eventsOfRows(log, [row]))[0] })
        } catch (fault) {
          decoded.push({ event: rawEventOfRow(row), fault })
        }
    }
    return decoded
  }
}
