/**
 * The rows of runners, and every write to them. Each runner writes its own with every heartbeat, and all see by the
 * database's clock which of them are alive.
 *
 *     enter ──► active ⇄ standby, paused ──leave──► gone
 *                  └── heartbeat too old ──► dead: others take over; removed when nothing refers to it
 *
 * A runner is `active` (it runs things), `standby` (it waits until no active runner with a name is alive) or `paused`
 * (it waits for an operator). A runner that comes back after its heartbeat has expired, and finds another active one
 * with a name, is a standby from then on.
 *
 * The fence of a row is drawn when a runner enters. A heartbeat matches it, so a runner whose name was taken over by
 * another finds that its row is gone.
 */
import type { Executor } from '../../database/database.ts'
import { type Fragment, fragment, sql } from '../../database/sql.ts'
import { type Log, whereLogIs } from '../../events/log.ts'
import { free } from '../operator.ts'
import { drawFence, isHeld, isOfEarlierOpening, type Lease, newFence, renewedLeases } from '../row.ts'
import { consumerNames } from '../schema.ts'
import type { Candidate } from './balance.ts'
import type { RunnerProcess } from './process.ts'

export type RunnerRole = 'active' | 'standby' | 'paused'

export interface NewRunner {
  readonly id: string
  readonly name: string | undefined
  readonly role: RunnerRole
  readonly leaseMs: number
  readonly serves: Serves
}

/** The handlers of a runner, as other processes have to know it. */
export interface Serves {
  /** The routes of its handlers. A row that has some is not deleted before its executions are released. */
  readonly routes: readonly number[]
  /** The most handlers at the same time. */
  readonly concurrency: number | undefined
}

export const servesNothing: Serves = { routes: [], concurrency: undefined }

/** The row of a runner: it writes under the fence it was given. */
export interface EnteredRunner {
  readonly id: string
  readonly fence: number
  readonly role: RunnerRole
}

/** Enters a runner. Another one of its name is replaced: its leases are free, and its role is taken over. */
export async function enter(log: Log, { id, name, role, leaseMs, serves }: NewRunner): Promise<EnteredRunner> {
  const { runners } = consumerNames(log)
  const { clock, later } = log.names
  return log.database.transaction(async tx => {
    await takeTurns(log, tx)
    // A row that executions refer to is removed by the runner that takes them over.
    const fence = await drawFence(log, tx)
    const replaced = await tx.run<{ id: string; role: RunnerRole }>(sql`/* runners.replace */
      update ${runners}
      set name = null,
        heartbeat_at = '-infinity',
        ${newFence(fence)}
      where name = ${name ?? null}::text
        and id <> ${id}::text
      returning id, role`)
    if (replaced.length > 0)
      await free(
        log,
        replaced.map(row => row.id),
        tx,
      )
    await tx.run(sql`/* runners.forget */
      delete from ${runners} as r
      where r.heartbeat_at < ${later}(${clock}(r.fence), -10 * r.lease_ms)
        and r.routes = '{}'`)
    const isTakenOver = role === 'standby' && replaced.some(row => row.role === 'active')
    const [row] = await tx.run<EnteredRunner>(sql`/* runners.enter */
      insert into ${runners} as r (
        id, name, role, lease_ms, started_at, heartbeat_at, fence, consumers, routes, concurrency)
      select ${id}::text, ${name ?? null}::text, ${isTakenOver ? 'active' : role}::text, ${leaseMs}::integer,
        ${clock}(made.fence), ${clock}(made.fence), made.fence, '{}', ${serves.routes}::integer[],
        ${serves.concurrency ?? null}::integer
      from unnest(array[${fence}::bigint]) as made(fence)
      -- Sent again, because the first one got no answer; or it was away for so long that it is entered again.
      on conflict (id) do update
      set heartbeat_at = excluded.heartbeat_at
      returning r.id, r.fence, r.role`)
    return row!
  })
}

