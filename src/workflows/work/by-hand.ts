/**
 * A worker without loops: it does everything that can be done now, one round after the other, and returns. For stores
 * whose time a test moves (`testing/advance.ts`), where loops and polls would wait for times that pass at once.
 *
 *     round ─► dispatch ─► duties that are due ─► claim ─► attempts and schedules, until their outcomes are stored
 *       ▲                                                       │
 *       └── anything done ──────────────────────────────────────┴── nothing done ─► when the next duty is due
 *
 * Guarantee: when it returns, no execution that may run now is left, and none of its attempts is running. It works under
 * the row of a runner, as every worker does, so what it claims is safe from others.
 *
 * One execution can also be run alone, while its handler is paused or no runner is active (`runOne`).
 *
 * What can fail: the database, which rejects the call; an attempt, as its policy says. A handler that does not return
 * keeps it waiting until the signal aborts, and its execution is released.
 */
import { newOwner } from '../../consumers/row.ts'
import { runUntilIdle } from '../../consumers/run/run.ts'
import { enter, leave } from '../../consumers/runners/row.ts'
import { abortable } from '../../core/abort.ts'
import { canonicalUuid } from '../../core/id.ts'
import { sql } from '../../database/sql.ts'
import { ExecutionNotReady, HandlerNotFound } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { dispatcherName } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { type Claimed, claim, drawFences, laneAhead, msUntilRate } from './claim.ts'
import { openCompleter } from './complete.ts'
import { type DutyWorker, readDue, runDuties } from './duties.ts'
import { releaseOwn } from './rescue.ts'
import { openWork, type Work } from './work.ts'
import type { WorkerParts } from './worker.ts'

export interface WorkedByHand {
  /** Whether anything was done. */
  readonly hasWorked: boolean
  /** When there is work again: a timer, a retry, a deadline or a schedule; undefined if none is known. */
  readonly nextInMs: number | undefined
}

const leaseMs = 60_000
const concurrency = 16

/** Returns a function that works until nothing can be done now. `init` of a handler runs once. */
export function workerByHand(parts: WorkerParts): (signal: AbortSignal) => Promise<WorkedByHand> {
  const ready = new Set<Handler>()
  return async signal => {
    const handlers = await parts.register(() => true)
    if (handlers.size === 0 && parts.scheduler.all().length === 0) return { hasWorked: false, nextInMs: undefined }
    for (const handler of new Set(handlers.values())) {
      if (!ready.has(handler)) await handler.init?.()
      ready.add(handler)
    }
    return workAs(parts, handlers, newOwner(parts.log), signal)
  }
}

/**
 * Runs one execution that is ready, or that waits for its next attempt, in this process, whether or not its handler is
 * paused. It resolves when the attempt has ended or waits.
 */
export async function runOne(parts: WorkerParts, executionId: string, signal: AbortSignal): Promise<Claimed> {
  const { log } = parts
  const id = canonicalUuid(executionId)
  const [found] = await log.database.run<OneRow>(sql`/* workflows.one_execution */
    select x.route, x.state, r.handler, r.version
    from ${workflowNames(log).workflow_executions} as x
    join ${workflowNames(log).workflow_routes} as r on r.id = x.route
    where x.id = ${id ?? null}::uuid`)
  if (found === undefined) throw new ExecutionNotReady({ executionId, state: 'gone' })
  const handler = parts.codeOf(found.handler, found.version)
  if (handler === undefined) throw new HandlerNotFound({ handler: found.handler })
  await handler.init?.()
  const owner = newOwner(log)
  const routes = [found.route]
  // No heartbeat follows, so the row has to stay alive as long as the attempt may last.
  const aliveMs = leaseMs + handler.timeoutMs
  await enter(log, { id: owner, name: undefined, role: 'active', leaseMs: aliveMs, serves: { routes, concurrency: 1 } })
  const work = openWork(parts, {
    ...{ handlers: new Map([[found.route, handler]]), concurrency: 1, leaseMs: aliveMs, stopping: signal },
    completer: openCompleter(parts, { owner, graceMs: leaseMs, lost: signal }),
    onRoom() {},
    onDue() {},
    onCodeEnded() {},
  })
  try {
    const [claimed] = await claimOne(parts, { owner, route: found.route, id: id!, fence: await drawFences(log)() })
    if (claimed === undefined) throw new ExecutionNotReady({ executionId, state: found.state })
    work.add([claimed])
    await abortable(work.whenStored(), signal)
    return claimed
  } finally {
    await work.stop(AbortSignal.abort())
    await releaseOwn(log, owner)
    await leave(log, owner)
  }
}

