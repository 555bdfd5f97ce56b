/**
 * An operator's writes to the row of a consumer. The operator wins: each change but a pause draws a new fence, so a
 * batch that is running is rolled back, and the runner of the consumer takes its lease anew (see `row.ts`).
 *
 *     pause · resume · move · change · free · takeOver                      any consumer
 *     takeToRebuild ──► emptied ──► (save …) ──► completeRebuild            a rebuild in place
 *            └──────────────┴── a failure ──► abandonRebuild
 *     moveAllBack                                                           after the log was cut
 */
import { nearestName } from '../core/name.ts'
import { checkWhole, maxPosition } from '../core/options.ts'
import { retry } from '../core/retry.ts'
import type { Executor, TransactionOptions } from '../database/database.ts'
import { fragment, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { closeAfter, lockOpen } from './dead-letters/row.ts'
import { ConsumerNotFound } from './errors.ts'
import {
  type ConsumerState,
  drawFence,
  freeLease,
  type Held,
  hasExpired,
  type Lease,
  type LeaseRow,
  lastsFor,
  leaseColumns,
  leaseOf,
  lostBy,
  newFence,
  newOwner,
  smallerIfLost,
} from './row.ts'
import { consumerNames } from './schema.ts'

/** The batch that is running may end; none begins after it. The time of the first pause stays. */
export async function pause(log: Log, names: readonly string[], executor: Executor = log.database): Promise<void> {
  const rows = await executor.run<{ name: string }>(sql`/* consumers.pause */
    update ${consumerNames(log).consumers} as c
    set paused_at = coalesce(c.paused_at, ${log.names.clock}(c.fence))
    where c.name = any(${names}::text[])
    returning c.name`)
  await refuseMissing(log, executor, names, rows)
}

export interface Resume {
  /** True: the holder keeps its lease, and with it the events that it has delivered. Default false. */
  readonly keepsHolder?: boolean | undefined
}

/** Continues at once: a wait for the next attempt is over, too. */
export async function resume(
  log: Log,
  names: readonly string[],
  executor: Executor = log.database,
  { keepsHolder = false }: Resume = {},
): Promise<void> {
  const fence = await drawFence(log, executor)
  const rows = await executor.run<{ name: string }>(sql`/* consumers.resume */
    update ${consumerNames(log).consumers}
    set paused_at = null,
      state = case when state = 'repartitioning' then 'active' else state end,
      attempts = 0,
      retry_at = null
      ${keepsHolder ? fragment`` : fragment`, ${freeLease}, ${newFence(fence)}`}
    where name = any(${names}::text[])
    returning name`)
  await refuseMissing(log, executor, names, rows)
}

/**
 * Moves the checkpoint of consumers, in either direction; effects of applied events stay. Dead letters of events that
 * will come again are closed in the same transaction, so that the runner that continues from there finds none of them
 * open, and opens those again that fail again.
 */
export async function reset(
  log: Log,
  names: readonly string[],
  position: number,
  executor: Executor = log.database,
): Promise<void> {
  checkWhole('position', position, 0, maxPosition)
  await together(log, executor, async tx => {
    await lockOpen(log, names, tx)
    for (const name of names) await move(log, name, { checkpoint: position }, tx)
    await closeAfter(log, names, position, tx)
  })
}

export interface Move {
  readonly checkpoint: number
  /** The state it has from then on. Default: the one it has. */
  readonly state?: ConsumerState | undefined
  /** Move it only if it is inline, or only if it is not. Default: either. */
  readonly isInline?: boolean | undefined
}

/**
 * Moves the checkpoint, in either direction, and clears the failures of the event after the old one. Returns whether it
 * was moved: false if `isInline` was given and is no longer true. The caller decides about the dead letters. [lease-9]
 */
export async function move(
  log: Log,
  name: string,
  { checkpoint, state, isInline }: Move,
  executor: Executor,
): Promise<boolean> {
  const fence = await drawFence(log, executor)
  const rows = await executor.run<{ name: string }>(sql`/* consumers.move */
    update ${consumerNames(log).consumers} as c
    set checkpoint = ${checkpoint}::bigint,
      state = coalesce(${state ?? null}::text, c.state),
      attempts = 0,
      retry_at = null,
      last_error = null,
      progressed_at = ${log.names.clock}(c.fence),
      ${freeLease},
      ${newFence(fence)}
    where c.name = ${name}::text
      and (${isInline ?? null}::boolean is null or (c.state = 'inline') = ${isInline ?? null}::boolean)
    returning c.name`)
  if (isInline === undefined) await refuseMissing(log, executor, [name], rows)
  return rows.length > 0
}

export interface Change {
  readonly state?: ConsumerState | undefined
  /** Replaces these keys of `definition`; a key that is undefined is removed. */
  readonly definition?: Readonly<Record<string, unknown>> | undefined
  /** True for a change that the holder reads while it continues, as a limit is. Default false: it loses its lease. */
  readonly keepsHolder?: boolean | undefined
}

/** Changes the definition of a consumer: its filter, the number of its partitions, a limit. */
export async function change(
  log: Log,
  names: readonly string[],
  { state, definition = {}, keepsHolder = false }: Change,
  executor: Executor,
): Promise<void> {
  const removed = Object.keys(definition).filter(key => definition[key] === undefined)
  const fence = await drawFence(log, executor)
  await executor.run(sql`/* consumers.change */
    update ${consumerNames(log).consumers}
    set state = coalesce(${state ?? null}::text, state),
      definition = (definition - ${removed}::text[]) || ${JSON.stringify(definition)}::jsonb
      ${keepsHolder ? fragment`` : fragment`, ${freeLease}, ${newFence(fence)}`}
    where name = any(${names}::text[])`)
}

/** Frees the leases of runners that are gone: replaced by another of their name. */
export async function free(log: Log, owners: readonly string[], executor: Executor): Promise<void> {
  const fence = await drawFence(log, executor)
  await executor.run(sql`/* consumers.free */
    update ${consumerNames(log).consumers}
    set ${freeLease},
      ${newFence(fence)}
    where owner = any(${owners}::text[])`)
}

/** Frees every lease: those in a copy of a store belong to processes of the original. */
export async function freeAll(store: { readonly schema: string }, executor: Executor): Promise<void> {
  await executor.run(sql`/* consumers.free_all */
    update ${consumerNames(store).consumers}
    set ${freeLease}
    where owner is not null`)
}

/**
 * Takes the lease from any holder. Undefined if the consumer is paused or not active: then no runner may work for it.
 */
export async function takeOver(log: Log, name: string, leaseMs: number): Promise<Lease | undefined> {
  const owner = newOwner(log)
  const fence = await drawFence(log, log.database)
  const [row] = await log.database.run<LeaseRow>(sql`/* consumers.take_over */
    update ${consumerNames(log).consumers} as c
    set owner = ${owner}::text,
      ${lastsFor(log, leaseMs)},
      ${newFence(fence)}
    where c.name = ${name}::text
      and c.state = 'active'
      and c.paused_at is null
    returning ${leaseColumns(log)}`)
  return row === undefined ? undefined : leaseOf(name, owner, row)
}

/** Releases the lease of work that can be continued later, also if its policy has paused it. */
export async function putAside(log: Log, held: Held): Promise<void> {
  await log.database.run(sql`/* consumers.put_aside */
    update ${consumerNames(log).consumers}
    set ${freeLease},
      paused_at = null
    where name = ${held.consumer}::text
      and fence = ${held.fence}::bigint`)
}

// ── A rebuild in place ───────────────────────────────────────────────────────────────────────────────────────

export interface TakenToRebuild {
  readonly lease: Lease
  /** Whether an earlier rebuild has emptied the read model already. */
  readonly isEmptied: boolean
  readonly wasPaused: boolean
}

/**
 * Takes the lease from any holder but another rebuild, and keeps others from taking it. Undefined if it is inline, or
 * another rebuild is running. With `restart` the read model is emptied again, too.
 */
export async function takeToRebuild(
  log: Log,
  name: string,
  leaseMs: number,
  restart: boolean,
): Promise<TakenToRebuild | undefined> {
  const owner = newOwner(log)
  const fence = await drawFence(log, log.database)
  const [row] = await log.database.run<LeaseRow & { state: ConsumerState; paused: boolean }>(
    sql`/* consumers.take_to_rebuild */
      update ${consumerNames(log).consumers} as c
      set state = case when c.state = 'rebuilding' and not ${restart}::boolean then 'rebuilding' else 'emptying' end,
        owner = ${owner}::text,
        ${smallerIfLost(log)},
        ${lastsFor(log, leaseMs)},
        ${newFence(fence)}
      where c.name = ${name}::text
        and (c.state = 'active'
          or (c.state in ('emptying', 'rebuilding') and (c.owner is null or ${hasExpired(log)})))
      returning ${leaseColumns(log)}, c.state, c.paused_at is not null as paused`,
  )
  if (row === undefined) return undefined
  return { lease: leaseOf(name, owner, row), isEmptied: row.state === 'rebuilding', wasPaused: row.paused }
}

/** In the transaction that has emptied the read model: it begins at `checkpoint`. */
export async function emptied(log: Log, held: Held, checkpoint: number, tx: Executor): Promise<void> {
  const rows = await tx.run(sql`/* consumers.emptied */
    update ${consumerNames(log).consumers}
    set state = 'rebuilding',
      checkpoint = ${checkpoint}::bigint,
      attempts = 0,
      retry_at = null,
      last_error = null
    where name = ${held.consumer}::text
      and fence = ${held.fence}::bigint
    returning name`)
  if (rows.length === 0) throw lostBy(held)
}

export async function completeRebuild(log: Log, held: Held): Promise<void> {
  const fence = await drawFence(log, log.database)
  const rows = await log.database.run(sql`/* consumers.complete_rebuild */
    update ${consumerNames(log).consumers}
    set state = 'active',
      ${freeLease},
      ${newFence(fence)}
    where name = ${held.consumer}::text
      and fence = ${held.fence}::bigint
    returning name`)
  if (rows.length === 0) throw lostBy(held)
}

/**
 * A read model that was emptied stays `rebuilding`: it is not whole. One that was not emptied is as it was. A pause by
 * the failure policy ends with the rebuild.
 */
export async function abandonRebuild(log: Log, { lease, wasPaused }: TakenToRebuild): Promise<void> {
  await log.database.run(sql`/* consumers.abandon_rebuild */
    update ${consumerNames(log).consumers}
    set ${freeLease},
      paused_at = case when ${wasPaused}::boolean then paused_at end,
      state = case when state = 'emptying' then 'active' else state end
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint`)
}

// ── A log that was cut ───────────────────────────────────────────────────────────────────────────────────────

/**
 * Moves every consumer that has passed the position back to it. A projection is marked to be rebuilt (`rebuild:
 * pending`), and begins at 0: until then its read model has applied nothing that could be waited for. Returns the
 * projections that are marked.
 */
export async function moveAllBack(
  log: Pick<Log, 'schema' | 'names'>,
  position: number,
  hasEventsBeyond: boolean,
  tx: Executor,
): Promise<string[]> {
  const { consumers } = consumerNames(log)
  // A rebuild next to the old tables begins anew: it makes its tables itself.
  await tx.run(sql`/* consumers.forget_rebuilds */
    delete from ${consumers}
    where kind = 'projection'
      and definition ? 'rebuilds'
      and checkpoint > ${position}::bigint`)
  const fence = await drawFence(log, tx)
  const rows = await tx.run<{ name: string; kind: string }>(sql`/* consumers.move_all_back */
    update ${consumers} as c
    set checkpoint = case when c.kind = 'projection' then 0 else ${position}::bigint end,
      state = case when c.state = 'rebuilding' then 'emptying' else c.state end,
      definition = case when c.kind = 'projection' then c.definition || '{"rebuild": "pending"}' else c.definition end,
      attempts = 0,
      retry_at = null,
      last_error = null,
      progressed_at = ${log.names.clock}(c.fence),
      ${freeLease},
      ${newFence(fence)}
    where c.checkpoint > ${position}::bigint
      -- An inline projection is applied with each append, so its checkpoint says nothing.
      or (c.state = 'inline' and ${hasEventsBeyond}::boolean)
    returning c.name, c.kind`)
  return rows.flatMap(row => (row.kind === 'projection' ? [row.name] : [])).sort()
}

// ── Answers ──────────────────────────────────────────────────────────────────────────────────────────────────

export async function notFound(
  log: Log,
  name: string,
  executor: Executor = log.database,
): Promise<InstanceType<typeof ConsumerNotFound>> {
  const rows = await executor.run<{ name: string }>(sql`/* consumers.names */
    select name
    from ${consumerNames(log).consumers}`)
  const known = rows.map(row => row.name)
  return new ConsumerNotFound({ consumer: name, nearest: nearestName(name, known) })
}

async function refuseMissing(
  log: Log,
  executor: Executor,
  names: readonly string[],
  found: readonly { readonly name: string }[],
): Promise<void> {
  const missing = names.find(name => !found.some(row => row.name === name))
  if (missing !== undefined) throw await notFound(log, missing, executor)
}

/** In the caller's transaction, or in one of our own. */
export async function together(
  log: Log,
  executor: Executor,
  work: (tx: Executor) => Promise<void>,
  options?: TransactionOptions,
): Promise<void> {
  // A retry of a dead letter may hold one of the rows for a moment.
  const again = { retries: 3 }
  await (executor === log.database ? retry(() => log.database.transaction(work, options), again) : work(executor))
}
