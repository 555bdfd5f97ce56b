/**
 * The inside of one workflow: the recorded calls of its open executions, what they wait for, its joins and its undos.
 * Each is read by an index of its workflow or its executions, at most 1000 rows. Once their values come to `maxPageBytes`,
 * the other rows come without theirs.
 */
import { handlerPrefix } from '../../consumers/dead-letters/owner.ts'
import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { maxPageBytes } from '../../core/page.ts'
import type { Executor } from '../../database/database.ts'
import { Fragment, fragment, numeral, sql } from '../../database/sql.ts'
import { textBytes } from '../../documents/size.ts'
import type { Log } from '../../events/log.ts'
import type { JoinState } from '../joins/arrive.ts'
import { workflowNames } from '../schema.ts'

/** A call that a handler has made of its context: a step, a sleep, a wait, a child. */
export interface RecordedStep {
  readonly executionId: string
  readonly handler: string
  readonly kind: string
  readonly name: string
  /** `waiting`, `done`, `failed` in the present attempt, or `expired`: no event came in time. */
  readonly state: string
  /** The number of the call in its attempt. */
  readonly ordinal: number
  /** How often the function of a step was called in the run that ended it; undefined for waits. */
  readonly attempts: number | undefined
  readonly startedAt: Date | undefined
  /** When it ended; of one that waits, when it began. */
  readonly at: Date
  readonly dueAt: Date | undefined
  /** As it is stored; undefined if it failed or waits, or `isCut`. */
  readonly result: unknown
  /** Its result is left out, because those before it are large. */
  readonly isCut?: true | undefined
  /** The failure of one that failed. */
  readonly error: ErrorDescription | undefined
  /** The place in the log of the event that a wait was given. */
  readonly eventPosition: number | undefined
}

export interface OpenWait {
  readonly executionId: string
  readonly handler: string
  readonly name: string
  /** It waits for an event of this type; undefined if it waits for a child. */
  readonly type: string | undefined
  /** It waits for this workflow to settle. */
  readonly child: string | undefined
  /** The fields that the event must have; undefined if `isCut`. */
  readonly match: unknown
  /** They are left out, because those before them are large. */
  readonly isCut?: true | undefined
  /** When it ends without an event. */
  readonly dueAt: Date | undefined
}

export interface JoinDescription {
  readonly id: string
  readonly handler: string
  readonly version: number
  readonly state: JoinState
  readonly size: number
  readonly arrived: number
  readonly failed: number
  readonly empty: number
  readonly openedAt: Date
  readonly closedAt: Date | undefined
  readonly deadlineAt: Date | undefined
  /** By index; those that have not come yet are missing. At most 1000. */
  readonly entries: readonly {
    readonly index: number
    readonly outcome: string
    readonly eventPosition: number | undefined
  }[]
}

export interface UndoDescription {
  readonly executionId: string
  readonly handler: string
  readonly step: string
  readonly state: string
  readonly at: Date
  readonly data: unknown
  readonly result: unknown
  /** Its data and result are left out, because those before them are large. */
  readonly isCut?: true | undefined
}

const maxRows = numeral(1_000)

/** Whether the values of the rows before this one leave room for its own; `shown` has the columns `total` and `bytes`. */
const hasRoom = fragment`shown.total - shown.bytes < ${numeral(maxPageBytes)}`

function bytesOf(...columns: readonly string[]): Fragment {
  return new Fragment([columns.map(textBytes).join(' + ')], [])
}

const cut = (isCut: boolean): { isCut?: true } => (isCut ? { isCut } : {})

/** Of executions that are open, and of those whose dead letters are. */
export async function readSteps(
  log: Log,
  correlationId: string,
  executor: Executor = log.database,
): Promise<RecordedStep[]> {
  const { workflow_executions, workflow_steps, workflow_routes } = workflowNames(log)
  const { dead_letters } = consumerNames(log)
  const rows = await executor.run<{
    execution: string
    handler: string
    kind: string
    name: string
    state: string
    ordinal: number
    calls: number | null
    started_at: Date | null
    at: Date
    due_at: Date | null
    result: unknown
    position: number | null
    is_cut: boolean
  }>(sql`/* workflows.steps_of */
    select shown.execution, shown.handler, shown.kind, shown.name, shown.state, shown.ordinal, shown.calls,
      shown.started_at, shown.at, shown.due_at, shown.position,
      case when shown.bytes = 0 or ${hasRoom} then shown.result end as result,
      shown.bytes > 0 and not ${hasRoom} as is_cut
    from (
      select sized.*,
        sum(sized.bytes) over (order by sized.execution, sized.track, sized.ordinal rows unbounded preceding) as total
      from (
        select s.*, found.handler, case when s.state = 'done' then ${bytesOf('s.result')} else 0 end as bytes
        from (
          select x.id, r.handler
          from ${workflow_executions} as x
          join ${workflow_routes} as r on r.id = x.route
          where x.correlation_id = ${correlationId}::text
          union
          select d.execution, substr(d.consumer, ${handlerPrefix.length + 1}::integer)
          from ${dead_letters} as d
          where d.correlation_id = ${correlationId}::text
            and d.state in ('open', 'retrying')
            and d.execution is not null) as found
        join ${workflow_steps} as s on s.execution = found.id
        order by s.execution, s.track, s.ordinal
        limit ${maxRows}) as sized) as shown
    order by shown.execution, shown.track, shown.ordinal`)
  return rows.map(row => ({
    executionId: row.execution,
    handler: row.handler,
    kind: row.kind,
    name: row.name,
    state: row.state,
    ordinal: row.ordinal,
    attempts: row.calls ?? undefined,
    startedAt: row.started_at ?? undefined,
    at: row.at,
    dueAt: row.due_at ?? undefined,
    result: row.state === 'failed' ? undefined : (row.result ?? undefined),
    error: row.state === 'failed' ? failureOf(row.result) : undefined,
    eventPosition: row.position ?? undefined,
    ...cut(row.is_cut),
  }))
}

