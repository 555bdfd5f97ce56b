/** The rows of a subscription's groups: made once, and compared with the options of every later start. */

import { startOf } from '../consumers/consumer.ts'
import { ConsumerNotFound } from '../consumers/errors.ts'
import { change } from '../consumers/operator.ts'
import { ensure } from '../consumers/row.ts'
import { rowNames } from '../consumers/row-names.ts'
import { consumerNames } from '../consumers/schema.ts'
import { DuplicateConsumer } from '../core/errors.ts'
import { canonicalJson } from '../core/json.ts'
import { nearestName } from '../core/name.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { type Log, whereLogIs } from '../events/log.ts'
import { SubscriptionMismatch } from './errors.ts'
import type { StoredOptions, SubscriptionOptions } from './options.ts'
import { hash } from './reader.ts'
import type { RowState } from './save.ts'

/** Makes the group if there is none, and returns it as it is stored, which may differ from the options. */
export async function storeGroup(log: Log, options: SubscriptionOptions): Promise<StoredOptions> {
  const { name, group, stored } = options
  const known = (await storedGroups(log, log.database, name)).find(row => row.group === group)
  if (known !== undefined && isSame(known.filter, stored.filter)) return checkPartitions(known, options)
  return log.database.transaction(async tx => {
    await lockSubscription(log, tx, name)
    return storeLocked(log, tx, options)
  })
}

async function storeLocked(log: Log, tx: Executor, options: SubscriptionOptions): Promise<StoredOptions> {
  const { name, group, stored, replace, from } = options
  const rows = await storedGroups(log, tx, name)
  const other = rows.find(row => !isSame(row.filter, stored.filter))
  if (other !== undefined && !replace) checkFilter(options, other)
  if (other !== undefined) await replaceFilter(log, tx, options)
  const known = rows.find(row => row.group === group)
  if (known !== undefined) return checkPartitions({ ...known, filter: stored.filter }, options)
  await insertGroup(log, tx, stored, await startOf(log, name, from, tx))
  return stored
}

/** One row per partition, all of them at one position. */
export async function insertGroup(log: Log, tx: Executor, stored: StoredOptions, checkpoint: number): Promise<void> {
  const { subscription: name, group, partitions } = stored
  const names = rowNames({ name, group }, partitions)
  const made = await ensure(
    log,
    names.map(row => ({ name: row, kind: 'subscription' as const, checkpoint, definition: stored })),
    tx,
  )
  const taken = names.find(row => !made.includes(row))
  if (taken !== undefined) throw new DuplicateConsumer({ consumer: taken })
}

/** How the groups of a subscription, or of all, are stored, one per group. */
export async function storedGroups(log: Log, executor: Executor, subscription?: string): Promise<StoredOptions[]> {
  const rows = await executor.run<{ definition: StoredOptions }>(sql`/* subscriptions.stored */
    select distinct definition
    from ${consumerNames(log).consumers}
    where kind = 'subscription'
      and (${subscription ?? null}::text is null or definition ->> 'subscription' = ${subscription ?? null}::text)
    order by definition`)
  return rows.map(row => row.definition)
}

/** The rows of one group as they are now. */
export async function storedRows(
  log: Log,
  { name, group }: Pick<SubscriptionOptions, 'name' | 'group'>,
): Promise<(RowState & { readonly name: string; readonly fence: number })[]> {
  const rows = await log.database.run<{ name: string; fence: number; paused: boolean; definition: StoredOptions }>(
    sql`/* subscriptions.rows */
      select name, fence, paused_at is not null as paused, definition
      from ${consumerNames(log).consumers}
      where kind = 'subscription'
        and definition ->> 'subscription' = ${name}::text
        and definition ->> 'group' = ${group}::text`,
  )
  return rows.map(row => ({ name: row.name, fence: row.fence, isPaused: row.paused, stored: row.definition }))
}

/** Calls that make or change groups of one subscription wait for each other. */
export async function lockSubscription(log: Log, tx: Executor, subscription: string): Promise<void> {
  await tx.run(sql`/* subscriptions.lock */
    select pg_advisory_xact_lock(
      ${consumerNames(log).consumers.quoted}::text::regclass::oid::bigint::bit(32)::integer,
      ${hash(subscription) | 0}::integer)::text
    from ${whereLogIs(log)}`)
}

/** Holders of the old filter must not continue with it, so they lose their leases. */
async function replaceFilter(log: Log, tx: Executor, { name, stored }: SubscriptionOptions): Promise<void> {
  const rows = await tx.run<{ name: string }>(sql`/* subscriptions.names */
    select name
    from ${consumerNames(log).consumers}
    where kind = 'subscription'
      and definition ->> 'subscription' = ${name}::text`)
  await change(
    log,
    rows.map(row => row.name),
    { definition: { filter: stored.filter } },
    tx,
  )
}

/** Another process may have replaced the filter by another than the one that runs here. */
export function checkFilter({ name, stored }: SubscriptionOptions, row: StoredOptions): void {
  if (isSame(row.filter, stored.filter)) return
  throw new SubscriptionMismatch({ subscription: name, what: 'filter', stored: row.filter, given: stored.filter })
}

function checkPartitions(known: StoredOptions, options: SubscriptionOptions): StoredOptions {
  const { name: subscription, stored, partitionsGiven } = options
  const refuse = (what: 'partitions' | 'partitionBy'): never => {
    throw new SubscriptionMismatch({ subscription, what, stored: known[what], given: stored[what] })
  }
  if (partitionsGiven && known.partitions !== stored.partitions) refuse('partitions')
  if (known.partitions > 1 && known.partitionBy !== stored.partitionBy) refuse('partitionBy')
  return known
}

/** The error for a name, or a group, that is not stored. */
export async function notFound(
  log: Log,
  executor: Executor,
  consumer: string,
  group: string | undefined,
): Promise<InstanceType<typeof ConsumerNotFound>> {
  const all = await storedGroups(log, executor)
  const ofName = all.filter(each => each.subscription === consumer)
  if (group === undefined || ofName.length === 0) {
    const names = all.map(each => each.subscription)
    return new ConsumerNotFound({ consumer, nearest: nearestName(consumer, names) })
  }
  const groups = ofName.map(each => each.group)
  return new ConsumerNotFound({ consumer, group, nearest: nearestName(group, groups) })
}

function isSame(a: object, b: object): boolean {
  return canonicalJson(a) === canonicalJson(b)
}
