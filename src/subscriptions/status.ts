/** The status of the groups of a subscription. */

import { consumerNames } from '../consumers/schema.ts'
import { type RowStatus, readStatus, type StoredError } from '../consumers/status.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { notFound } from './groups.ts'
import type { StoredFilter, StoredOptions } from './options.ts'
import { subscriptionNames } from './schema.ts'

export interface GroupStatus {
  readonly subscription: string
  readonly group: string
  /** Which events it gets, as stored. */
  readonly filter: StoredFilter
  readonly maxInFlight: number
  readonly isPaused: boolean
  /** Everything up to here is done, by the partition that is furthest behind; so are `lag` and `lagSeconds`. */
  readonly checkpoint: number
  /** The last settled position. */
  readonly head: number
  /** Positions between checkpoint and head; not all of them need be events it wants. */
  readonly lag: number
  /** How long the first event after the checkpoint has been waiting; 0 if there is none. */
  readonly lagSeconds: number
  /** Those that are open or being retried. */
  readonly deadLetters: number
  readonly lastError: StoredError | undefined
  readonly partitions: readonly PartitionStatus[]
}

export interface PartitionStatus {
  /** The name of its consumer, as dead letters have it. */
  readonly consumer: string
  readonly checkpoint: number
  readonly lag: number
  readonly isPaused: boolean
  /** The runner that holds its lease now. */
  readonly owner: string | undefined
  /** Events beyond the checkpoint that are acknowledged, and those that were given back. */
  readonly acked: number
  readonly givenBack: number
}

interface Row {
  readonly name: string
  readonly definition: StoredOptions
  readonly acked: number
  readonly given_back: number
}

/** Of one group, or of all. */
export async function readGroups(log: Log, subscription: string, group?: string): Promise<GroupStatus[]> {
  const rows = await log.database.run<Row>(sql`/* subscriptions.status */
    select c.name, c.definition, d.acked, d.given_back
    from ${consumerNames(log).consumers} as c
    cross join lateral (
      select
        count(*) filter (where acked_at is not null)::integer as acked,
        count(*) filter (where acked_at is null)::integer as given_back
      from ${subscriptionNames(log).deliveries}
      where consumer = c.name) as d
    where c.kind = 'subscription'
      and c.definition ->> 'subscription' = ${subscription}::text
      and (${group ?? null}::text is null or c.definition ->> 'group' = ${group ?? null}::text)
    order by c.definition ->> 'group', length(c.name), c.name`)
  if (rows.length === 0) throw await notFound(log, log.database, subscription, group)
  const statuses = await readStatus(log, { names: rows.map(row => row.name) })
  const byName = new Map(statuses.map(status => [status.name, status]))
  const byGroup = new Map<string, { row: Row; status: RowStatus }[]>()
  for (const row of rows) {
    const status = byName.get(row.name)
    // It may have been removed between the two queries.
    if (status === undefined) continue
    const { group: of } = row.definition
    byGroup.set(of, [...(byGroup.get(of) ?? []), { row, status }])
  }
  return [...byGroup.values()].map(statusOf)
}

function statusOf(all: readonly { row: Row; status: RowStatus }[]): GroupStatus {
  const slowest = all.reduce((a, b) => (b.status.checkpoint < a.status.checkpoint ? b : a))
  const { subscription, group, filter, maxInFlight } = slowest.row.definition
  const { checkpoint, head, lag, lagSeconds } = slowest.status
  return {
    subscription,
    group,
    filter,
    maxInFlight,
    isPaused: all.every(({ status }) => status.isPaused),
    checkpoint,
    head,
    lag,
    lagSeconds,
    deadLetters: all.reduce((sum, { status }) => sum + status.deadLetters, 0),
    lastError: all.find(({ status }) => status.lastError !== undefined)?.status.lastError,
    partitions: all.map(({ row, status }) => ({
      consumer: row.name,
      checkpoint: status.checkpoint,
      lag: status.lag,
      isPaused: status.isPaused,
      owner: status.lease?.owner,
      acked: row.acked,
      givenBack: row.given_back,
    })),
  }
}

export interface DeliveryCounts {
  readonly consumer: string
  /** Acknowledged beyond the checkpoint. */
  readonly acked: number
  /** Given back, to be delivered again. */
  readonly givenBack: number
}

/** The deliveries of each subscription beyond its checkpoint; the newest 10 000 of each are counted. */
export async function countDeliveries(log: Log, consumers: readonly string[]): Promise<DeliveryCounts[]> {
  const rows = await log.database.run<{
    consumer: string
    acked: number
    given_back: number
  }>(sql`/* subscriptions.count */
    select c.name as consumer, d.acked, d.given_back
    from unnest(${consumers}::text[]) as c(name)
    cross join lateral (
      select count(*) filter (where n.acked_at is not null) as acked,
        count(*) filter (where n.acked_at is null) as given_back
      from (
        select acked_at
        from ${subscriptionNames(log).deliveries}
        where consumer = c.name
        order by position desc
        limit 10000) as n) as d
    order by c.name`)
  return rows.map(row => ({ consumer: row.consumer, acked: row.acked, givenBack: row.given_back }))
}
