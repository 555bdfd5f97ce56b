/**
 * Claiming: a worker takes several executions in one call, each with its event, under a fence that every write of their
 * attempts has to match.
 */

import { consumerNames } from '../../consumers/schema.ts'
import { elapsedMs } from '../../core/host.ts'
import { openLoop } from '../../core/loop.ts'
import type { Backoff } from '../../core/retry.ts'
import type { Executor } from '../../database/database.ts'
import { type Fragment, sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { eventColumnCount, eventColumnsOf, eventsOfRows, rawEventOfRow } from '../../events/read/rows.ts'
import type { NewExecution } from '../dispatch/enqueue.ts'
import type { Capacity } from '../dispatch/plain.ts'
import type { Handler } from '../handler.ts'
import type { JoinedBatch } from '../joins/join.ts'
import { workflowNames } from '../schema.ts'
import type { EarlyPage } from './early.ts'
import type { Work } from './work.ts'

/** One execution that a worker has claimed, until it is completed or lost. */
export interface Claimed {
  readonly id: string
  readonly position: number
  readonly route: number
  readonly fence: number
  /** This attempt included. */
  readonly attempt: number
  /** How many of the attempts ended because their worker died. */
  readonly crashes: number
  /** How long this attempt had run before it was suspended. */
  readonly ranMs: number
  readonly correlationId: string
  readonly lane: string | undefined
  /** Whether it comes after another execution of its lane that was claimed with it. */
  readonly isHeld: boolean
  readonly joinId: string | undefined
  readonly undoId: number | undefined
  /** Whether it retries a dead letter. */
  readonly isRetry: boolean
  /** Whether an operator wants it to be dead-lettered instead of run. */
  readonly isRejected: boolean
  readonly queuedAt: Date
  /**
   * How far the database's clock was beyond its rank when it was claimed; undefined for one that began when it was
   * dispatched.
   */
  readonly beyondRankMs: number | undefined
  /** By `elapsedMs()`. */
  readonly claimedAt: number
  /**
   * How long after the claim the execution expires; undefined if it never does. Of one that began when it was dispatched
   * the handler knows.
   */
  readonly leftMs: number | undefined
  /** Undefined if the event is no longer in the log, or had no room in the claim: it is read when the attempt begins. */
  readonly event: RecordedEvent | undefined
  /** How much its event takes here, about. */
  readonly bytes: number
  /** Why the event could not be upcast. */
  readonly fault?: unknown
  /** The batch that it joins; loaded when the attempt begins. */
  readonly join?: JoinedBatch | undefined
  /** Set for one that has no row yet. */
  early?: EarlyPage
}

export interface ClaimRequest {
  readonly owner: string
  /** A fence that was never used before. */
  readonly fence: number
  readonly routes: readonly number[]
  readonly limit: number
  /** How many executions of an ordered lane to hold together with its head. */
  readonly ahead: number
  /** How much longer than its timeout an attempt may last before other workers take it over. */
  readonly graceMs: number
}

/** The columns of an execution after those of its event. */
export type ExecutionColumns = [
  id: string,
  position: number,
  route: number,
  fence: number,
  attempt: number,
  crashes: number,
  ranMs: number,
  correlationId: string,
  lane: string | null,
  state: string,
  joinId: string | null,
  undoId: number | null,
  isRetry: boolean,
  isRejected: boolean,
  queuedAt: Date,
  leftMs: number | null,
  beyondRankMs: number,
  bytes: number | null,
]

/** The columns of an event `e`; `edited` replaces them when its dead letter is retried with other data. */
export const editedEventColumns: Fragment = eventColumnsOf('e', {
  type: shown => `coalesce(edited->>'type', ${shown})`,
  schema_version: shown => `coalesce((edited->>'schemaVersion')::integer, ${shown})`,
  data: shown => `coalesce(edited->'data', ${shown})`,
})

export async function claim(log: Log, request: ClaimRequest, executor: Executor = log.database): Promise<Claimed[]> {
  const { owner, fence, routes, limit, ahead, graceMs } = request
  const { clock } = log.names
  const rows = await executor.runArrays(sql`/* workflows.claim */
    select
      ${editedEventColumns},
      (c.execution).id, (c.execution).position, (c.execution).route, (c.execution).fence, (c.execution).attempt,
      (c.execution).crashes, (c.execution).ran_ms, (c.execution).correlation_id, (c.execution).lane,
      (c.execution).state, (c.execution).join_id, (c.execution).undo_id, (c.execution).is_retry,
      (c.execution).is_rejected, (c.execution).queued_at,
      (extract(epoch from (c.execution).expires_at - ${clock}((c.execution).id)) * 1000)::float8,
      extract(epoch from ${clock}((c.execution).id))::float8 * 1000 - (c.execution).rank, e.bytes
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
  const claimedAt = elapsedMs()
  return rows.map((row, at) => claimedOf(row.slice(eventColumnCount) as ExecutionColumns, events[at]!, claimedAt))
}

export function claimedOf(columns: ExecutionColumns, { event, fault }: DecodedEvent, claimedAt: number): Claimed {
  const [id, position, route, fence, attempt, crashes, ranMs, correlationId, lane, state, ...rest] = columns
  const [joinId, undoId, isRetry, isRejected, queuedAt, leftMs, beyondRankMs, bytes] = rest
  const isHeld = state === 'held'
  return {
    ...{
      id,
      position,
      route,
      fence,
      crashes,
      ranMs,
      correlationId,
      isHeld,
      isRetry,
      isRejected,
      queuedAt,
      beyondRankMs,
      claimedAt,
    },
    // The attempt of one that is held is counted when it begins.
    attempt: attempt + (isHeld ? 1 : 0),
    lane: lane ?? undefined,
    joinId: joinId ?? undefined,
    undoId: undoId ?? undefined,
    leftMs: leftMs ?? undefined,
    bytes: bytes ?? 0,
    event,
    ...(fault === undefined ? {} : { fault }),
  }
}

/** An execution that began in the call that dispatched it, as a claim would have given it. */
export function begunAtDispatch(
  { id, position, route, correlationId }: NewExecution,
  { event, bytes, fence, queuedAt }: { event: RecordedEvent; bytes: number; fence: number; queuedAt: Date },
): Claimed {
  return {
    ...{ id, position, route, correlationId, event, bytes, fence, queuedAt, claimedAt: elapsedMs() },
    ...{ attempt: 1, crashes: 0, ranMs: 0, isHeld: false, isRetry: false, isRejected: false },
    ...{ lane: undefined, joinId: undefined, undoId: undefined, leftMs: undefined, beyondRankMs: undefined },
  }
}

/** With its event, which the claim had no room for; without one if the log no longer has it. */
export async function withEvent(log: Log, execution: Claimed): Promise<Claimed> {
  const { workflow_executions, workflow_routes } = workflowNames(log)
  const rows = await log.database.runArrays(sql`/* workflows.event_of */
    select ${editedEventColumns}
    from ${workflow_executions} as x
    join ${workflow_routes} as r on r.id = x.route
    join ${log.names.events} as e on e.position = x.position
    left join ${consumerNames(log).dead_letters} as d
      on x.is_retry
      and d.consumer = 'handler:' || r.handler
      and d.event_id = e.event_id
      and d.state = 'retrying'
    where x.id = ${execution.id}::uuid`)
  return { ...execution, ...(await decodeEvents(log, rows))[0] }
}

/** Executions that run one after the other: the head of a lane and those held behind it. */
export function groupByLane(claimed: readonly Claimed[]): Claimed[][] {
  const groups = claimed.filter(each => !each.isHeld).map(head => [head])
  const byLane = new Map(groups.flatMap(group => (group[0]!.lane === undefined ? [] : [[group[0]!.lane, group]])))
  const held = claimed.filter(each => each.isHeld).sort((a, b) => a.position - b.position)
  for (const each of held) byLane.get(each.lane!)?.push(each)
  return groups
}

const fencesAtOnce = 256

/**
 * Each call of the function returned gives a fence that was never used before. They are drawn ahead of claims, many at
 * once, and that is flushed to the disk, so that claims need not be: a fence drawn in a claim that a crash of the
 * server undoes could be drawn again. [claim-2]
 */
export function drawFences(log: Log): () => Promise<number> {
  let drawn: number[] = []
  return async () => {
    if (drawn.length === 0) {
      const rows = await log.database.runArrays(sql`/* workflows.fences */
        select *
        from unnest(${consumerNames(log).consumers_draw}(p_count => ${fencesAtOnce}::integer))`)
      drawn = rows.map(([fence]) => fence as number)
    }
    return drawn.pop()!
  }
}

/** The claims of one worker: a loop that asks for executions when some may be ready and the worker has room. */
export interface Claims {
  /** Claims soon, because executions may be ready. */
  claimSoon(): void
  /** The worker has room: claims soon, if the last claim may have left ready executions. */
  onRoom(): void
  /** Room for the dispatcher of this process, under a fence of its own; undefined if there is none. */
  nextCapacity(): Promise<Capacity | undefined>
  forgetEnds(): void
  stop(): Promise<void>
}

export interface ClaimsOptions {
  readonly owner: string
  readonly handlers: ReadonlyMap<number, Handler>
  readonly graceMs: number
  readonly work: Pick<Work, 'room' | 'wantsMore' | 'add' | 'expect' | 'runEarly' | 'closeEarly' | 'forgetEnds'>
  readonly backoff: Backoff
  readonly onFailure: (error: unknown) => void
}

/** How many executions of an ordered lane are claimed together with its head. */
export const laneAhead = 15

export function openClaims(log: Log, options: ClaimsOptions): Claims {
  const { owner, handlers, graceMs, work, backoff } = options
  // Asked each time: handlers can be registered while the worker runs.
  const routesHere = (): number[] => [...handlers.keys()]
  const isRated = (): boolean => [...handlers.values()].some(({ rate }) => rate !== undefined)
  const nextFence = drawFences(log)
  const loop = openLoop({ look, pollMs: Number.POSITIVE_INFINITY, backoff, onFailure })
  /** Whether executions may be ready that were not asked for. */
  let isReadyLikely = true

  return {
    claimSoon() {
      isReadyLikely = true
      loop.lookSoon()
    },
    onRoom() {
      if (isReadyLikely) loop.lookSoon()
    },
    async nextCapacity() {
      if (work.room() <= 0) return undefined
      const fence = await nextFence()
      const answered = work.expect(fence)
      return {
        ...{ owner, fence, routes: routesHere(), graceMs, limit: Math.max(0, work.room()) },
        begin(executions) {
          work.add(executions)
          answered()
        },
        // Older executions that are ready come first.
        runEarly: executions => (isReadyLikely ? undefined : work.runEarly(executions)),
        closeEarly: work.closeEarly,
      }
    },
    forgetEnds: work.forgetEnds,
    stop: loop.stop,
  }

  async function look(): Promise<number | undefined> {
    if (!isReadyLikely || handlers.size === 0 || !work.wantsMore()) return undefined
    const fence = await nextFence()
    const limit = work.room()
    if (limit <= 0) return undefined
    isReadyLikely = false
    const claimed = await claimUnder(fence, limit)
    const nextInMs = claimed >= limit ? 0 : isRated() ? await msUntilRate(log, routesHere(), claimed > 0) : undefined
    if (nextInMs !== undefined) isReadyLikely = true
    return nextInMs
  }

  async function claimUnder(fence: number, limit: number): Promise<number> {
    const answered = work.expect(fence)
    try {
      const claimed = await claim(log, { owner, fence, routes: routesHere(), limit, ahead: laneAhead, graceMs })
      work.add(claimed)
      return claimed.length
    } finally {
      // If the answer was lost, the next look finds the claimed executions, and releases them.
      answered()
    }
  }

  function onFailure(error: unknown): void {
    isReadyLikely = true
    options.onFailure(error)
  }
}

/**
 * In how many milliseconds another execution of a handler with a rate may begin; undefined if none of these routes has
 * executions that wait for that. `hasClaimed`: the last claim got some, so an execution that may begin now can be claimed.
 */
export async function msUntilRate(
  log: Log,
  routes: readonly number[],
  hasClaimed: boolean,
): Promise<number | undefined> {
  const { workflow_routes, workflow_executions } = workflowNames(log)
  const [row] = await log.database.run<{ next_in: number | null; now: boolean | null }>(sql`/* workflows.rate */
    select min(f.in_ms) filter (where f.in_ms > 0) as next_in, bool_or(f.in_ms <= 0) as now
    from ${workflow_routes} as r
    cross join lateral (
      select (r.rate_per_ms * greatest(0, 1 - r.rate_tokens) / r.rate_limit
        - extract(epoch from ${log.names.clock}(r.id) - r.rate_at) * 1000)::float8 as in_ms) as f
    where r.id = any(${routes}::integer[])
      and r.rate_limit is not null
      and exists (
        select
        from ${workflow_executions} as x
        where x.route = r.id
          and x.state = 'ready')`)
  if (hasClaimed && row?.now === true) return 0
  return typeof row?.next_in === 'number' ? Math.ceil(row.next_in) + 1 : undefined
}

export interface DecodedEvent {
  /** Undefined if the event is no longer in the log. */
  readonly event: RecordedEvent | undefined
  readonly fault?: unknown
}

/** The events of rows that begin with an event's columns. One that cannot be upcast does not affect the others. */
export async function decodeEvents(log: Log, rows: readonly unknown[][]): Promise<DecodedEvent[]> {
  const present = rows.filter(row => row[0] !== null)
  try {
    const events = await eventsOfRows(log, present)
    if (present.length === rows.length) return events.map(event => ({ event }))
    const found = new Map(present.map((row, at) => [row, events[at]!]))
    return rows.map(row => ({ event: found.get(row) }))
  } catch {
    const decoded: DecodedEvent[] = []
    for (const row of rows) decoded.push(row[0] === null ? { event: undefined } : await decodeOne(log, row))
    return decoded
  }
}

async function decodeOne(log: Log, row: unknown[]): Promise<DecodedEvent> {
  try {
    return { event: (await eventsOfRows(log, [row]))[0] }
  } catch (fault) {
    return { event: rawEventOfRow(row), fault }
  }
}
