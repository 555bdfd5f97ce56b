/**
 * Child workflows: an event published into a workflow of its own, once per call, together with the record of the call. Its
 * header names its parent, so that a cancellation reaches it.
 *
 *     ctx.start ─► first event of the child + record of the call, one transaction
 *     child.waitUntilSettled ─► suspended ─► a duty of workers finds the child settled ─► answered, woken
 *
 * A child does not know which executions wait for it, and whether it is settled depends on two rows and the log: so workers
 * look, soon after each execution that ends, at those that may be.
 */
import { consumerNames } from '../../consumers/schema.ts'
import { derivedId } from '../../core/id.ts'
import { checkName } from '../../core/name.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { prepareAppend } from '../../events/append/append.ts'
import type { Append } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { contextOf } from '../../telemetry/span.ts'
import { lockWorkflows, wakeSuspended } from '../dispatch/enqueue.ts'
import { EventGone, HopsExceeded } from '../errors.ts'
import { refusal } from '../handler.ts'
import { envelopeOf, headerOf, workflowStream } from '../publish.ts'
import { dispatcherName } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { readStatuses, type WorkflowStatus } from '../status.ts'
import type { HandlerRun } from './handler-run.ts'
import type { Call, End } from './replay.ts'

export interface StartOptions {
  /** Part of its ids, with the execution. Default: the type, numbered. */
  key?: string | undefined
  /** The workflow to begin. Default: a new one, whose id follows from the execution and the key. */
  correlationId?: string | undefined
}

/** A workflow that was started by another one. */
export interface Child {
  readonly correlationId: string
  /** Waits, without holding a worker, until nothing more happens in it by itself, also if something of it has failed. */
  waitUntilSettled(): Promise<ChildStatus>
}

/** How a child was when it had settled. */
export type ChildStatus = Pick<WorkflowStatus, 'correlationId' | 'state' | 'deadLetters' | 'lastType' | 'reason'>

export async function startChild(
  run: HandlerRun,
  type: string,
  data: unknown,
  { key, correlationId: given }: StartOptions = {},
): Promise<Child> {
  const { execution } = run
  if (given !== undefined) checkName('Correlation id', given)
  if (given === execution.correlationId)
    throw refusal('A child workflow', 'correlationId', 'cannot have the id of its parent. Emit the event instead.')
  const { correlationId } = await run.call<{ correlationId: string }>('start', key ?? type, call =>
    run.work(call, async () => {
      const { append, id } = await firstEvent(run, call, type, data, given)
      const end = startedEnd(run, id)
      await run.record(call, end, tx => run.append(append, tx))
      return end
    }),
  )
  return { correlationId, waitUntilSettled: () => settledChild(run, correlationId) }
}

function settledChild(run: HandlerRun, correlationId: string): Promise<ChildStatus> {
  const settled = run.call<ChildStatus>('child', correlationId, call => run.wait(call, { child: correlationId }))
  settled.catch(() => {})
  return settled
}

function startedEnd({ replay }: HandlerRun, correlationId: string): End {
  const value = { correlationId }
  return { state: 'done', value, result: JSON.stringify(value), at: replay.timeNow() }
}

async function firstEvent(
  { log, limits, execution, handler }: HandlerRun,
  { name }: Call,
  type: string,
  data: unknown,
  given: string | undefined,
): Promise<{ append: Append; id: string }> {
  const { event } = execution
  if (event === undefined) throw new EventGone({ position: execution.position })
  const hops = envelopeOf(event).hops + 1
  if (hops > limits.maxHops) throw new HopsExceeded({ handler: handler.name, hops, maxHops: limits.maxHops })
  const correlationId = given ?? derivedId(event.createdAt, execution.id, 'child', name)
  const first = {
    ...{ type, data, correlationId, causationId: event.id, userId: event.userId },
    id: derivedId(event.createdAt, execution.id, 'start', name),
    headers: {
      ...contextOf(event.headers),
      ...headerOf({ hops, handler: handler.name, parent: execution.correlationId }),
    },
  }
  const streams = [{ stream: workflowStream(correlationId), events: [first] }]
  // An attempt that was lost in the middle of it, or the one before a retry of its dead letter, may have started it.
  const append = await prepareAppend(log, streams, {}, { checkIds: true })
  return { append, id: correlationId }
}

interface ChildWait {
  readonly execution: string
  readonly name: string
  readonly child: string
  readonly correlation_id: string
}

const maxAtOnce = 200

/** The status of these workflows, in this order; undefined for those that are not settled. */
export async function childStatuses(
  log: Log,
  executor: Executor,
  children: readonly string[],
): Promise<(ChildStatus | undefined)[]> {
  if (children.length === 0) return []
  return (await readStatuses(log, children, executor)).map(status => {
    const { correlationId, state, deadLetters, lastType, reason } = status
    return status.isSettled ? { correlationId, state, deadLetters, lastType, reason } : undefined
  })
}

/** Answers the waits whose child has settled; returns how many executions continue. */
export async function answerChildWaits(log: Log): Promise<number> {
  const waits = await log.database.run<ChildWait>(sql`/* workflows.settled_children */
    select w.execution, w.name, w.child, w.correlation_id
    from ${workflowNames(log).workflow_waits} as w
    left join ${workflowNames(log).workflows} as c on c.correlation_id = w.child
    where w.child is not null
      and coalesce(c.open, 0) = 0
      and not exists (
        select
        from ${log.names.events} as e
        where e.correlation_id = w.child
          and e.position > coalesce((
            select d.checkpoint
            from ${consumerNames(log).consumers} as d
            where d.name = ${dispatcherName}::text), 0))
    order by w.correlation_id
    limit ${maxAtOnce}::integer`)
  let woken = 0
  for (const correlationId of new Set(waits.map(wait => wait.correlation_id))) {
    const own = waits.filter(wait => wait.correlation_id === correlationId)
    woken += await log.database.transaction(tx => answerParent(log, tx, correlationId, own))
  }
  return woken
}

/** All waits of one workflow, under its row. */
async function answerParent(
  log: Log,
  tx: Executor,
  correlationId: string,
  waits: readonly ChildWait[],
): Promise<number> {
  await lockWorkflows(log, tx, [correlationId])
  const statuses = await childStatuses(
    log,
    tx,
    waits.map(({ child }) => child),
  )
  const settled = waits.flatMap((wait, at) => (statuses[at] === undefined ? [] : [{ ...wait, status: statuses[at] }]))
  if (settled.length === 0) return 0
  const executions = settled.map(({ execution }) => execution)
  await tx.run(sql`/* workflows.answer_child */
    with answered as (
      select *
      from unnest(
        ${executions}::uuid[],
        ${settled.map(({ name }) => name)}::text[],
        ${settled.map(({ status }) => JSON.stringify(status))}::text[]) as u(execution, name, status)),
    ended as (
      update ${workflowNames(log).workflow_steps} as s
      set state = 'done',
        result = a.status::jsonb
      from answered as a
      where s.execution = a.execution
        and s.kind = 'child'
        and s.name = a.name
        and s.state = 'waiting')
    delete from ${workflowNames(log).workflow_waits} as w
    using answered as a
    where w.execution = a.execution
      and w.kind = 'child'
      and w.name = a.name`)
  return wakeSuspended(log, tx, executions)
}
