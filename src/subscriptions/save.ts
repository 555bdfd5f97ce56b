/**
 * The writes of a holder to its partition: the checkpoint, acknowledgements beyond it, and events that were given back.
 * One statement for all outcomes that have come together, under the holder's fence.
 *
 * It never waits for the row: an acknowledgement inside a user's transaction keeps a lock on it until that commits, and a
 * holder that waits for the lock would keep a connection.
 */
import { LeaseLost } from '../consumers/errors.ts'
import { checkFence, type Held, heldRow, saveWith } from '../consumers/row.ts'
import { consumerNames } from '../consumers/schema.ts'
import type { Executor } from '../database/database.ts'
import { fragment, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import type { StoredOptions } from './options.ts'
import { subscriptionNames } from './schema.ts'
import type { Remnant } from './window.ts'

export interface Change {
  /** The checkpoint that is stored. */
  readonly from: number
  readonly checkpoint: number
  /** Done beyond the checkpoint. */
  readonly done: readonly { readonly position: number; readonly deliveries: number }[]
  readonly givenBack: readonly GivenBack[]
}

export interface GivenBack {
  readonly position: number
  readonly deliveries: number
  readonly delayMs: number
  readonly error: object
}

export interface RowState {
  readonly isPaused: boolean
  readonly stored: StoredOptions
}

/** Undefined if the row is locked just now; rejects with `LeaseLost`, or with `CheckpointMoved` (see `consumers/row.ts`). */
export async function saveChange(
  log: Log,
  executor: Executor,
  lease: Held,
  change: Change,
): Promise<RowState | undefined> {
  const { from, checkpoint, done, givenBack } = change
  const { clock, later } = log.names
  const { deliveries } = subscriptionNames(log)
  const steps = fragment`below as (
      delete from ${deliveries} as d
      using held
      where d.consumer = held.name
        and d.position <= ${checkpoint}::bigint),
    above as (
      insert into ${deliveries} as d (
        consumer, position, deliveries, acked_at, retry_at, first_failed_at, last_error)
      select held.name, given.position, given.deliveries,
        case when given.delay is null then ${clock}(given.position) end,
        ${later}(${clock}(given.position), given.delay),
        case when given.delay is not null then ${clock}(given.position) end,
        given.error::jsonb
      from held, unnest(
        ${[...done, ...givenBack].map(each => each.position)}::bigint[],
        ${[...done, ...givenBack].map(each => each.deliveries)}::integer[],
        ${[...done.map(() => null), ...givenBack.map(each => each.delayMs)]}::float8[],
        ${[...done.map(() => null), ...givenBack.map(each => JSON.stringify(each.error))]}::text[]
      ) as given(position, deliveries, delay, error)
      on conflict (consumer, position) do update
      set deliveries = excluded.deliveries,
        acked_at = coalesce(d.acked_at, excluded.acked_at),
        retry_at = excluded.retry_at,
        first_failed_at = coalesce(d.first_failed_at, excluded.first_failed_at),
        last_error = coalesce(excluded.last_error, d.last_error))`
  const error = givenBack.at(-1)?.error
  const row = await saveWith<StoredOptions>(log, lease, { from, checkpoint, error }, steps, executor)
  return row === undefined ? undefined : { isPaused: row.isPaused, stored: row.definition }
}

/** When these events failed first, by position. To be read before their outcome is saved, which deletes the rows. */
export async function firstFailures(
  log: Log,
  executor: Executor,
  { consumer }: Held,
  positions: readonly number[],
): Promise<ReadonlyMap<number, Date>> {
  const rows = await executor.run<{ position: number; first_failed_at: Date }>(sql`/* subscriptions.first_failures */
    select position, first_failed_at
    from ${subscriptionNames(log).deliveries}
    where consumer = ${consumer}::text
      and position = any(${positions}::bigint[])
      and first_failed_at is not null`)
  return new Map(rows.map(row => [row.position, row.first_failed_at]))
}

/**
 * Acknowledges in a transaction of the user's. The lock on the row lasts until that ends: no runner can take the lease
 * and read the acknowledgements without this one.
 */
export async function saveInside(
  log: Log,
  executor: Executor,
  lease: Held,
  event: { readonly position: number; readonly deliveries: number },
): Promise<void> {
  const rows = await executor.run(sql`/* subscriptions.ack_inside */
    with held as (
      ${heldRow(log, lease)})
    insert into ${subscriptionNames(log).deliveries} (consumer, position, deliveries, acked_at)
    select name, ${event.position}::bigint, ${event.deliveries}::integer, ${log.names.clock}(name)
    from held
    on conflict (consumer, position) do update
    set acked_at = excluded.acked_at,
      retry_at = null
    returning 1`)
  if (rows.length === 0) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
}

/**
 * Which of these were acknowledged by transactions that have committed, once all of them have ended; undefined before.
 * Two statements: the second must see the commits that the lock waited for.
 */
export async function endedInside(
  log: Log,
  lease: Held,
  positions: readonly number[],
): Promise<ReadonlySet<number> | undefined> {
  return log.database.transaction(async tx => {
    const free = await tx.run(sql`/* subscriptions.ended */
      select 1
      from ${consumerNames(log).consumers}
      where name = ${lease.consumer}::text
        and fence = ${lease.fence}::bigint
      for update skip locked`)
    if (free.length === 0) {
      await checkFence(log, lease, tx)
      return undefined
    }
    const rows = await tx.run<{ position: number }>(sql`/* subscriptions.acked */
      select position
      from ${subscriptionNames(log).deliveries}
      where consumer = ${lease.consumer}::text
        and position = any(${positions}::bigint[])
        and acked_at is not null`)
    return new Set(rows.map(row => row.position))
  })
}

export interface Loaded extends RowState {
  readonly remnants: ReadonlyMap<number, Remnant>
}

/** The deliveries of earlier holders. Read after the lease was taken, so no more are added. */
export async function loadRow(log: Log, lease: Held): Promise<Loaded> {
  const [row] = await log.database.run<{ paused: boolean; definition: StoredOptions }>(sql`/* subscriptions.row */
    select paused_at is not null as paused, definition
    from ${consumerNames(log).consumers}
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint`)
  if (row === undefined) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
  const left = await log.database.run<{ position: number; deliveries: number; done: boolean; wait: number | null }>(
    sql`/* subscriptions.left */
      select position, deliveries, acked_at is not null as done,
        greatest(0, extract(epoch from retry_at - ${log.names.clock}(position)) * 1000)::float8 as wait
      from ${subscriptionNames(log).deliveries}
      where consumer = ${lease.consumer}::text`,
  )
  const now = log.clock.now().getTime()
  const remnants = new Map(
    left.map(({ position, deliveries, done, wait }) => [
      position,
      { isDone: done, deliveries, dueAt: now + (wait ?? 0) },
    ]),
  )
  return { isPaused: row.paused, stored: row.definition, remnants }
}

/** The log was cut at the position. */
export async function removeBeyond(store: { readonly schema: string }, position: number, tx: Executor): Promise<void> {
  await tx.run(sql`/* subscriptions.remove_beyond */
    delete from ${subscriptionNames(store).deliveries}
    where position > ${position}::bigint`)
}
