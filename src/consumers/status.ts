/** How a consumer is doing: one query for all of them. */

import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import type { ConsumerKind } from './consumer.ts'
import { consumerNames } from './schema.ts'

export interface ConsumerStatus {
  readonly name: string
  readonly kind: ConsumerKind
  /** `active`, or `inline` (applied with each append), or `rebuilding`. */
  readonly state: 'active' | 'inline' | 'rebuilding'
  readonly checkpoint: number
  /** The last settled position. */
  readonly head: number
  /** Positions between checkpoint and head; not all of them need be events it wants. */
  readonly lag: number
  /** How long the first event after the checkpoint has been waiting; 0 if there is none. */
  readonly lagSeconds: number
  readonly isPaused: boolean
  /** Failures in a row of the event after the checkpoint. */
  readonly attempts: number
  /** How long it waits before it is tried again; undefined if it does not. */
  readonly retryInMs: number | undefined
  /** Who holds it, and for how long still. */
  readonly lease: { readonly owner: string; readonly expiresInMs: number } | undefined
  /** Those that are open or being retried. */
  readonly deadLetters: number
  readonly lastError: StoredError | undefined
  readonly progressedAt: Date
}

export interface StoredError {
  readonly name: string
  readonly message: string
  readonly code?: string | undefined
  readonly stack?: string | undefined
  /** The event it is about. */
  readonly eventId?: string | undefined
  readonly position?: string | undefined
  readonly attempt?: number | undefined
  /** When it happened. */
  readonly at?: string | undefined
  /** Those of the attempts before it, the oldest first. */
  readonly earlier?: readonly StoredError[] | undefined
}

interface StatusRow {
  name: string
  kind: ConsumerKind
  state: ConsumerStatus['state'] | 'emptying'
  checkpoint: number
  lag_seconds: number | null
  paused: boolean
  attempts: number
  retry_in: number | null
  owner: string | null
  expires_in: number | null
  dead_letters: number
  last_error: StoredError | null
  progressed_at: Date
}

/** Of the consumers with these names, or of a kind, or all. */
export async function readStatus(
  log: Log,
  { names, kind }: { names?: readonly string[] | undefined; kind?: ConsumerKind | undefined } = {},
): Promise<ConsumerStatus[]> {
  const { settled } = await settle(log)
  const sign = log.database.soleUser ?? null
  const rows = await log.database.run<StatusRow>(sql`/* consumers.status */
    select
      c.name, c.kind, c.state, c.checkpoint, c.attempts, c.progressed_at, c.last_error,
      c.paused_at is not null as paused,
      (extract(epoch from c.retry_at - ${log.names.clock}(c.retry_at)) * 1000)::float8 as retry_in,
      case
        when c.lease_until > ${log.names.clock}(c.lease_until)
          and (${sign}::text is null or split_part(c.owner, '/', 1) = ${sign}::text)
        then c.owner
      end as owner,
      (extract(epoch from c.lease_until - ${log.names.clock}(c.lease_until)) * 1000)::float8 as expires_in,
      (select count(*)
        from ${consumerNames(log).dead_letters} as l
        where l.consumer = c.name
          and l.state in ('open', 'retrying')) as dead_letters,
      (select extract(epoch from ${log.names.clock}(e.created_at) - e.created_at)::float8
        from ${log.names.events} as e
        where e.position > c.checkpoint
          and e.position <= ${settled}::bigint
        order by e.position
        limit 1) as lag_seconds
    from ${consumerNames(log).consumers} as c
    where (${names ?? null}::text[] is null or c.name = any(${names ?? null}::text[]))
      and (${kind ?? null}::text is null or c.kind = ${kind ?? null}::text)
    order by c.name`)
  return rows.map(row => statusOf(row, settled))
}

function statusOf(row: StatusRow, head: number): ConsumerStatus {
  const { name, kind, attempts } = row
  const state = row.state === 'emptying' ? 'rebuilding' : row.state
  const isInline = state === 'inline'
  const checkpoint = isInline && row.checkpoint < head ? head : row.checkpoint
  return {
    name,
    kind,
    state,
    checkpoint,
    head,
    lag: checkpoint < head ? head - checkpoint : 0,
    lagSeconds: isInline ? 0 : Math.max(0, row.lag_seconds ?? 0),
    isPaused: row.paused,
    attempts,
    retryInMs: row.retry_in !== null && row.retry_in > 0 ? row.retry_in : undefined,
    lease: row.owner === null ? undefined : { owner: row.owner, expiresInMs: Math.max(0, row.expires_in ?? 0) },
    deadLetters: Number(row.dead_letters),
    lastError: row.last_error ?? undefined,
    progressedAt: row.progressed_at,
  }
}
