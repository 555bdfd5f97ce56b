/**
 * The lease of a consumer: taken, renewed, given back, always under the fence that was drawn with it. Only the database's
 * clock decides what has expired. An owner is a random id, never a process number or a host's name.
 */
import { LeaseLost } from '../core/consumer-errors.ts'
import { isRillflowError } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'

import { lockNotAvailable } from '../database/sqlstate.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/settle.ts'
import type { Consumer } from './consumer.ts'

/** The right to work for a consumer, until it expires or is lost. */
export interface Lease {
  readonly consumer: string
  readonly owner: string
  readonly fence: bigint
  /** What was there when the lease was taken. */
  readonly checkpoint: bigint
  readonly attempts: number
  /** How long the event after the checkpoint has to wait before it is tried again. */
  readonly retryInMs: number
}

export type Refusal = 'missing' | 'paused' | 'leasedByOther' | 'inline' | 'rebuilding'

/** An owner that no other process, and no other daemon of this one, has. */
export function newOwner(log: Log): string {
  const { soleUser } = log.database
  return soleUser === undefined ? log.ids.next() : `${soleUser}/${log.ids.next()}`
}

/** Makes the consumer's row if there is none. A row that is there keeps its checkpoint. */
export async function ensureConsumer(
  log: Log,
  consumer: Pick<Consumer, 'name' | 'kind' | 'startFrom'>,
  definition: object = {},
  executor: Executor = log.database,
): Promise<void> {
  const { name, kind, startFrom } = consumer
  const known = await executor.runArrays(sql`/* consumers.known */
    select 1
    from ${log.names.consumers}
    where name = ${name}::text`)
  if (known.length > 0) return
  const checkpoint =
    startFrom === 'beginning' ? 0n : startFrom === 'now' ? (await settle(log, executor)).settled : startFrom
  await executor.run(sql`/* consumers.ensure */
    insert into ${log.names.consumers} (name, kind, checkpoint, definition)
    values (${name}::text, ${kind}::text, ${checkpoint}::bigint, ${JSON.stringify(definition)}::jsonb)
    on conflict do nothing`)
}

/**
 * Takes the lease if it is free, has expired, or is ours already (then under a new fence). A row that its former holder
 * still has locked, because it was stopped in the middle of a commit, counts as held.
 */
export async function takeLease(log: Log, name: string, owner: string, leaseMs: number): Promise<Lease | Refusal> {
  const sign = log.database.soleUser ?? null
  const take = (executor: Executor): Promise<unknown[][]> =>
    executor.runArrays(sql`/* consumers.take */
      update ${log.names.consumers} as c
      set owner = ${owner}::text,
        fence = nextval(${log.names.consumers_fence.quoted}::regclass),
        lease_until = clock_timestamp() + make_interval(secs => ${leaseMs}::float8 / 1000)
      where c.name = ${name}::text
        and c.paused_at is null
        and c.state = 'active'
        and (c.owner is null
          or c.owner = ${owner}::text
          or c.lease_until <= clock_timestamp()
          or (${sign}::text is not null and split_part(c.owner, '/', 1) <> ${sign}::text))
      returning c.fence, c.checkpoint, c.attempts,
        greatest(0, extract(epoch from c.retry_at - clock_timestamp()) * 1000)::float8`)
  let rows: unknown[][]
  try {
    rows = await log.database.transaction(tx => take(tx), { lockTimeoutMs: Math.max(100, leaseMs / 4) })
  } catch (error) {
    if (
      isRillflowError(error, 'database_failed') &&
      (error as unknown as { sqlState: string }).sqlState === lockNotAvailable
    )
      return 'leasedByOther'
    throw error
  }
  const [row] = rows as [bigint, bigint, number, number | null][]
  if (row === undefined) return whyRefused(log, name)
  const [fence, checkpoint, attempts, retryInMs] = row
  return { consumer: name, owner, fence, checkpoint, attempts, retryInMs: retryInMs ?? 0 }
}

async function whyRefused(log: Log, name: string): Promise<Refusal> {
  const [row] = await log.database.run<{ paused: boolean; state: string }>(sql`/* consumers.refused */
    select paused_at is not null as paused, state
    from ${log.names.consumers}
    where name = ${name}::text`)
  if (row === undefined) return 'missing'
  if (row.paused) return 'paused'
  return row.state === 'inline' || row.state === 'rebuilding' ? row.state : 'leasedByOther'
}

/** Gives leases back at once, whoever has taken some of them meanwhile keeps those. */
export async function releaseLeases(log: Log, leases: readonly Lease[]): Promise<void> {
  if (leases.length === 0) return
  await log.database.run(sql`/* consumers.release */
    update ${log.names.consumers} as c
    set owner = null,
      lease_until = null
    from unnest(${leases.map(lease => lease.consumer)}::text[], ${leases.map(lease => lease.fence)}::bigint[])
      as held(name, fence)
    where c.name = held.name
      and c.fence = held.fence`)
}

/** Errors of earlier attempts that are kept with the last one. */
const keptErrors = 19

/** What a holder writes about its consumer. */
export interface Progress {
  readonly checkpoint: bigint
  readonly attempts?: number | undefined
  /** The wait before the next try. */
  readonly retryInMs?: number | undefined
  readonly error?: object | undefined
  /** Also pauses the consumer. */
  readonly pause?: boolean | undefined
}

/**
 * Moves the checkpoint, as the last statement of the transaction whose effects it stands for, or by itself if there are
 * none. Returns whether the consumer was paused meanwhile. Rejects with `LeaseLost` if the fence is not ours any more.
 */
export async function saveProgress(
  log: Log,
  executor: Executor,
  lease: Pick<Lease, 'consumer' | 'fence'>,
  progress: Progress,
): Promise<{ isPaused: boolean }> {
  const { checkpoint, attempts = 0, retryInMs, error, pause = false } = progress
  const told = error === undefined ? null : JSON.stringify(error)
  const [row] = await executor.run<{ paused: boolean }>(sql`/* consumers.checkpoint */
    update ${log.names.consumers}
    set checkpoint = ${checkpoint}::bigint,
      attempts = ${attempts}::integer,
      retry_at = clock_timestamp() + make_interval(secs => ${retryInMs ?? null}::float8 / 1000),
      progressed_at = case when checkpoint < ${checkpoint}::bigint then clock_timestamp() else progressed_at end,
      paused_at = case when ${pause}::boolean then coalesce(paused_at, clock_timestamp()) else paused_at end,
      -- The errors of one event are kept together, the last of them, until it is applied or set aside.
      last_error = case
        when ${told}::jsonb is null then last_error
        else ${told}::jsonb || jsonb_build_object('at', clock_timestamp(), 'earlier', case
          when attempts > 0 and last_error->>'eventId' = ${told}::jsonb->>'eventId'
          then (case
              when jsonb_array_length(last_error->'earlier') < ${keptErrors}::integer then last_error->'earlier'
              else (last_error->'earlier') - 0
            end) || jsonb_build_array(last_error - '{earlier,eventId,position}'::text[])
          else '[]'
        end)
      end
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint
      and checkpoint <= ${checkpoint}::bigint
    returning paused_at is not null as paused`)
  if (row === undefined) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
  return { isPaused: row.paused }
}