/** The view of a runner, read with its heartbeat. */
export interface View {
  /** Undefined if its own row is gone: another runner has its name, or it was away for long. */
  readonly role: RunnerRole | undefined
  /** Whether its row has routes. Another runner that took it for dead has emptied them. */
  readonly isServing: boolean
  readonly consumers: ReadonlyMap<string, ConsumerView>
  /** The active runners that are alive. */
  readonly active: readonly Candidate[]
  /** Whether this standby is the one to become active, because no runner with a name is. */
  readonly isNext: boolean
}

export interface ConsumerView {
  readonly name: string
  readonly owner: string | null
  readonly fence: string
  /** Whether a process that is alive holds its lease. */
  readonly held: boolean
  /** Whether its lease can be taken at all. */
  readonly open: boolean
  /** Whether the retry of a dead letter is due. */
  readonly requested: boolean
}

interface RunnerRow {
  readonly id: string
  readonly role: RunnerRole
  readonly name: string | null
  readonly since: string
  readonly consumers: readonly string[]
}

interface ViewRow {
  readonly role: RunnerRole | null
  readonly serving: boolean | null
  readonly consumers: readonly ConsumerView[] | null
  readonly runners: readonly RunnerRow[] | null
}

/** The runner whose heartbeat it is. */
export interface Beating extends Pick<EnteredRunner, 'id' | 'fence'>, Pick<NewRunner, 'leaseMs'> {
  readonly process?: RunnerProcess | undefined
}

/**
 * One statement: the heartbeat, the renewal of all leases, and the view. The view also has the consumers that other
 * runners could run: which runner is to have which depends on all that each of them holds, and runners that compute
 * with different lists do not agree. [claim-10]
 *
 * It leaves the routes alone: a heartbeat that is still on its way when the runner stops would store them again, after
 * its executions are released.
 */
export async function heartbeat(
  log: Log,
  { id, fence, leaseMs, process }: Beating,
  wanted: readonly string[],
  leases: readonly { readonly lease: Lease; readonly leaseMs: number }[],
): Promise<View> {
  const { consumers, dead_letters, runners } = consumerNames(log)
  const { clock, later } = log.names
  log.telemetry.count('consumer_rounds_total')
  const [row] = await log.database.run<ViewRow>(sql`/* runners.heartbeat */
    with heartbeat as (
      update ${runners} as r
      set heartbeat_at = ${clock}(r.fence),
        lease_ms = ${leaseMs}::integer,
        consumers = ${wanted}::text[],
        process = ${process === undefined ? null : JSON.stringify(process)}::text::jsonb,
        role = case
          when r.name is not null
            and r.role = 'active'
            and not ${isAlive(log)}
            and exists (
              select
              from ${runners} as o
              where o.id <> r.id
                and o.role = 'active'
                and o.name is not null
                and o.heartbeat_at >= ${later}(${clock}(o.fence), -o.lease_ms))
          then 'standby'
          else r.role
        end
      where r.id = ${id}::text
        and r.fence = ${fence}::bigint
      returning r.role, r.routes <> '{}' as serving),
    ${renewedLeases(
      log,
      leases.map(({ lease, leaseMs }) => ({ ...lease, leaseMs })),
    )}
    select
      (select role from heartbeat) as role,
      (select serving from heartbeat) as serving,
      (select jsonb_agg(jsonb_build_object(
          'name', c.name,
          'owner', c.owner,
          'fence', c.fence::text,
          'held', ${isHeld(log)},
          'open', c.paused_at is null and c.state = 'active',
          'requested', exists (
            select
            from ${dead_letters} as d
            where d.consumer = c.name
              and d.retry_at <= ${clock}(d.position))))
        from ${consumers} as c
        where c.name = any(${wanted}::text[])
          or exists (
            select
            from ${runners} as r
            where c.name = any(r.consumers))) as consumers,
      (select jsonb_agg(jsonb_build_object(
          'id', r.id,
          'role', r.role,
          'name', r.name,
          'since', r.started_at,
          'consumers', r.consumers))
        from ${runners} as r
        where ${isAlive(log)}) as runners`)
  return viewOf(id, wanted, row!)
}

