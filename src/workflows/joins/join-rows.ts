/** The rows of joins: read, opened, stored and expired, by one statement each, however many there are. */
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { enqueue, lockWorkflows, type NewExecution } from '../dispatch/enqueue.ts'
import type { JoinRoute } from '../handler.ts'
import type { BatchPlace } from '../publish.ts'
import type { Route } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import type { EntryOutcome, Join, JoinState } from './arrive.ts'
import type { BranchChanges, Cause } from './branches.ts'

/** A join that has to exist; the event at this position opens it if it does not. */
export interface WantedJoin extends Cause {
  readonly id: string
  readonly route: Route
  readonly batch: Omit<BatchPlace, 'index'>
  readonly outer: readonly BatchPlace[]
}

export interface OpenedJoin extends WantedJoin {
  readonly join: Join
}

/** By id: the joins of batches at which events arrive or of which a branch may end, with their entries for those indexes. */
export async function readJoins(
  log: Log,
  tx: Executor,
  wanted: ReadonlyMap<string, WantedJoin>,
  changes: BranchChanges,
  arriving: readonly number[],
): Promise<Map<string, Join>> {
  const ending = [...changes.values()].filter(({ change }) => change < 0)
  if (wanted.size === 0 && ending.length === 0) return new Map()
  const batches = new Set([...[...wanted.values()].map(({ batch }) => batch.id), ...ending.map(each => each.batchId)])
  const correlations = new Set([...wanted.values(), ...ending].map(each => each.correlationId))
  const indexes = new Set([...ending.map(each => each.index), ...arriving])
  const rows = await tx.runArrays(sql`/* workflows.joins */
    select j.id, j.batch_id, j.correlation_id, j.route, r.handler, r.definition->'join', j.size, j.arrived, j.failed,
      j.empty, j.state, (
        select jsonb_agg(jsonb_build_array(e.index, e.outcome))
        from ${workflowNames(log).workflow_join_entries} as e
        where e.join_id = j.id
          and e.index = any(${[...indexes]}::integer[]))
    from ${workflowNames(log).workflow_joins} as j
    join ${workflowNames(log).workflow_routes} as r on r.id = j.route
    where j.batch_id = any(${[...batches]}::uuid[])
      and j.correlation_id = any(${[...correlations]}::text[])
    order by j.id`)
  return new Map(rows.map(row => [row[0] as string, joinOf(row)]))
}

function joinOf(row: unknown[]): Join {
  const [id, batchId, correlationId, route, handler, definition, size, arrived, failed, empty, state, entries] =
    row as [
      ...[string, string, string, number, string, JoinRoute],
      ...[number, number, number, number, JoinState, [number, EntryOutcome][] | null],
    ]
  return {
    ...{ id, batchId, correlationId, route, handler, definition, size, arrived, failed, empty, state },
    entries: new Map(entries ?? []),
    ...{ written: new Map(), closedBy: undefined, hasChanged: false },
  }
}

/** Opens those that do not exist; each counts as open work of its workflow. */
export async function openJoins(
  log: Log,
  tx: Executor,
  owner: string,
  wanted: readonly WantedJoin[],
): Promise<OpenedJoin[]> {
  if (wanted.length === 0) return []
  const rows = await tx.runArrays(sql`/* workflows.open_joins */
    with made as (
      insert into ${workflowNames(log).workflow_joins}
        (id, batch_id, correlation_id, route, size, position, outer_batches, deadline_at, opened_at)
      select u.id, u.batch_id, u.correlation_id, u.route, u.size, u.position, u.outer_batches::jsonb,
        ${log.names.later}(${log.names.clock}(u.position), u.timeout_ms), ${log.names.clock}(u.position)
      from unnest(
        ${wanted.map(each => each.id)}::uuid[],
        ${wanted.map(each => each.batch.id)}::uuid[],
        ${wanted.map(each => each.correlationId)}::text[],
        ${wanted.map(each => each.route.id)}::integer[],
        ${wanted.map(each => each.batch.size)}::integer[],
        ${wanted.map(each => each.position)}::bigint[],
        ${wanted.map(each => JSON.stringify(each.outer))}::text[],
        ${wanted.map(each => each.route.definition.join?.timeoutMs ?? null)}::bigint[])
        as u(id, batch_id, correlation_id, route, size, position, outer_batches, timeout_ms)
      join ${workflowNames(log).workflows} as w on w.correlation_id = u.correlation_id
      -- A workflow that is being undone opens no joins.
      where w.state = 'active'
      on conflict (id) do nothing
      returning id, correlation_id),
    counted as (
      select correlation_id, count(*)::integer as n
      from made
      group by correlation_id),
    moved as (
      update ${workflowNames(log).workflows} as w
      set open = w.open + c.n,
        updated_at = ${log.names.clock}(w.updated_at)
      from counted as c
      where w.correlation_id = c.correlation_id
      returning w.open = c.n as is_woken)
    select made.id, (select count(*) from moved where is_woken)
    from made`)
  const woken = Number((rows[0]?.[1] as number | undefined) ?? 0)
  if (woken > 0)
    await tx.run(sql`/* workflows.count */
      select ${workflowNames(log).workflow_count}(
        p_owner => ${owner}::text,
        p_names => array['active'],
        p_by => array[${woken}::bigint])`)
  const made = new Set(rows.map(row => row[0] as string))
  return wanted.filter(({ id }) => made.has(id)).map(each => ({ ...each, join: newJoin(each) }))
}