function failureOf(stored: unknown): ErrorDescription {
  const { name, message, code } = stored as ErrorDescription
  return { name, message, ...(code === undefined ? {} : { code }) }
}

export async function readWaits(log: Log, correlationId: string): Promise<OpenWait[]> {
  const { workflow_executions, workflow_waits, workflow_steps, workflow_routes } = workflowNames(log)
  const rows = await log.database.run<{
    execution: string
    handler: string
    name: string
    type: string | null
    child: string | null
    match: unknown
    due_at: Date | null
    is_cut: boolean
  }>(sql`/* workflows.waits_of */
    select shown.execution, shown.handler, shown.name, shown.type, shown.child, shown.due_at,
      case when ${hasRoom} then shown.match end as match, not ${hasRoom} as is_cut
    from (
      select sized.*, sum(sized.bytes) over (order by sized.execution, sized.ordinal rows unbounded preceding) as total
      from (
        select w.execution, w.ordinal, w.name, w.type, w.child, w.match, r.handler, s.due_at, ${bytesOf('w.match')} as bytes
        from ${workflow_executions} as x
        join ${workflow_waits} as w on w.execution = x.id
        join ${workflow_routes} as r on r.id = x.route
        left join ${workflow_steps} as s on s.execution = w.execution and s.kind = w.kind and s.name = w.name
        where x.correlation_id = ${correlationId}::text
        order by w.execution, w.ordinal
        limit ${maxRows}) as sized) as shown
    order by shown.execution, shown.ordinal`)
  return rows.map(row => ({
    executionId: row.execution,
    handler: row.handler,
    name: row.name,
    type: row.type ?? undefined,
    child: row.child ?? undefined,
    match: row.match ?? undefined,
    dueAt: row.due_at ?? undefined,
    ...cut(row.is_cut),
  }))
}

/** The open ones: those that have closed are part of the tree. */
export async function readJoins(log: Log, correlationId: string): Promise<JoinDescription[]> {
  const { workflow_joins, workflow_join_entries, workflow_routes } = workflowNames(log)
  const rows = await log.database.run<{
    id: string
    handler: string
    version: number
    state: JoinState
    size: number
    arrived: number
    failed: number
    empty: number
    opened_at: Date
    closed_at: Date | null
    deadline_at: Date | null
    entries: { index: number; outcome: string; position: number | null }[] | null
  }>(sql`/* workflows.joins_of */
    select j.id, r.handler, r.version, j.state, j.size, j.arrived, j.failed, j.empty, j.opened_at, j.closed_at,
      j.deadline_at,
      (select jsonb_agg(jsonb_build_object('index', e.index, 'outcome', e.outcome, 'position', e.position) order by e.index)
        from (
          select index, outcome, position
          from ${workflow_join_entries}
          where join_id = j.id
          order by index
          limit ${maxRows}) as e) as entries
    from ${workflow_joins} as j
    join ${workflow_routes} as r on r.id = j.route
    where j.correlation_id = ${correlationId}::text
      and j.state = 'open'
    order by j.opened_at, j.id
    limit 100`)
  return rows.map(row => ({
    id: row.id,
    handler: row.handler,
    version: row.version,
    state: row.state,
    size: row.size,
    arrived: row.arrived,
    failed: row.failed,
    empty: row.empty,
    openedAt: row.opened_at,
    closedAt: row.closed_at ?? undefined,
    deadlineAt: row.deadline_at ?? undefined,
    entries: (row.entries ?? []).map(({ index, outcome, position }) => ({
      index,
      outcome,
      eventPosition: position ?? undefined,
    })),
  }))
}

export async function readUndos(log: Log, correlationId: string): Promise<UndoDescription[]> {
  const rows = await log.database.run<{
    execution: string
    handler: string
    step: string
    state: string
    at: Date
    data: unknown
    result: unknown
    is_cut: boolean
  }>(sql`/* workflows.undos_of */
    select shown.execution, shown.handler, shown.step, shown.state, shown.at,
      case when ${hasRoom} then shown.data end as data, case when ${hasRoom} then shown.result end as result,
      not ${hasRoom} as is_cut
    from (
      select sized.*, sum(sized.bytes) over (order by sized.id rows unbounded preceding) as total
      from (
        select u.*, ${bytesOf('u.data', 'u.result')} as bytes
        from ${workflowNames(log).workflow_undos} as u
        where u.correlation_id = ${correlationId}::text
        order by u.id
        limit ${maxRows}) as sized) as shown
    order by shown.id`)
  return rows.map(({ execution, data, result, is_cut, ...row }) => ({
    ...row,
    executionId: execution,
    data: data ?? undefined,
    result: result ?? undefined,
    ...cut(is_cut),
  }))
}