function viewOf(id: string, wanted: readonly string[], row: ViewRow): View {
  const runners = row.runners ?? []
  const others = runners.filter(runner => runner.id !== id)
  const role = row.role ?? undefined
  const active = others
    .filter(runner => runner.role === 'active')
    .map(runner => ({ id: runner.id, consumers: new Set(runner.consumers) as ReadonlySet<string> }))
  if (role === 'active') active.push({ id, consumers: new Set(wanted) })
  const standbys = runners.filter(runner => runner.role === 'standby').sort(byAge)
  const isServed = others.some(runner => runner.role === 'active' && runner.name !== null)
  const isNext = role === 'standby' && !isServed && standbys[0]?.id === id
  const consumers = new Map((row.consumers ?? []).map(each => [each.name, each]))
  return { role, isServing: row.serving === true, consumers, active, isNext }
}

function byAge(a: RunnerRow, b: RunnerRow): number {
  return `${a.since} ${a.id}` < `${b.since} ${b.id}` ? -1 : 1
}

/** Makes the longest waiting standby active, unless another runner with a name has become active meanwhile. */
export async function becomeActive(log: Log, id: string): Promise<boolean> {
  const { runners } = consumerNames(log)
  const { clock, later } = log.names
  return log.database.transaction(async tx => {
    await takeTurns(log, tx)
    const rows = await tx.run(sql`/* runners.become_active */
      update ${runners}
      set role = 'active'
      where id = ${id}::text
        and role = 'standby'
        and not exists (
          select
          from ${runners} as o
          where o.role = 'active'
            and o.name is not null
            and o.id <> ${id}::text
            and not ${isOfEarlierOpening(log, fragment`o.id`)}
            and o.heartbeat_at >= ${later}(${clock}(o.fence), -o.lease_ms))
      returning id`)
    return rows.length > 0
  })
}

/** The role of one runner, by its own program. */
export async function setRole(log: Log, id: string, role: RunnerRole): Promise<void> {
  await log.database.run(sql`/* runners.set_role */
    update ${consumerNames(log).runners}
    set role = ${role}::text
    where id = ${id}::text`)
}

/** Makes the runner of this name active, and the active runner with a name a standby. */
export async function promote(log: Log, name: string): Promise<void> {
  await log.database.run(sql`/* runners.promote */
    update ${consumerNames(log).runners}
    set role = case when name = ${name}::text then 'active' else 'standby' end
    where name is not null
      and (name = ${name}::text or role = 'active')`)
}

/** Makes the runner of this name a standby, the last of those that wait to become active. */
export async function demote(log: Log, name: string): Promise<void> {
  await log.database.run(sql`/* runners.demote */
    update ${consumerNames(log).runners} as r
    set role = 'standby',
      started_at = ${log.names.clock}(r.fence)
    where r.name = ${name}::text`)
}

/** Stops what the runner with this id runs, or lets it run again. Running work completes. */
export async function setPaused(log: Log, id: string, isPaused: boolean): Promise<void> {
  const [from, to] = isPaused ? ['active', 'paused'] : ['paused', 'active']
  await log.database.run(sql`/* runners.pause */
    update ${consumerNames(log).runners}
    set role = ${to!}::text
    where id = ${id}::text
      and role = ${from!}::text`)
}

/** Stores which handlers a runner runs, at once. From then on it may claim executions of them. */
export async function storeServes(log: Log, id: string, serves: Serves): Promise<void> {
  await log.database.run(sql`/* runners.serve */
    update ${consumerNames(log).runners}
    set routes = ${serves.routes}::integer[],
      concurrency = ${serves.concurrency ?? null}::integer
    where id = ${id}::text`)
}