function newJoin({ id, route, batch, correlationId }: WantedJoin): Join {
  return {
    ...{ id, batchId: batch.id, correlationId, route: route.id, handler: route.handler, size: batch.size },
    definition: route.definition.join ?? { policy: 'all', onTimeout: 'deadLetter' },
    ...{ arrived: 0, failed: 0, empty: 0, state: 'open' },
    ...{ entries: new Map(), written: new Map(), closedBy: undefined, hasChanged: false },
  }
}

/** Returns the executions of the joins that were closed by it, each once. [join-8] */
export async function storeJoins(log: Log, tx: Executor, joins: readonly Join[]): Promise<NewExecution[]> {
  const entries = joins.flatMap(({ id, written }) => [...written].map(([index, entry]) => ({ id, index, ...entry })))
  if (entries.length > 0)
    await tx.run(sql`/* workflows.join_entries */
      insert into ${workflowNames(log).workflow_join_entries} as e (join_id, index, outcome, position)
      select *
      from unnest(
        ${entries.map(({ id }) => id)}::uuid[],
        ${entries.map(({ index }) => index)}::integer[],
        ${entries.map(({ outcome }) => outcome)}::text[],
        ${entries.map(({ position }) => position)}::bigint[])
      on conflict (join_id, index) do update
      set outcome = excluded.outcome,
        position = excluded.position
      where e.outcome <> 'arrived'`)
  const moved = joins.filter(({ hasChanged, closedBy }) => hasChanged || closedBy !== undefined)
  if (moved.length === 0) return []
  const stored = await tx.run<{ id: string }>(sql`/* workflows.move_joins */
    update ${workflowNames(log).workflow_joins} as j
    set arrived = u.arrived,
      failed = u.failed,
      empty = u.empty,
      state = u.state,
      closed_at = case when u.state <> 'open' then ${log.names.clock}(j.closed_at) end
    from unnest(
      ${moved.map(({ id }) => id)}::uuid[],
      ${moved.map(({ arrived }) => arrived)}::integer[],
      ${moved.map(({ failed }) => failed)}::integer[],
      ${moved.map(({ empty }) => empty)}::integer[],
      ${moved.map(({ state }) => state)}::text[]) as u(id, arrived, failed, empty, state)
    where j.id = u.id
      and j.state = 'open'
    returning j.id`)
  const open = new Set(stored.map(({ id }) => id))
  return moved
    .filter(({ id, closedBy }) => closedBy !== undefined && open.has(id))
    .map(({ id, closedBy, route, correlationId }) => ({
      ...{ id, joinId: id, position: closedBy!, route, correlationId },
    }))
}

const maxAtOnce = 100

/** Closes the joins whose time is over. Returns how many; their executions run with the events there are, or fail, as the join says. */
export async function expireJoins(log: Log, owner: string): Promise<number> {
  let total = 0
  for (let seen = maxAtOnce; seen === maxAtOnce; ) {
    const due = await log.database.run<{ id: string; correlation_id: string }>(sql`/* workflows.due_joins */
      select id, correlation_id
      from ${workflowNames(log).workflow_joins}
      where state = 'open'
        and deadline_at <= ${log.names.clock}(deadline_at)
      order by deadline_at
      limit ${maxAtOnce}::integer`)
    seen = due.length
    if (seen > 0) total += await expireSome(log, owner, due)
  }
  return total
}

// [join-9]
async function expireSome(
  log: Log,
  owner: string,
  due: readonly { readonly id: string; readonly correlation_id: string }[],
): Promise<number> {
  return log.database.transaction(async tx => {
    await lockWorkflows(
      log,
      tx,
      due.map(each => each.correlation_id),
    )
    const rows = await tx.run<{
      id: string
      route: number
      correlation_id: string
      position: number
    }>(sql`/* workflows.expire_joins */
      update ${workflowNames(log).workflow_joins} as j
      set state = case when r.definition->'join'->>'onTimeout' = 'partial' then 'closed' else 'expired' end,
        closed_at = ${log.names.clock}(j.closed_at)
      from ${workflowNames(log).workflow_routes} as r
      where j.id = any(${due.map(({ id }) => id)}::uuid[])
        and r.id = j.route
        and j.state = 'open'
        and j.deadline_at <= ${log.names.clock}(j.deadline_at)
      returning j.id, j.route, j.correlation_id, coalesce((
        select max(e.position)
        from ${workflowNames(log).workflow_join_entries} as e
        where e.join_id = j.id
          and e.outcome = 'arrived'), j.position) as position`)
    const executions = rows.map(({ id, route, correlation_id, position }) => ({
      ...{ id, joinId: id, route, correlationId: correlation_id, position },
    }))
    await enqueue(log, tx, owner, executions)
    return rows.length
  })
}
