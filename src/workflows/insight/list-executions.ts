/**
 * Open executions for operators, by id. Those of a workflow are found by its index. Of a handler and a state the first
 * 10 000 are looked at, of all handlers the first 1000 each: each state has an index of its own, so a state with few
 * executions costs little, however many others there are.
 */
import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { type Named, nameOf } from '../../core/definition.ts'
import { canonicalUuid } from '../../core/id.ts'
import { describe, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import { type Fragment, fragment, joinFragments, numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { checkCount, refusal } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import { keyOfLane } from '../work/lanes.ts'
import { conditions, type ExecutionState, executionStates } from './executions.ts'

export interface ListExecutionsOptions extends PageOptions {
  handler?: Named | undefined
  state?: ExecutionState | undefined
  correlationId?: string | undefined
}

export interface ExecutionDescription {
  readonly executionId: string
  readonly handler: string
  readonly version: number
  readonly state: ExecutionState
  readonly correlationId: string
  /** The place of its event in the log. */
  readonly eventPosition: number
  /** How often it was tried. */
  readonly attempt: number
  readonly queuedAt: Date
  /** When the attempt that runs began. */
  readonly startedAt: Date | undefined
  /** When it becomes ready: the next try, the end of a delay, the time of a wait. */
  readonly dueAt: Date | undefined
  readonly deadlineAt: Date | undefined
  /** The key of its lane, if its handler is ordered or has keys. */
  readonly lane: string | undefined
  /** The worker that runs it, or holds it. */
  readonly worker: string | undefined
  /** Whether it retries a dead letter. */
  readonly isRetry: boolean
  /** Why it is parked; undefined in other states. */
  readonly error: ErrorDescription | undefined
}

const ofHandler = 10_000
const ofEach = 1_000
const what = 'A list of executions'

export async function listExecutions(log: Log, options: ListExecutionsOptions): Promise<Page<ExecutionDescription>> {
  refuseUnknownOptions('store.workflows.executions.list', options, [
    ...['handler', 'state', 'correlationId'],
    ...pageOptionNames,
  ])
  const { state, correlationId, after, limit = 100 } = options
  checkCount(what, 'limit', limit, 1, 10_000)
  if (state !== undefined && !executionStates.includes(state))
    throw refusal(what, 'state', `needs one of ${executionStates.join(', ')} as "state", not ${describe(state)}.`)
  const lastId = after === undefined ? null : (canonicalUuid(String(decodeCursor(after, 1)[0])) ?? null)
  const handler = options.handler === undefined ? null : nameOf(options.handler)
  const { workflow_routes, workflow_activity } = workflowNames(log)
  const states = state === undefined ? executionStates : [state]
  const source = correlationId === undefined ? inStates(log, states, handler) : ofWorkflow(log, correlationId, states)
  const rows = await log.database.run<ExecutionRow>(sql`/* workflows.executions */
    select x.id, x.state, x.correlation_id, x.position, x.attempt, x.queued_at, x.started_at, x.run_at, x.deadline_at,
      x.lane, x.worker, x.is_retry, r.handler, r.version, parked.error
    from ${source}
    join ${workflow_routes} as r on r.id = x.route
    left join lateral (
      select a.error
      from ${workflow_activity} as a
      where x.state = 'parked'
        and a.correlation_id = x.correlation_id
        and a.execution = x.id
        and a.kind = 'parked'
      order by a.position desc
      limit 1) as parked on true
    where (${handler}::text is null or r.handler = ${handler}::text)
      and (${lastId}::uuid is null or x.id > ${lastId}::uuid)
    order by x.id
    limit ${limit + 1}::integer`)
  const page = pageOf(rows, limit, row => [row.id])
  return { ...page, items: page.items.map(descriptionOf) }
}

function inStates(log: Log, states: readonly ExecutionState[], handler: string | null): Fragment {
  const { workflow_executions, workflow_routes } = workflowNames(log)
  const limit = numeral(handler === null ? ofEach : ofHandler)
  const each = states.map(
    state => fragment`
      (select x.*
        from ${workflow_executions} as x
        where x.route = route.id
          and ${conditions[state]}
        limit ${limit})`,
  )
  return fragment`(
      select id
      from ${workflow_routes}
      where ${handler}::text is null or handler = ${handler}::text) as route
    cross join lateral (${joinFragments(each, ' union all ')}) as x`
}

function ofWorkflow(log: Log, correlationId: string, states: readonly ExecutionState[]): Fragment {
  return fragment`(
      select *
      from ${workflowNames(log).workflow_executions} as each
      where each.correlation_id = ${correlationId}::text
        and each.state = any(${states}::text[])) as x`
}

interface ExecutionRow {
  readonly id: string
  readonly state: ExecutionState
  readonly correlation_id: string
  readonly position: number
  readonly attempt: number
  readonly queued_at: Date
  readonly started_at: Date | null
  readonly run_at: Date | null
  readonly deadline_at: Date | null
  readonly lane: string | null
  readonly worker: string | null
  readonly is_retry: boolean
  readonly handler: string
  readonly version: number
  readonly error: ErrorDescription | null
}

function descriptionOf(row: ExecutionRow): ExecutionDescription {
  return {
    executionId: row.id,
    handler: row.handler,
    version: row.version,
    state: row.state,
    correlationId: row.correlation_id,
    eventPosition: row.position,
    attempt: row.attempt,
    queuedAt: row.queued_at,
    startedAt: row.started_at ?? undefined,
    dueAt: row.run_at ?? undefined,
    deadlineAt: row.deadline_at ?? undefined,
    lane: row.lane === null ? undefined : keyOfLane(row.lane).key,
    worker: row.worker ?? undefined,
    isRetry: row.is_retry,
    error: row.error ?? undefined,
  }
}
