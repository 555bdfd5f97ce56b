/**
 * Taking over from workers that are gone. The row of its runner says whether a worker is alive.
 *
 *     [heartbeat] ─► releaseOwn: it stops
 *            └── too old ─► rescueWorker, by any other worker: its executions are ready again
 *
 * Executions that a dead worker ran are released, and that counts as a crash of each; those it only held behind another one
 * of their lane do not count. A worker that was merely slow finds its fences refused.
 */
import { describeError } from '../../consumers/run/failure.ts'
import { lockServing, servesNoMore } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import type { Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { byBytes } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { confirmStopped } from '../cancel/compensate.ts'
import { WorkerCrashed } from '../errors.ts'
import { workflowNames } from '../schema.ts'

/** A worker stops: its counters become part of the total, and its executions are ready again. */
export async function releaseOwn(log: Log, owner: string): Promise<void> {
  await clearWorker(log, owner, 'left')
}

/** Takes over from a dead worker; returns how many executions are ready again. Any worker may do it, the first one does. */
export async function rescueWorker(log: Log, owner: string): Promise<number> {
  return clearWorker(log, owner, 'dead')
}

/** An execution that a worker still has. */
interface LeftExecution {
  readonly id: string
  readonly fence: number
  readonly correlation_id: string
  readonly lane: string | null
  readonly state: string
  readonly worker: string
}

type Reason = 'left' | 'dead'

/**
 * Repeated until nothing is left: a statement that the worker sent before it was lost may still be carried out, and begin
 * the next execution of a lane. The routes of the row are emptied last, so that no worker ever has executions without
 * having routes, and none is claimed for it after that. [claim-7]
 */
async function clearWorker(log: Log, owner: string, reason: Reason): Promise<number> {
  for (let count = 0; ; ) {
    const released = await log.database.transaction(async tx => {
      if (!(await lockServing(log, tx, owner, reason === 'dead' ? 'dead' : 'own'))) return undefined
      const left = await executionsLeft(log, tx, owner)
      if (left.length > 0) return release(log, tx, owner, left, reason)
      await foldCounters(log, tx, owner)
      await servesNoMore(log, tx, owner)
      return undefined
    })
    if (released === undefined) return count
    count += released
  }
}

function executionsLeft(log: Pick<Log, 'schema'>, tx: Transaction, owner: string): Promise<LeftExecution[]> {
  return tx.run<LeftExecution>(sql`/* workflows.left_behind */
    select id, fence, correlation_id, lane, state, worker
    from ${workflowNames(log).workflow_executions}
    where worker = ${owner}::text
      and state in ('running', 'held')`)
}

const counterNames = ['active', 'cancelled', 'completed', 'dispatched', 'events', 'failed', 'workflows'] as const

async function foldCounters(log: Pick<Log, 'schema'>, tx: Transaction, owner: string): Promise<void> {
  const names = workflowNames(log)
  const [gone] = await tx.run<Record<(typeof counterNames)[number], number>>(sql`/* workflows.take_counters */
    delete from ${names.workflow_counters}
    where owner = ${owner}::text
    returning active, cancelled, completed, dispatched, events, failed, workflows`)
  if (gone === undefined) return
  await tx.run(sql`/* workflows.fold_counters */
    select ${names.workflow_count}(
      p_owner => 'total',
      p_names => ${[...counterNames]}::text[],
      p_by => ${counterNames.map(name => gone[name])}::bigint[])`)
}

/**
 * Takes over from all workers, as if each had left: for a copy of a store, whose rows of workers are still those of the
 * original.
 */
export async function releaseWorkers(log: Pick<Log, 'schema'>, tx: Transaction): Promise<void> {
  const names = workflowNames(log)
  const owners = await tx.run<{ owner: string }>(sql`/* workflows.workers_left */
    select id as owner
    from ${consumerNames(log).runners}
    where routes <> '{}'
    union
    select worker
    from ${names.workflow_executions}
    where state in ('running', 'held')
      and worker is not null
    order by 1`)
  for (const { owner } of owners) {
    const left = await executionsLeft(log, tx, owner)
    if (left.length > 0) await release(log, tx, owner, left, 'left')
    await foldCounters(log, tx, owner)
  }
}

/**
 * Releases executions that are stored as this worker's, but that it does not know: the answer to its claim was lost.
 * [claim-8]
 */
export async function releaseForgotten(
  log: Log,
  owner: string,
  forgotten: ReadonlyMap<string, number>,
): Promise<number> {
  return log.database.transaction(async tx => {
    const left = await tx.run<LeftExecution>(sql`/* workflows.forgotten */
      select x.id, x.fence, x.correlation_id, x.lane, x.state, x.worker
      from unnest(${[...forgotten.keys()]}::uuid[], ${[...forgotten.values()]}::bigint[]) as u(id, fence)
      join ${workflowNames(log).workflow_executions} as x on x.id = u.id
      where x.worker = ${owner}::text
        and x.fence = u.fence`)
    return release(log, tx, owner, left, 'left')
  })
}

/**
 * Attempts that have outlasted their time although their worker is alive: it is stuck, or has forgotten them. And attempts
 * that were to stop and whose worker is dead.
 */
export async function rescueExpired(log: Log): Promise<number> {
  const names = workflowNames(log)
  const rows = await log.database.run<LeftExecution>(sql`/* workflows.expired */
    select id, fence, correlation_id, lane, state, worker
    from ${names.workflow_executions} as x
    where x.worker is not null
      and (x.deadline_at < ${log.names.clock}(x.deadline_at)
        or (x.state = 'stopping' and not exists (
          select
          from ${consumerNames(log).runners} as r
          where r.id = x.worker
            and r.routes <> '{}')))
    limit 1000`)
  const stopped = rows.filter(({ state }) => state === 'stopping')
  let count = await confirmStopped(
    log,
    stopped.map(({ id, correlation_id: correlationId }) => ({ id, correlationId })),
  )
  for (const worker of new Set(rows.map(row => row.worker))) {
    const own = rows.filter(row => row.worker === worker)
    count += await log.database.transaction(tx => release(log, tx, worker, own, 'dead'))
  }
  return count
}

/** Makes executions ready again: those that ran by an outcome of their attempt, those that were held without one. */
async function release(
  log: Pick<Log, 'schema'>,
  tx: Transaction,
  owner: string,
  left: readonly LeftExecution[],
  reason: Reason,
): Promise<number> {
  const running = left.filter(({ state }) => state === 'running')
  const lanes = [...new Set(left.flatMap(({ lane }) => lane ?? []))].sort(byBytes)
  const isCrash = reason === 'dead'
  const { name, code } = describeError(new WorkerCrashed({ handler: '', crashes: 1 }))
  const error = { name, code, message: 'The worker that ran it was lost.' }
  const [row] = await tx.runArrays(sql`/* workflows.release */
    select cardinality(accepted)
    from ${workflowNames(log).workflow_complete}(
      p_owner => ${owner}::text,
      p_correlations => ${[...new Set(running.map(each => each.correlation_id))].sort(byBytes)}::text[],
      p_lanes => ${lanes.length === 0 ? null : lanes}::text[],
      p_ids => ${running.map(({ id }) => id)}::uuid[],
      p_fences => ${running.map(({ fence }) => fence)}::bigint[],
      p_kinds => ${running.map(() => (isCrash ? 'crash' : 'release'))}::text[],
      p_recorded => ${running.map(() => (isCrash ? 'failed' : 'released'))}::text[],
      p_outcomes => ${running.map(() => (isCrash ? 'lost' : 'stopped'))}::text[],
      p_delays => ${running.map(() => 0)}::integer[],
      p_running_ms => ${running.map(() => 0)}::integer[],
      p_results => null,
      p_errors => ${isCrash ? JSON.stringify(running.map(() => error)) : null}::jsonb,
      p_next => null,
      p_grace_ms => 0,
      p_clean => false)`)
  return (row as [number | null])[0] ?? 0
}
