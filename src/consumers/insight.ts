/**
 * Facts about consumers beyond their status: the numbers of `/metrics`, and the problems that the doctor looks for.
 * Each is one statement, bounded by the number of consumers and never by the number of events.
 */
import { fragment, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import type { Settled } from '../events/order/order.ts'
import { isOfEarlierOpening } from './row.ts'
import { isUnseen } from './runners/row.ts'
import { consumerNames } from './schema.ts'

export interface ConsumerMetrics {
  readonly name: string
  readonly kind: string
  readonly state: string
  /** Of an inline projection: the head of the log. */
  readonly checkpoint: number
  readonly lag: number
  readonly lagSeconds: number
  readonly isPaused: boolean
  readonly isLeased: boolean
  /** Whether the log ends before the checkpoint. */
  readonly isBeyondHead: boolean
  /** Whether no other process has had its code for a minute. */
  readonly isUnseen: boolean
  /** Open ones; 10 000 stands for that many or more. */
  readonly deadLetters: number
}

/** The first 5000 consumers by name. Of each, the newest 10 000 dead letters are counted. */
export async function readConsumerMetrics(
  log: Log,
  { settled, head }: Pick<Settled, 'settled' | 'head'>,
): Promise<ConsumerMetrics[]> {
  const { events, clock } = log.names
  const { consumers, dead_letters } = consumerNames(log)
  const rows = await log.database.run<{
    name: string
    kind: string
    state: string
    checkpoint: number
    paused: boolean
    leased: boolean
    unseen: boolean
    lag_seconds: number | null
    dead_letters: number
  }>(sql`/* consumers.metrics */
    select
      c.name, c.kind, c.state, c.checkpoint, c.paused_at is not null as paused,
      coalesce(
        c.lease_until > ${clock}(c.lease_until)
          and not ${isOfEarlierOpening(log, fragment`c.owner`)}, false) as leased,
      ${isUnseen(log)} as unseen,
      (select extract(epoch from ${clock}(e.created_at) - e.created_at)::float8
        from ${events} as e
        where e.position > c.checkpoint
          and e.position <= ${settled}::bigint
        order by e.position
        limit 1) as lag_seconds,
      (select count(*) filter (where l.state in ('open', 'retrying'))
        from (
          select state
          from ${dead_letters}
          where consumer = c.name
          order by position desc
          limit 10000) as l) as dead_letters
    from ${consumers} as c
    order by c.name
    limit 5000`)
  return rows.map(row => {
    const isInline = row.state === 'inline'
    return {
      name: row.name,
      kind: row.kind,
      state: row.state,
      isPaused: row.paused,
      isLeased: row.leased,
      isUnseen: row.unseen,
      isBeyondHead: !isInline && row.checkpoint > head,
      checkpoint: isInline ? settled : row.checkpoint,
      lag: isInline ? 0 : Math.max(0, settled - row.checkpoint),
      lagSeconds: isInline ? 0 : Math.max(0, row.lag_seconds ?? 0),
      deadLetters: row.dead_letters,
    }
  })
}

export interface AbandonedLease {
  readonly consumer: string
  readonly owner: string
  /** How long ago it has expired; negative if it has not yet, but its process has ended. */
  readonly expiredMs: number
}

/** Leases that no runner has taken over since their holder died or got stuck. */
export async function readAbandonedLeases(log: Log): Promise<AbandonedLease[]> {
  const { database, names } = log
  const rows = await database.run<{ name: string; owner: string; expired_ms: number }>(sql`/* consumers.abandoned */
    select c.name, c.owner,
      (extract(epoch from ${names.clock}(c.lease_until) - c.lease_until) * 1000)::float8 as expired_ms
    from ${consumerNames(log).consumers} as c
    where c.owner is not null
      and (c.lease_until < ${names.clock}(c.lease_until)
        or ${isOfEarlierOpening(log, fragment`c.owner`)})
    order by c.name`)
  return rows.map(row => ({ consumer: row.name, owner: row.owner, expiredMs: row.expired_ms }))
}

export interface WaitingRebuild {
  readonly projection: string
  /** `cut`: events it has applied were cut from the log. `interrupted`: its rebuild was not completed. */
  readonly reason: 'cut' | 'interrupted'
}

/** Read models that have to be rebuilt and are not being rebuilt now. */
export async function readWaitingRebuilds(log: Log): Promise<WaitingRebuild[]> {
  const { database, names } = log
  const rows = await database.run<{ name: string; is_cut: boolean }>(sql`/* consumers.waiting_rebuilds */
    select c.name, coalesce(c.definition ->> 'rebuild' = 'pending', false) as is_cut
    from ${consumerNames(log).consumers} as c
    where c.definition ->> 'rebuild' = 'pending'
      or (c.state in ('emptying', 'rebuilding') and (c.owner is null or c.lease_until < ${names.clock}(c.lease_until)))
    order by c.name`)
  return rows.map(row => ({ projection: row.name, reason: row.is_cut ? 'cut' : 'interrupted' }))
}
