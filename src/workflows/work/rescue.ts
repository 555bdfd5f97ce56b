/**
 * The rows of workers, and taking over from workers that are gone.
 *
 *     enterWorker ─► [heartbeat with every look] ─► removeWorker: leaves
 *                                   └── too old ─► rescueWorker, by any other worker: its executions are ready again
 *
 * Executions that a dead worker ran are released, and that counts as a crash of each; those it only held behind another one
 * of their lane do not count. A worker that was merely slow finds its fences refused, and enters again.
 */
import { describeError } from '../../consumers/run/failure.ts'
import type { Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { byBytes } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
import { confirmStopped } from '../cancel/compensate.ts'
import { WorkerCrashed } from '../errors.ts'
import { workflowNames } from '../schema.ts'

export interface WorkerRow {
  readonly owner: string
  readonly node: string | undefined
  readonly leaseMs: number
  readonly concurrency: number
  readonly routes: readonly number[]
}

export async function enterWorker(log: Log, { owner, node, leaseMs, concurrency, routes }: WorkerRow): Promise<void> {
  const { workflow_workers } = workflowNames(log)
  await log.database.run(sql`/* workflows.enter */
    insert into ${workflow_workers} (owner, node, lease_ms, concurrency, routes, heartbeat_at, started_at)
    select ${owner}::text, ${node ?? null}::text, ${leaseMs}::integer, ${concurrency}::integer, ${routes}::integer[],
      moment.at, moment.at
    from ${moment(log.names.clock)}
    on conflict (owner) do update
    set heartbeat_at = excluded.heartbeat_at,
      routes = excluded.routes`)
}

/** A worker leaves: its row is deleted, its counters become part of the total, and what it still has is ready again. */
export async function removeWorker(log: Log, owner: string): Promise<void> {
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
 * the next execution of a lane. The row is deleted last, so that no worker ever has executions without having a row.
 */
async function clearWorker(log: Log, owner: string, reason: Reason): Promise<number> {
  for (let count = 0; ; ) {
    const released = await log.database.transaction(async tx => {
      if (!(await lockWorker(log, tx, owner, reason))) return undefined
      const left = await executionsLeft(log, tx, owner)
      if (left.length > 0) return release(log, tx, owner, left, reason)
      await deleteWorker(log, tx, owner)
      return undefined
    })
    if (released === undefined) return count
    count += released
  }
}

/** Whether its row is there, and, if it is said to be dead, its heartbeat too old. */
async function lockWorker(log: Log, tx: Transaction, owner: string, reason: Reason): Promise<boolean> {
  const { workflow_workers } = workflowNames(log)
  const opening = log.database.soleUser ?? null
  const rows =
    reason === 'left'
      ? await tx.run(sql`/* workflows.own_worker */
          select owner
          from ${workflow_workers}
          where owner = ${owner}::text
          for update`)
      : await tx.run(sql`/* workflows.dead_worker */
          select owner
          from ${workflow_workers}
          where owner = ${owner}::text
            and (heartbeat_at < ${log.names.clock}(heartbeat_at) - make_interval(secs => lease_ms / 1000.0)
              or split_part(owner, '/', 1) <> ${opening}::text)
          for update skip locked`)
  return rows.length > 0
}

function executionsLeft(log: Pick<Log, 'schema'>, tx: Transaction, owner: string): Promise<LeftExecution[]> {
  return tx.run<LeftExecution>(sql`/* workflows.left_behind */
    select id, fence, correlation_id, lane, state, worker
    from ${workflowNames(log).workflow_executions}
    where worker = ${owner}::text
      and state in ('running', 'held')`)
}

async function deleteWorker(log: Pick<Log, 'schema'>, tx: Transaction, owner: string): Promise<void> {
  const names = workflowNames(log)
  await tx.run(sql`/* workflows.fold_counters */
    with gone as (
      delete from ${names.workflow_counters}
      where owner = ${owner}::text
      returning name, value)
    select ${names.workflow_count}(p_owner => 'total', p_names => array_agg(name), p_by => array_agg(value))
    from gone`)
  await tx.run(sql`/* workflows.leave */
    delete from ${names.workflow_workers}
    where owner = ${owner}::text`)
}

/**
 * Takes over from all workers, as if each had left: for a copy of a store, whose rows of workers are still those of the
 * original.
 */
export async function releaseWorkers(log: Pick<Log, 'schema'>, tx: Transaction): Promise<void> {
  const names = workflowNames(log)
  const owners = await tx.run<{ owner: string }>(sql`/* workflows.workers_left */
    select owner
    from ${names.workflow_workers}
    union
    select worker
    from ${names.workflow_executions}
    where state in ('running', 'held')
      and worker is not null
    order by 1`)
  for (const { owner } of owners) {
    const left = await executionsLeft(log, tx, owner)
    if (left.length > 0) await release(log, tx, owner, left, 'left')
    await deleteWorker(log, tx, owner)
  }
}

/** Releases executions that are stored as this worker's, but that it does not know: the answer to its claim was lost. */
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
          from ${names.workflow_workers} as w
          where w.owner = x.worker)))
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
  const [row] = await tx.runArrays(sql`/* workflows.give_back */
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