/**
 * Deletes the row of a runner that has stopped. If it still has routes, because its executions could not be released, it
 * counts as dead from now on, and another runner releases them.
 */
export async function leave(log: Log, id: string): Promise<void> {
  const { runners } = consumerNames(log)
  await log.database.run(sql`/* runners.leave */
    with gone as (
      delete from ${runners}
      where id = ${id}::text
        and routes = '{}')
    update ${runners}
    set heartbeat_at = '-infinity'
    where id = ${id}::text
      and routes <> '{}'`)
}

/** Locks the row of a runner that has routes; false if there is none, or if it is said to be dead and is not. */
export async function lockServing(log: Log, tx: Executor, id: string, state: 'own' | 'dead'): Promise<boolean> {
  const { runners } = consumerNames(log)
  const rows =
    state === 'own'
      ? await tx.run(sql`/* runners.lock_own */
          select
          from ${runners} as r
          where r.id = ${id}::text
            and r.routes <> '{}'
          for update`)
      : await tx.run(sql`/* runners.lock_dead */
          select
          from ${runners} as r
          where r.id = ${id}::text
            and r.routes <> '{}'
            and not ${isAlive(log)}
          for update skip locked`)
  return rows.length > 0
}

/** The executions of a runner are released: it serves nothing from now on, until it says so again. */
export async function servesNoMore(log: Pick<Log, 'schema'>, tx: Executor, id: string): Promise<void> {
  await tx.run(sql`/* runners.serve_no_more */
    update ${consumerNames(log).runners}
    set routes = '{}',
      concurrency = null
    where id = ${id}::text`)
}

/** Whether another runner has this name now. */
export async function isNameTaken(log: Log, name: string, id: string): Promise<boolean> {
  const rows = await log.database.run(sql`/* runners.is_name_taken */
    select
    from ${consumerNames(log).runners}
    where name = ${name}::text
      and id <> ${id}::text`)
  return rows.length > 0
}

/** A copy of a store has the runners of the original, which did not come with it. */
export async function removeAllRunners(store: { readonly schema: string }, tx: Executor): Promise<void> {
  await tx.run(sql`/* runners.remove_all */
    delete from ${consumerNames(store).runners}`)
}

/**
 * Whether the runner of the row `r` is alive: its heartbeat is fresh. Embedded, a runner of an earlier opening of the
 * database is dead, however fresh its heartbeat looks.
 */
export function isAlive(log: Log): Fragment {
  return fragment`(r.heartbeat_at >= ${log.names.later}(${log.names.clock}(r.fence), -r.lease_ms)
          and not ${isOfEarlierOpening(log, fragment`r.id`)})`
}

/**
 * Whether no process has had the code of the consumer of the row `c` for a while: no runner that is alive has it, none
 * holds it, and none has been seen with it. The caller adds its own registered consumers. An inline projection needs no
 * runner: the processes that append have its code, or are refused.
 */
export function isUnseen(log: Log): Fragment {
  return fragment`(c.state <> 'inline'
        and c.seen_at < ${log.names.later}(${log.names.clock}(c.seen_at), ${-1000 * unseenSeconds}::float8)
        and not ${isHeld(log)}
        and not exists (
          select
          from ${consumerNames(log).runners} as r
          where c.name = any(r.consumers)
            and ${isAlive(log)}))`
}

/** How often a runner stores that it has the code of its consumers. */
export const seenEveryMs = 20_000
/** Longer than a restart takes, and shorter than the lag that makes a store unready. */
const unseenSeconds = 60

/** Two runners that start under one name, or would become active at the same time, do so one after the other. */
async function takeTurns(log: Log, tx: Executor): Promise<void> {
  await tx.run(sql`/* runners.take_turns */
    select pg_advisory_xact_lock(${consumerNames(log).runners.quoted}::text::regclass::oid::bigint)::text
    from ${whereLogIs(log)}`)
}
