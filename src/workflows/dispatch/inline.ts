/**
 * Inline handlers: short code that only uses the database, run by the dispatcher in its transaction, each in a savepoint.
 *
 * One that fails or takes too long, or whose code is not in this process, becomes an execution in the lane of its handler
 * and workflow; while that lane has open work, later events queue behind it. So an inline handler sees the events of a
 * workflow in their order, wherever it runs.
 */

import { isInterruption } from '../../consumers/run/failure.ts'
import { abortable, onAbort } from '../../core/abort.ts'
import type { Awaitable } from '../../core/core.ts'
import { elapsedMs } from '../../core/host.ts'
import type { Transaction } from '../../database/database.ts'
import { lendTransaction } from '../../database/handle.ts'
import { sql } from '../../database/sql.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { attemptResult, type Emit, type Emitted, emit, prepareEmitted, type ReadResult, readResult } from '../emit.ts'
import { ExecutionTimeout, InvalidResult } from '../errors.ts'
import type { Handler } from '../handler.ts'
import type { Route } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { repeatable } from '../steps/context.ts'
import { laneOf } from '../work/lanes.ts'
import type { DispatchParts } from './dispatch.ts'
import { executionId } from './enqueue.ts'
import type { Routing } from './routing.ts'

/** The context of an inline handler: the part of a handler's context that it also has when it is queued. */
export interface InlineContext {
  readonly emit: Emit
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

/** An inline handler that has completed. */
export interface InlineRun {
  readonly executionId: string
  readonly event: RecordedEvent
  readonly route: Route
  readonly emitted: Emitted | undefined
  readonly runningMs: number
}

/** Runs those that can be, in the order of events; `done` has the ids of executions that need not be queued. */
export async function runInline(
  parts: DispatchParts,
  tx: Transaction,
  routings: readonly Routing[],
  signal: AbortSignal,
): Promise<{ runs: InlineRun[]; done: Set<string> }> {
  const runs: InlineRun[] = []
  const done = new Set<string>()
  const wanted = routings.flatMap(routing =>
    routing.routes
      .filter(({ kind }) => kind === 'inline')
      .map(route => ({ routing, route, lane: laneOf(route.handler, routing.event.correlationId) })),
  )
  if (wanted.length === 0) return { runs, done }
  const occupied = await occupiedLanes(
    parts.log,
    tx,
    wanted.map(({ lane }) => lane),
  )
  for (const { routing, route, lane } of wanted) {
    const handler = parts.codeOf(route.handler, route.version)
    const run =
      occupied.has(lane) || handler === undefined || routing.isFaulty || route.isPaused
        ? undefined
        : await tryInline(parts, tx, routing, route, handler, signal)
    if (run === undefined) occupied.add(lane)
    else {
      done.add(executionId(routing.event, route.handler))
      if (run !== 'unwanted') runs.push(run)
    }
  }
  return { runs, done }
}

async function occupiedLanes(log: Log, tx: Transaction, lanes: readonly string[]): Promise<Set<string>> {
  const rows = await tx.run<{ lane: string }>(sql`/* workflows.occupied */
    select lane
    from ${workflowNames(log).workflow_lanes}
    where lane = any(${lanes}::text[])`)
  return new Set(rows.map(row => row.lane))
}

/** Undefined if it failed, and its writes were undone. */
async function tryInline(
  parts: DispatchParts,
  tx: Transaction,
  { event, envelope }: Routing,
  route: Route,
  handler: Handler,
  signal: AbortSignal,
): Promise<InlineRun | 'unwanted' | undefined> {
  const { log } = parts
  const id = executionId(event, route.handler)
  const started = elapsedMs()
  try {
    if (handler.when?.(event) === false) return 'unwanted'
    // The state of an aggregate is read outside of this transaction, by a worker.
    if (handler.transition !== undefined) return undefined
    const run = (): Promise<InlineRun> =>
      tx.savepoint(async () => {
        const result = await within(log, tx, handler, signal, (handle, over) => {
          const ctx: InlineContext = {
            ...repeatable(id, () => event.createdAt),
            emit,
            ...{ executionId: id, correlationId: event.correlationId, handler: handler.name, version: handler.version },
            tx: async (_, run) => run(handle),
            signal: over,
          }
          return runToEnd(handler, event, ctx, handle)
        })
        const emitter = { handler: handler.name, event, batches: envelope.batches, emits: handler.definition.emits }
        const emitted = await prepareEmitted(log, emitter, result, parts.limits)
        return { executionId: id, event, route, emitted, runningMs: elapsedMs() - started }
      })
    const { telemetry, schema } = log
    telemetry.count('attempts_total', 1, handler.name)
    if (!telemetry.isTraced) return await run()
    const { correlationId } = event
    const fields = { handler: handler.name, version: handler.version, executionId: id, attempt: 1, correlationId }
    return await telemetry.span({ name: 'workflows.run', schema, causes: [event], fields }, run)
  } catch (error) {
    if (signal.aborted) throw error
    // If the transaction still works, the handler has caused the interruption itself.
    if (isInterruption(error)) await confirmAlive(tx, error)
    log.telemetry.log.info(
      { schema: log.schema, handler: handler.name, eventId: event.id, error },
      'An inline handler has failed, and is queued.',
    )
    return undefined
  }
}

async function confirmAlive(tx: Transaction, error: unknown): Promise<void> {
  try {
    await tx.run(sql`/* workflows.is_alive */
      select`)
  } catch {
    throw error
  }
}

/** Runs the handler and the writes it returns. Its events are appended later. */
async function runToEnd(
  handler: Handler,
  event: RecordedEvent,
  ctx: InlineContext,
  handle: Transaction,
): Promise<ReadResult['emitted']> {
  const result: unknown = await handler.run(event, ctx as never)
  const read = readResult(result)
  if ('reason' in read) throw new InvalidResult({ handler: handler.name, reason: read.reason })
  // Undoing a workflow is for a worker: as an execution the handler runs again.
  if (read.compensation !== undefined) throw new Error('An inline handler compensates.')
  await read.work?.(handle)
  return read.emitted
}

/** Revokes the transaction of code that has not returned in time, before the savepoint is rolled back. */
async function within<T>(
  log: Log,
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

/** Writes the same lines of activity as executions that were queued, and counts them. */
export async function recordInline(log: Log, tx: Transaction, runs: readonly InlineRun[]): Promise<void> {
  if (runs.length === 0) return
  const kinds = ['dispatched', 'started', 'completed']
  const lines = runs.flatMap(run => kinds.map(kind => ({ run, kind })))
  const [drawn] = await tx.runArrays(sql`/* workflows.draw */
    select ${workflowNames(log).workflow_draw}(p_count => ${lines.length}::integer)::text`)
  await tx.run(sql`/* workflows.record_inline */
    insert into ${workflowNames(log).workflow_activity} (
      position, at, event_position, execution, version, attempt, queued_ms, running_ms, kind, outcome, handler,
      correlation_id, result)
    select u.position, ${log.names.clock}(u.kind), u.event_position, u.execution, u.version,
      case when u.kind = 'dispatched' then 0 else 1 end, case when u.kind <> 'dispatched' then 0 end,
      case when u.kind = 'completed' then u.running_ms end, u.kind, case when u.kind = 'completed' then 'inline' end,
      u.handler, u.correlation_id, case when u.kind = 'completed' then u.result::jsonb end
    from unnest(
      ${drawn![0] as string}::text::bigint[],
      ${lines.map(({ run }) => run.event.position)}::bigint[],
      ${lines.map(({ run }) => run.executionId)}::uuid[],
      ${lines.map(({ run }) => run.route.version)}::integer[],
      ${lines.map(({ run }) => Math.round(run.runningMs))}::integer[],
      ${lines.map(({ kind }) => kind)}::text[],
      ${lines.map(({ run }) => run.route.handler)}::text[],
      ${lines.map(({ run }) => run.event.correlationId)}::text[],
      ${lines.map(({ run }) => JSON.stringify(attemptResult(run.emitted)) ?? null)}::text[])
      as u(position, event_position, execution, version, running_ms, kind, handler, correlation_id, result)`)
  await tx.run(sql`/* workflows.count */
    select ${workflowNames(log).workflow_count}(p_owner => 'dispatcher', p_names => array['dispatched', 'completed'],
      p_by => array[${runs.length}::bigint, ${runs.length}::bigint])`)
}
