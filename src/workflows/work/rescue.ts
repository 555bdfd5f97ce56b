/**
 * Taking over from workers that are gone: what they ran is given back and counted, what they only held is not counted. A
 * worker that was merely stopped for long finds its fences refused, and enters anew.
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
  await log.database.run(sql`/* workflows.enter */
    insert into ${workflowNames(log).workflow_workers} (owner, node, lease_ms, concurrency, routes, heartbeat_at, started_at)
    select ${owner}::text, ${node ?? null}::text, ${leaseMs}::integer, ${concurrency}::integer, ${routes}::integer[],
      moment.at, moment.at
    from ${moment(log.names.clock)}
    on conflict (owner) do update
    set heartbeat_at = excluded.heartbeat_at,
      routes = excluded.routes`)
}

/** Its row goes, its counters become part of the total, and what it still had is free. */
export async function leaveWorker(log: Log, owner: string): Promise<void> {
  await bury(log, owner, true)
}

/** Returns how many executions are free again. Whoever comes first does it. */
export async function rescueWorker(log: Log, owner: string): Promise<number> {
  return bury(log, owner, false)
}

/** What is stored as this worker's own although it has not heard of it: the answer to its claim was lost. */
export async function releaseForgotten(log: Log, owner: string, ids: readonly string[]): Promise<number> {
  return log.database.transaction(async tx => {
    const left = await tx.run<Left>(sql`/* workflows.forgotten */
      select id, fence, correlation_id, lane, state, worker
      from ${workflowNames(log).workflow_executions}
      where worker = ${owner}::text
        and id = any(${ids}::uuid[])`)
    return giveBack(log, tx, owner, left, true)
  })
}

/**
 * Attempts that outlast their time although their worker is alive: it is stuck, or has forgotten them. Of those that were
 * told to stop, also the ones whose worker is gone.
 */
export async function rescueExpired(log: Log): Promise<number> {
  const rows = await log.database.run<Left>(sql`/* workflows.expired */
    select id, fence, correlation_id, lane, state, worker
    from ${workflowNames(log).workflow_executions} as x
    where x.worker is not null
      and (x.deadline_at < ${log.names.clock}(x.deadline_at)
        or (x.state = 'stopping' and not exists (
          select
          from ${workflowNames(log).workflow_workers} as w
          where w.owner = x.worker)))
    limit 1000`)
  const stopped = rows.filter(({ state }) => state === 'stopping')
  let count = await confirmStopped(
    log,
    stopped.map(({ id, correlation_id: correlationId }) => ({ id, correlationId })),
  )
  for (const worker of new Set(rows.map(row => row.worker)))
    count += await log.database.transaction(tx =>
      giveBack(
        log,
        tx,
        worker,
        rows.filter(row => row.worker === worker),
        false,
      ),
    )
  return count
}

interface Left {
  readonly id: string
  readonly fence: number
  readonly correlation_id: string
  readonly lane: string | null
  readonly state: string
  readonly worker: string
}

/**
 * Again and again until nothing is left: what the worker had sent before it was lost may still be carried out, and begin
 * the next one of a lane. Its row goes last, so that nobody ever has work without having a row.
 */
async function bury(log: Log, owner: string, isOrderly: boolean): Promise<number> {
  for (let count = 0; ; ) {
    const freed = await log.database.transaction(async tx => {
      if (!(await lockWorker(log, tx, owner, isOrderly))) return undefined
      const left = await leftBehind(log, tx, owner)
      if (left.length > 0) return giveBack(log, tx, owner, left, isOrderly)
      await remove(log, tx, owner)
      return undefined
    })
    if (freed === undefined) return count
    count += freed
  }
}

/** Whether it is there, and, if it is not its own, dead. */
async function lockWorker(log: Log, tx: Transaction, owner: string, isOwn: boolean): Promise<boolean> {
  const sign = log.database.soleUser ?? null
  const rows = isOwn
    ? await tx.run(sql`/* workflows.own_worker */
        select owner
        from ${workflowNames(log).workflow_workers}
        where owner = ${owner}::text
        for update`)
    : await tx.run(sql`/* workflows.dead_worker */
        select owner
        from ${workflowNames(log).workflow_workers}
        where owner = ${owner}::text
          and (heartbeat_at < ${log.names.clock}(heartbeat_at) - make_interval(secs => lease_ms / 1000.0)
            or (${sign}::text is not null and split_part(owner, '/', 1) <> ${sign}::text))
        for update skip locked`)
  return rows.length > 0
}

/**
 * Takes over from all workers there are, as if each had left in good order: for a copy of a store, whose workers are still
 * those of the original.
 */
export async function releaseWorkers(log: Pick<Log, 'schema'>, tx: Transaction): Promise<void> {
  const owners = await tx.run<{ owner: string }>(sql`/* workflows.workers_left */
    select owner
    from ${workflowNames(log).workflow_workers}
    union
    select worker
    from ${workflowNames(log).workflow_executions}
    where state in ('running', 'held')
      and worker is not null
    order by 1`)
  for (const { owner } of owners) {
    const left = await leftBehind(log, tx, owner)
    if (left.length > 0) await giveBack(log, tx, owner, left, true)
    await remove(log, tx, owner)
  }
}

function leftBehind(log: Pick<Log, 'schema'>, tx: Transaction, owner: string): Promise<Left[]> {
  return tx.run<Left>(sql`/* workflows.left_behind */
    select id, fence, correlation_id, lane, state, worker
    from ${workflowNames(log).workflow_executions}
    where worker = ${owner}::text
      and state in ('running', 'held')`)
}

async function remove(log: Pick<Log, 'schema'>, tx: Transaction, owner: string): Promise<void> {
  await tx.run(sql`/* workflows.fold_counters */
    with gone as (
      delete from ${workflowNames(log).workflow_counters}
      where owner = ${owner}::text
      returning name, value)
    select ${workflowNames(log).workflow_count}(p_owner => 'total', p_names => array_agg(name), p_by => array_agg(value))
    from gone`)
  await tx.run(sql`/* workflows.leave */
    delete from ${workflowNames(log).workflow_workers}
    where owner = ${owner}::text`)
}

async function giveBack(
  log: Pick<Log, 'schema'>,
  tx: Transaction,
  owner: string,
  left: readonly Left[],
  isOrderly: boolean,
): Promise<number> {
  const running = left.filter(({ state }) => state === 'running')
  const lanes = [...new Set(left.flatMap(({ lane }) => lane ?? []))].sort(byBytes)
  const { name, code } = describeError(new WorkerCrashed({ handler: '', crashes: 1 }))
  const lost = { name, code, message: 'its worker was lost' }
  const told = isOrderly ? 'released' : 'failed'
  const [row] = await tx.runArrays(sql`/* workflows.give_back */
    select cardinality(accepted)
    from ${workflowNames(log).workflow_complete}(
      p_owner => ${owner}::text,
      p_correlations => ${[...new Set(running.map(each => each.correlation_id))].sort(byBytes)}::text[],
      p_lanes => ${lanes.length === 0 ? null : lanes}::text[],
      p_ids => ${running.map(({ id }) => id)}::uuid[],
      p_fences => ${running.map(({ fence }) => fence)}::bigint[],
      p_kinds => ${running.map(() => (isOrderly ? 'release' : 'crash'))}::text[],
      p_recorded => ${running.map(() => told)}::text[],
      p_outcomes => ${running.map(() => (isOrderly ? 'stopped' : 'lost'))}::text[],
      p_delays => ${running.map(() => 0)}::integer[],
      p_running_ms => ${running.map(() => 0)}::integer[],
      p_results => ${null}::jsonb,
      p_errors => ${isOrderly ? null : JSON.stringify(running.map(() => lost))}::jsonb,
      p_next => ${null}::uuid[],
      p_grace_ms => ${0}::integer,
      p_clean => ${false}::boolean)`)
  return (row as [number | null])[0] ?? 0
}
