/**
 * The status of workflows. A workflow is settled when nothing of it is open and the dispatcher has passed its newest
 * event: both are read by one statement, so that nothing can happen between them. The events of a handler are stored
 * with its completion, so at every moment either the execution is open or its events are in the log.
 */

import { handlerOfRow } from '../consumers/dead-letters/owner.ts'
import type { ErrorDescription } from '../consumers/run/failure.ts'
import { consumerNames } from '../consumers/schema.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import type { Attributes } from './publish.ts'
import { dispatcherName } from './routes.ts'
import { workflowNames } from './schema.ts'

/**
 * Whether a workflow is under way, waits, or is over.
 *
 * @example
 * ```ts
 * const bad: WorkflowState[] = ['failed', 'cancelled']
 * ```
 */
export type WorkflowState =
  | 'running'
  | 'waiting'
  | 'parked'
  | 'failed'
  | 'compensating'
  | 'compensated'
  | 'compensationFailed'
  | 'cancelled'
  | 'settled'
  | 'unknown'

/** Those that a list can be filtered by. */
export const workflowStates: readonly WorkflowState[] = [
  ...(['running', 'waiting', 'parked', 'failed', 'compensating', 'compensated', 'compensationFailed'] as const),
  ...(['cancelled', 'settled'] as const),
]

/** The open, done and failed work of a workflow. */
export interface WorkflowStatus {
  readonly correlationId: string
  readonly state: WorkflowState
  /** Whether nothing more happens by itself, without an event, a retry or a signal from outside. */
  readonly isSettled: boolean
  /** Executions and joins that are open. */
  readonly pending: number
  /** Of these, executions whose code did not fit their recorded steps: they wait for an operator. */
  readonly parked: number
  /** Dead letters that are open or being retried. */
  readonly deadLetters: number
  /** Of these, the latest failure. */
  readonly lastFailure: WorkflowFailure | undefined
  readonly lastType: string | undefined
  readonly startedAt: Date | undefined
  readonly updatedAt: Date | undefined
  readonly parent: string | undefined
  /** Why it was cancelled. */
  readonly reason: string | undefined
  /** Those that its events have given it; undefined if none has. */
  readonly attributes?: Attributes | undefined
}

/** The latest failure for good of a workflow, of those that are not resolved. */
export interface WorkflowFailure {
  readonly handler: string
  readonly reason: string | undefined
  readonly error: ErrorDescription
  readonly at: Date
}

interface StatusRow {
  correlation_id: string
  state: string | null
  open: number | null
  busy: boolean
  parked: number
  dead_letters: number
  last_failure: {
    consumer: string
    reason: string | null
    error: ErrorDescription & { at?: string }
    at: string
  } | null
  requested: boolean
  undispatched: boolean
  last_type: string | null
  started_at: Date | null
  updated_at: Date | null
  parent: string | null
  reason: string | null
  attributes: Attributes | null
}

/**
 * In the order of the ids. A workflow of which the store has nothing is unknown, and not settled. `isEnd`: skips, cheaply,
 * those that cannot be settled.
 */
export async function readStatuses(
  log: Log,
  correlationIds: readonly string[],
  executor: Executor = log.database,
  isEnd = false,
): Promise<WorkflowStatus[]> {
  const names = { ...log.names, ...consumerNames(log), ...workflowNames(log) }
  const rows = await executor.run<StatusRow>(sql`/* workflows.status */
    select
      c.correlation_id, w.state, w.open, w.started_at, w.updated_at, w.parent, w.reason, w.attributes,
      coalesce(newest.type, w.last_type) as last_type,
      coalesce(newest.position > coalesce(d.checkpoint, 0), false) as undispatched,
      work.state is not null as busy,
      parked.n as parked,
      dead.n as dead_letters,
      dead.last as last_failure,
      dead.requested
    from unnest(${correlationIds}::text[]) with ordinality as c(correlation_id, n)
    left join ${names.workflows} as w on w.correlation_id = c.correlation_id
    left join ${names.consumers} as d on d.name = ${dispatcherName}::text
    left join lateral (
      select e.position, e.type
      from ${names.events} as e
      where e.correlation_id = c.correlation_id
      order by e.position desc
      limit 1) as newest on true
    -- With a limit, and the lane by itself: otherwise the planner reads all executions and all lanes into memory.
    left join lateral (
      select x.state
      from ${names.workflow_executions} as x
      where x.correlation_id = c.correlation_id
        and x.state not in ('suspended', 'parked')
        and (x.state <> 'blocked' or (
          select l.parked
          from ${names.workflow_lanes} as l
          where l.lane = x.lane) is not true)
      limit 1) as work on true
    cross join lateral (
      select count(*) as n
      from ${names.workflow_executions} as x
      where x.correlation_id = c.correlation_id
        and x.state = 'parked') as parked
    cross join lateral (
      select count(*) as n, coalesce(bool_or(l.retry_at is not null), false) as requested,
        (array_agg(jsonb_build_object('consumer', l.consumer, 'reason', l.reason, 'error', l.errors -> -1,
          'at', l.last_failed_at) order by l.last_failed_at desc))[1] as last
      from ${names.dead_letters} as l
      where l.correlation_id = c.correlation_id
        and l.state in ('open', 'retrying')) as dead
    where not ${isEnd}::boolean
      or (coalesce(w.open, 0) = 0
        and not exists (
          select
          from ${names.events} as e
          where e.correlation_id = c.correlation_id
            and e.position > coalesce(d.checkpoint, 0)
          limit 1))
    order by c.n`)
  return rows.map(statusOf)
}

function statusOf(row: StatusRow): WorkflowStatus {
  const pending = row.open ?? 0
  // A retry that was requested is an execution soon.
  const isAwaited = row.undispatched || row.requested
  const deadLetters = Number(row.dead_letters)
  const isUnknown = row.state === null && row.last_type === null && deadLetters === 0
  const isSettled = pending === 0 && !isAwaited && row.state !== 'compensating' && !isUnknown
  return {
    correlationId: row.correlation_id,
    state: isUnknown ? 'unknown' : stateOf(row, isSettled, deadLetters),
    isSettled,
    pending,
    parked: Number(row.parked),
    deadLetters,
    lastFailure: failureOf(row.last_failure),
    lastType: row.last_type ?? undefined,
    startedAt: row.started_at ?? undefined,
    updatedAt: row.updated_at ?? undefined,
    parent: row.parent ?? undefined,
    reason: row.reason ?? undefined,
    attributes: row.attributes ?? undefined,
  }
}

function stateOf(
  { state, busy, parked, undispatched, requested }: StatusRow,
  isSettled: boolean,
  deadLetters: number,
): WorkflowState {
  if (state !== null && state !== 'active') return state as WorkflowState
  if (deadLetters > 0 && isSettled) return 'failed'
  if (isSettled) return 'settled'
  if (busy || undispatched || requested) return 'running'
  return Number(parked) > 0 ? 'parked' : 'waiting'
}

function failureOf(row: StatusRow['last_failure']): WorkflowFailure | undefined {
  if (row === null || row.error === null) return undefined
  const { at: _at, ...error } = row.error
  return { handler: handlerOfRow(row.consumer), reason: row.reason ?? undefined, error, at: new Date(row.at) }
}
