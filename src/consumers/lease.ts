/**
 * The lease of a consumer: taken, renewed, given back, always under the fence that was drawn with it. Only the database's
 * clock decides what has expired. An owner is a random id, never a process number or a host's name.
 */
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'

import type { Log } from '../events/log.ts'
import { settle } from '../events/order/settle.ts'
import type { Consumer } from './consumer.ts'
import { ensure, release, save, take } from './row.ts'

/** The right to work for a consumer, until it expires or is lost. */
export interface Lease {
  readonly consumer: string
  readonly owner: string
  readonly fence: number
  /** What was there when the lease was taken. */
  readonly checkpoint: number
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
    startFrom === 'beginning' ? 0 : startFrom === 'now' ? (await settle(log, executor)).settled : startFrom
  await ensure(log, [{ name, kind, checkpoint, definition }], executor)
}

/**
 * Takes the lease if it is free, has expired, or is ours already (then under a new fence). A row that its former holder
 * still has locked, because it was stopped in the middle of a commit, counts as held.
 */
export const takeLease: typeof take = take
export async function releaseLeases(log: Log, leases: readonly Lease[]): Promise<void> {
  await release(log, leases)
}

/** What a holder writes about its consumer. */
export interface Progress {
  readonly checkpoint: number
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
  return save(log, lease, progress, executor)
}