interface OneRow {
  readonly route: number
  readonly state: string
  readonly handler: string
  readonly version: number
}

/**
 * The claim that all workers make, with this execution as the first of its route. Until the commit no other process sees that
 * its handler is not paused; and its row is locked, so no other claim waits in between.
 */
function claimOne(
  { log }: WorkerParts,
  { owner, route, id, fence }: { owner: string; route: number; id: string; fence: number },
): Promise<Claimed[]> {
  const { workflow_executions, workflow_routes } = workflowNames(log)
  return log.database.transaction(async tx => {
    const [paused] = await tx.run<{ paused_at: string | null }>(sql`/* workflows.lock_route */
      select paused_at::text as paused_at
      from ${workflow_routes}
      where id = ${route}::integer
      for update`)
    const ready = await tx.run(sql`/* workflows.put_first */
      update ${workflow_executions}
      set state = 'ready',
        run_at = null,
        rank = -9007199254740991
      where id = ${id}::uuid
        and (state = 'ready' or (state = 'delayed' and lane is null))
      returning id`)
    if (ready.length === 0) return []
    await tx.run(sql`/* workflows.unpause_route */
      update ${workflow_routes}
      set paused_at = null
      where id = ${route}::integer`)
    const claimed = await claim(log, { owner, routes: [route], limit: 1, ahead: 0, graceMs: leaseMs, fence }, tx)
    await tx.run(sql`/* workflows.pause_route */
      update ${workflow_routes}
      set paused_at = ${paused!.paused_at}::timestamptz
      where id = ${route}::integer`)
    return claimed
  })
}

async function workAs(
  parts: WorkerParts,
  handlers: ReadonlyMap<number, Handler>,
  owner: string,
  signal: AbortSignal,
): Promise<WorkedByHand> {
  const { log, scheduler } = parts
  const routes = [...handlers.keys()]
  await enter(log, { id: owner, name: undefined, role: 'active', leaseMs, serves: { routes, concurrency } })
  const work = openWork(parts, {
    ...{ handlers, concurrency, leaseMs, stopping: signal },
    completer: openCompleter(parts, { owner, graceMs: leaseMs, lost: signal }),
    onRoom() {},
    onDue() {},
    onCodeEnded() {},
  })
  const worker: DutyWorker = {
    ...{ ...parts, owner, handlers, leaseMs, work, runsSchedule: () => true },
    lookIn() {},
    claimSoon() {},
  }
  const nextFence = drawFences(log)
  let hasWorked = false
  try {
    for (;;) {
      signal.throwIfAborted()
      const { isDone, nextInMs } = await round(worker, work)
      if (!isDone) return { hasWorked, nextInMs }
      hasWorked = true
    }
  } finally {
    const over = AbortSignal.abort()
    await Promise.all([work.stop(over), scheduler.drain(owner, over)])
    await releaseOwn(log, owner)
    await leave(log, owner)
  }

  async function round(
    worker: DutyWorker,
    work: Work,
  ): Promise<{ readonly isDone: boolean; readonly nextInMs: number | undefined }> {
    const dispatcher = parts.consumers.get(dispatcherName)
    const dispatched = dispatcher === undefined ? 0 : await runUntilIdle(parts.consumers, [dispatcher], { signal })
    const duties = await runDuties(worker, await readDue(worker))
    const request = { owner, routes, limit: concurrency, ahead: laneAhead, graceMs: leaseMs }
    const claimed = routes.length === 0 ? [] : await claim(log, { ...request, fence: await nextFence() })
    work.add(claimed)
    await abortable(Promise.all([work.whenStored(), scheduler.drain(owner, signal)]), signal)
    const isDone = dispatched > 0 || duties.count > 0 || duties.nextInMs <= 0 || claimed.length > 0
    const rateInMs = isDone ? undefined : await msUntilRate(log, routes, false)
    const nextInMs = Math.min(duties.nextInMs, rateInMs ?? Number.POSITIVE_INFINITY)
    return { isDone, nextInMs: Number.isFinite(nextInMs) ? nextInMs : undefined }
  }
}
