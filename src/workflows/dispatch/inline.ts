/**
 * Inline handlers: short code that only uses the database, run by the dispatcher in its transaction, each in a savepoint.
 *
 * One that fails or takes too long, or whose code is not here, becomes an execution of the lane of its handler and
 * workflow; while that lane has open work, later events queue behind it. So an inline handler sees the events of a workflow
 * in their order, whoever runs it.
 */

import { isInterruption } from '../../consumers/run/failure.ts'
import type { Awaitable } from '../../core/core.ts'
import { abortable, onAbort } from '../../core/lifecycle.ts'
import type { Transaction } from '../../database/database.ts'
import { lendTransaction } from '../../database/handle.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { type ReadResult, readResult } from '../emit.ts'
import { type Emitted, prepareEmitted } from '../emitted.ts'
import { ExecutionTimeout, InvalidResult } from '../errors.ts'
import type { Handler } from '../handler.ts'
import type { Route } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { repeatable } from '../steps/repeatable.ts'
import { laneOf } from '../work/lanes.ts'
import { resultOf } from '../work/result.ts'
import type { DispatchParts } from './dispatch.ts'
import { executionId } from './enqueue.ts'
import type { Plan } from './routing.ts'

/** What an inline handler gets besides its event: the part of a handler's context that it also has when it is queued. */
export interface InlineContext {
  readonly executionId: string
  readonly correlationId: string
  readonly handler: string
  readonly version: number
  /** Writes in the dispatcher's transaction; queued, it is a transactional step. */
  tx<T>(name: string, run: (tx: Transaction) => Awaitable<T>): Promise<T>
  readonly signal: AbortSignal
  now(): Date
  uuid(): string
  random(): number
}

/** One that has been run to its end. */
export interface InlineRun {
  readonly executionId: string
  readonly event: RecordedEvent
  readonly route: Route
  readonly emitted: Emitted | undefined
  readonly runningMs: number
}

/** Those that could be run, in the order of events; `done` has the ids of executions that need not be queued. */
export async function runInline(
  parts: DispatchParts,
  tx: Transaction,
  plans: readonly Plan[],
  signal: AbortSignal,
  isAllowed: boolean,
): Promise<{ runs: InlineRun[]; done: Set<string> }> {
  const runs: InlineRun[] = []
  const done = new Set<string>()
  const wanted = plans.flatMap(plan =>
    plan.routes.filter(isInline).map(route => ({ plan, route, lane: laneFor(plan, route) })),
  )
  if (wanted.length === 0 || !isAllowed) return { runs, done }
  const occupied = await occupiedLanes(
    parts.log,
    tx,
    wanted.map(({ lane }) => lane),
  )
  for (const { plan, route, lane } of wanted) {
    const { event } = plan
    const handler = parts.codeOf(route.handler, route.version)
    const run =
      occupied.has(lane) || handler === undefined || plan.isFaulty || route.isPaused
        ? undefined
        : await tryInline(parts, tx, plan, route, handler, signal)
    if (run === undefined) occupied.add(lane)
    else {
      done.add(executionId(event, route.handler))
      if (run !== 'unwanted') runs.push(run)
    }
  }
  return { runs, done }
}

function isInline({ kind }: Route): boolean {
  return kind === 'inline'
}

function laneFor({ event }: Plan, { handler }: Route): string {
  return laneOf(handler, event.correlationId)
}

async function occupiedLanes(log: Log, tx: Transaction, lanes: readonly string[]): Promise<Set<string>> {
  const rows = await tx.run<{ lane: string }>(sql`/* workflows.occupied */
    select lane
    from ${workflowNames(log).workflow_lanes}
    where lane = any(${lanes}::text[])`)
  return new Set(rows.map(row => row.lane))
}

