/**
 * The causal tree of a workflow: events, the handlers that ran because of them, and the events these emitted. Read on one
 * snapshot, built in one pass.
 *
 *     OrderPlaced ─► pay (completed) ─► OrderPaid ─► ship (running)
 *
 * An event whose cause is not part of the workflow is a root, and so is one that names a later event, or itself, as its
 * cause: no event is skipped because of its causation id.
 */

import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import { maxPageBytes } from '../../core/page.ts'
import type { Transaction } from '../../database/database.ts'
import { numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { mermaidLabel } from '../../telemetry/mermaid.ts'
import { checkCount } from '../handler.ts'
import type { BatchPlace } from '../publish.ts'
import { workflowNames } from '../schema.ts'
import type { ActivityKind } from './activity.ts'
import type { ExecutionState } from './executions.ts'
import { type RecordedStep, readSteps } from './open-work.ts'

export interface WorkflowTree {
  readonly correlationId: string
  readonly roots: readonly TreeNode[]
  readonly events: number
  readonly executions: number
  /** False if there are more events than were asked for; the last ones are missing then. */
  readonly isWhole: boolean
}

export type TreeNode = EventNode | HandlerNode

export interface EventNode {
  readonly kind: 'event'
  readonly id: string
  readonly type: string
  /** Its place in the log. */
  readonly position: number
  readonly at: Date
  /** Its place in a batch, the innermost if there are several; undefined if it is in none. */
  readonly batch: BatchPlace | undefined
  /** As it is stored; only if `data` was asked for, and not if `isCut`. */
  readonly data: unknown
  /** Its data is left out, because that of the events before it is large. */
  readonly isCut?: true | undefined
  readonly handlers: readonly HandlerNode[]
  /** Events that name it as their cause and were not emitted by a handler that is known. */
  readonly events: readonly EventNode[]
}

/** One execution. A root only if its event is no longer in the log. */
export interface HandlerNode {
  readonly kind: 'handler'
  readonly executionId: string
  readonly handler: string
  readonly version: number
  /** The state it is in while it is open, or how it ended: `failed` is for good. */
  readonly state: ExecutionState | EndState
  /** Whether a dead letter of it is open. */
  readonly isDead: boolean
  readonly attempts: number
  readonly queuedMs: number | undefined
  readonly runningMs: number | undefined
  /** Its recorded steps, as long as it is open or has an open dead letter. */
  readonly steps: readonly RecordedStep[]
  /** The events that it emitted, as its activity has them. */
  readonly result: unknown
  /** Why its last attempt failed. */
  readonly error: ErrorDescription | undefined
  readonly events: readonly EventNode[]
}

export type EndState = 'completed' | 'skipped' | 'failed' | 'cancelled'

export interface TreeOptions {
  /** The most events. Default 10 000, at most 100 000. */
  limit?: number | undefined
  /** Whether events come with their data: the first ones, up to 8 MiB. Default false. */
  data?: boolean | undefined
}

export async function readTree(log: Log, correlationId: string, options: TreeOptions = {}): Promise<WorkflowTree> {
  refuseUnknownOptions('tree', options, ['limit', 'data'])
  const { limit = 10_000, data: withData = false } = options
  checkCount('A tree', 'limit', limit, 1, 100_000)
  return log.database.transaction(
    async tx => {
      const read = await readEvents(log, tx, correlationId, limit + 1, withData)
      const events = read.slice(0, limit)
      const isWhole = read.length <= limit
      const upTo = isWhole ? null : events.at(-1)!.position
      const executions = await readExecutions(log, tx, correlationId, upTo)
      const steps = await readSteps(log, correlationId, tx)
      const roots = buildTree(events, executions, steps)
      return { correlationId, roots, events: events.length, executions: executions.length, isWhole }
    },
    { isolation: 'repeatable read' },
  )
}

interface EventRow {
  position: number
  event_id: string
  type: string
  created_at: Date
  causation_id: string | null
  handler: string | null
  batch: BatchPlace | null
  data: unknown
  is_cut: boolean
}

function readEvents(
  log: Log,
  tx: Transaction,
  correlationId: string,
  limit: number,
  withData: boolean,
): Promise<EventRow[]> {
  return tx.run<EventRow>(sql`/* workflows.tree_events */
    select position, event_id, type, created_at, causation_id, headers->'workflow'->>'handler' as handler,
      headers->'workflow'->'batches'->-1 as batch,
      case when ${withData}::boolean and total - bytes < ${numeral(maxPageBytes)} then data end as data,
      ${withData}::boolean and total - bytes >= ${numeral(maxPageBytes)} as is_cut
    from (
      select e.*, sum(e.bytes) over (order by e.position rows unbounded preceding) as total
      from ${log.names.events} as e
      where e.correlation_id = ${correlationId}::text
      order by e.position
      limit ${limit}::integer) as shown
    order by position`)
}

interface ExecutionRow {
  execution: string
  event_position: number
  handler: string
  version: number
  /** Of its last line. */
  kind: ActivityKind | null
  state: ExecutionState | null
  dead: boolean
  attempts: number | null
  queued_ms: number | null
  running_ms: number | null
  result: unknown
  error: ErrorDescription | null
}

/** Those that have a line of activity, and those that are open; the last line says how it ended only if it is not open. */
function readExecutions(
  log: Log,
  tx: Transaction,
  correlationId: string,
  upTo: number | null,
): Promise<ExecutionRow[]> {
  const { workflow_activity, workflow_executions, workflow_routes, dead_letters } = {
    ...workflowNames(log),
    ...consumerNames(log),
  }
  return tx.run<ExecutionRow>(sql`/* workflows.tree_executions */
    with lines as (
      select distinct on (a.execution)
        a.execution, a.event_position, a.handler, a.version, a.kind, a.queued_ms, a.running_ms, a.result, a.error,
        count(*) filter (where a.kind = 'started') over (partition by a.execution) as attempts
      from ${workflow_activity} as a
      where a.correlation_id = ${correlationId}::text
      order by a.execution, a.position desc),
    open as (
      select x.id, x.position, x.state, r.handler, r.version
      from ${workflow_executions} as x
      join ${workflow_routes} as r on r.id = x.route
      where x.correlation_id = ${correlationId}::text)
    select
      coalesce(t.execution, o.id) as execution,
      coalesce(t.event_position, o.position) as event_position,
      coalesce(t.handler, o.handler) as handler,
      coalesce(o.version, t.version) as version,
      t.kind, t.attempts, t.queued_ms, t.running_ms, t.result, t.error, o.state,
      exists (
        select
        from ${dead_letters} as d
        where d.correlation_id = ${correlationId}::text
          and d.state in ('open', 'retrying')
          and d.execution = coalesce(t.execution, o.id)) as dead
    from lines as t
    full join open as o on o.id = t.execution
    where ${upTo}::bigint is null
      or coalesce(t.event_position, o.position) <= ${upTo}::bigint
    order by 2, 1`)
}

type Growing<N extends TreeNode> = { -readonly [K in keyof N]: N[K] extends readonly (infer E)[] ? E[] : N[K] }

/** Each event and each execution is looked at once. */
function buildTree(
  events: readonly EventRow[],
  executions: readonly ExecutionRow[],
  steps: readonly RecordedStep[],
): TreeNode[] {
  const stepsOf = new Map<string, RecordedStep[]>()
  for (const step of steps) stepsOf.set(step.executionId, [...(stepsOf.get(step.executionId) ?? []), step])
  const roots: TreeNode[] = []
  const byPosition = new Map<number, Growing<EventNode>>()
  const byId = new Map<string, Growing<EventNode>>()
  const emitters = new Map<string, Growing<HandlerNode>>()
  for (const row of events) {
    const node = eventNode(row)
    byPosition.set(row.position, node)
    byId.set(row.event_id, node)
  }
  for (const row of executions) {
    const node = handlerNode(row, stepsOf.get(row.execution) ?? [])
    const event = byPosition.get(row.event_position)
    if (event === undefined) roots.push(node)
    else event.handlers.push(node)
    if (event !== undefined) emitters.set(`${event.id} ${row.handler}`, node)
  }
  for (const row of events) {
    const node = byPosition.get(row.position)!
    const cause = byId.get(row.causation_id ?? '')
    if (cause === undefined || cause.position >= row.position) roots.push(node)
    else (emitters.get(`${cause.id} ${row.handler}`) ?? cause).events.push(node)
  }
  return roots
}

function eventNode({
  event_id: id,
  type,
  position,
  created_at: at,
  batch,
  data,
  is_cut,
}: EventRow): Growing<EventNode> {
  return {
    ...{ kind: 'event', id, type, position, at, batch: batch ?? undefined, data: data ?? undefined },
    ...(is_cut ? { isCut: true } : {}),
    ...{ handlers: [], events: [] },
  }
}

function handlerNode(row: ExecutionRow, steps: RecordedStep[]): Growing<HandlerNode> {
  return {
    kind: 'handler',
    executionId: row.execution,
    handler: row.handler,
    version: row.version,
    state: row.state ?? endOf(row.kind),
    isDead: row.dead,
    attempts: Number(row.attempts ?? 0),
    queuedMs: row.queued_ms ?? undefined,
    runningMs: row.running_ms ?? undefined,
    steps,
    result: row.result ?? undefined,
    error: row.error ?? undefined,
    events: [],
  }
}

/** An execution without a last line was removed. */
function endOf(kind: ActivityKind | null): EndState {
  return kind === 'completed' || kind === 'skipped' || kind === 'failed' ? kind : 'cancelled'
}

/** A tree as a flowchart of Mermaid: events as boxes, executions as rounded ones, coloured by their state. */
export function mermaidOf({ roots, isWhole }: Pick<WorkflowTree, 'roots' | 'isWhole'>): string {
  const lines = ['flowchart TD']
  let drawn = 0
  // With a list and not by recursion: a chain of events may be longer than the stack is deep.
  const left: { node: TreeNode; from: string | undefined }[] = roots.map(node => ({ node, from: undefined })).reverse()
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { node, from } = next
    const name = `n${++drawn}`
    lines.push(`  ${name}${boxOf(node)}`)
    if (from !== undefined) lines.push(`  ${from} --> ${name}`)
    const children: readonly TreeNode[] = node.kind === 'event' ? [...node.handlers, ...node.events] : node.events
    for (const child of [...children].reverse()) left.push({ node: child, from: name })
  }
  if (!isWhole) lines.push('  more["…"]')
  return `${[...lines, ...classes].join('\n')}\n`
}

function boxOf(node: TreeNode): string {
  if (node.kind === 'event') return `["${mermaidLabel(node.type)}"]:::event`
  const { handler, state, attempts } = node
  const tries = attempts > 1 ? ` (${attempts} attempts)` : ''
  return `(["${mermaidLabel(`${handler}: ${state}${tries}`)}"]):::${classOf(node)}`
}

function classOf({ state, isDead }: HandlerNode): string {
  if (isDead || state === 'failed') return 'dead'
  if (state === 'completed') return 'done'
  return state === 'skipped' || state === 'cancelled' ? 'left' : 'open'
}

const classes = [
  '  classDef event fill:#eef,stroke:#446',
  '  classDef done fill:#efe,stroke:#464',
  '  classDef open fill:#ffd,stroke:#774',
  '  classDef dead fill:#fdd,stroke:#844',
  '  classDef left fill:#eee,stroke:#888',
]