/** Undefined if it failed: nothing of what it did is left. */
async function tryInline(
  parts: DispatchParts,
  tx: Transaction,
  { event, envelope }: Plan,
  route: Route,
  handler: Handler,
  signal: AbortSignal,
): Promise<InlineRun | 'unwanted' | undefined> {
  const { log } = parts
  const id = executionId(event, route.handler)
  const started = performance.now()
  try {
    if (handler.when?.(event) === false) return 'unwanted'
    // The state of an aggregate is read outside of this transaction: that is for workers.
    if (handler.transition !== undefined) return undefined
    const run = (): Promise<InlineRun> =>
      tx.savepoint(async () => {
        const result = await within(parts, tx, handler, signal, (handle, over) => {
          const ctx: InlineContext = {
            ...repeatable(id, () => event.createdAt),
            ...{ executionId: id, correlationId: event.correlationId, handler: handler.name, version: handler.version },
            tx: async (_, run) => run(handle),
            signal: over,
          }
          return runWhole(handler, event, ctx, handle)
        })
        const emitter = { handler: handler.name, event, batches: envelope.batches, emits: handler.definition.emits }
        const emitted = await prepareEmitted(log, emitter, result, parts.limits)
        return { executionId: id, event, route, emitted, runningMs: performance.now() - started }
      })
    const { telemetry, schema } = log
    telemetry.count('attempts_total', 1, handler.name)
    if (!telemetry.isTraced) return await run()
    const { correlationId } = event
    const fields = { handler: handler.name, version: handler.version, executionId: id, attempt: 1, correlationId }
    return await telemetry.span({ name: 'workflows.run', schema, causes: [event], fields }, run)
  } catch (error) {
    if (signal.aborted) throw error
    // Of its own making, if the transaction is there as before.
    if (isInterruption(error)) await stillThere(tx, error)
    log.telemetry.log.info(
      { schema: log.schema, handler: handler.name, eventId: event.id, error },
      'an inline handler is queued',
    )
    return undefined
  }
}

async function stillThere(tx: Transaction, error: unknown): Promise<void> {
  try {
    await tx.run(sql`/* workflows.still_there */
      select`)
  } catch {
    throw error
  }
}

/** The handler, and the writes it returns; what it emits comes later. */
async function runWhole(
  handler: Handler,
  event: RecordedEvent,
  ctx: InlineContext,
  handle: Transaction,
): Promise<ReadResult['emitted']> {
  const result: unknown = await handler.run(event, ctx as never)
  const read = readResult(result)
  if ('reason' in read) throw new InvalidResult({ handler: handler.name, reason: read.reason })
  await read.work?.(handle)
  return read.emitted
}

/** The transaction is taken away from code that has not come back in time, before the savepoint is rolled back. */
async function within<T>(
  { log }: DispatchParts,
  tx: Transaction,
  handler: Handler,
  signal: AbortSignal,
  work: (handle: Transaction, over: AbortSignal) => Promise<T>,
): Promise<T> {
  const { name, inlineMs } = handler
  const controller = new AbortController()
  const { handle, shut } = lendTransaction(tx)
  const timer = log.clock.setTimeout(
    () => controller.abort(new ExecutionTimeout({ handler: name, timeoutMs: inlineMs })),
    inlineMs,
  )
  const release = onAbort(signal, () => controller.abort(signal.reason))
  try {
    return await abortable(work(handle, controller.signal), controller.signal)
  } finally {
    shut()
    timer.cancel()
    release()
  }
}

/** They leave the same traces as executions that were queued. */
export async function tellInline(log: Log, tx: Transaction, runs: readonly InlineRun[]): Promise<void> {
  if (runs.length === 0) return
  const kinds = ['dispatched', 'started', 'completed']
  const lines = runs.flatMap(run => kinds.map(kind => ({ run, kind })))
  await tx.run(sql`/* workflows.announce */
    select ${workflowNames(log).workflow_announce}()`)
  await tx.run(sql`/* workflows.tell_inline */
    insert into ${workflowNames(log).workflow_activity} (
      position, at, event_position, execution, version, attempt, queued_ms, running_ms, kind, outcome, handler,
      correlation_id, result)
    select nextval(${workflowNames(log).workflow_activity_position.quoted}::regclass), ${log.names.clock}(u.kind), u.event_position, u.execution, u.version,
      case when u.kind = 'dispatched' then 0 else 1 end, case when u.kind <> 'dispatched' then 0 end,
      case when u.kind = 'completed' then u.running_ms end, u.kind, case when u.kind = 'completed' then 'inline' end,
      u.handler, u.correlation_id, case when u.kind = 'completed' then u.result::jsonb end
    from unnest(
      ${lines.map(({ run }) => run.event.position)}::bigint[],
      ${lines.map(({ run }) => run.executionId)}::uuid[],
      ${lines.map(({ run }) => run.route.version)}::integer[],
      ${lines.map(({ run }) => Math.round(run.runningMs))}::integer[],
      ${lines.map(({ kind }) => kind)}::text[],
      ${lines.map(({ run }) => run.route.handler)}::text[],
      ${lines.map(({ run }) => run.event.correlationId)}::text[],
      ${lines.map(({ run }) => JSON.stringify(resultOf(run.emitted)) ?? null)}::text[])
      as u(event_position, execution, version, running_ms, kind, handler, correlation_id, result)`)
  await tx.run(sql`/* workflows.count */
    select ${workflowNames(log).workflow_count}(p_owner => 'dispatcher', p_names => array['dispatched', 'completed'],
      p_by => array[${runs.length}::bigint, ${runs.length}::bigint])`)
}
