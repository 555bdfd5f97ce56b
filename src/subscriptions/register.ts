/** The rows of a subscription's groups: made once, and compared with what is asked for later. */

import { change } from '../consumers/operator.ts'
import { ensure } from '../consumers/row.ts'
import { consumerNames } from '../consumers/schema.ts'
import { DuplicateConsumer } from '../core/errors.ts'
import { canonicalJson } from '../core/json.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import { SubscriptionMismatch } from './errors.ts'
import { hash } from './hash.ts'
import { type Plan, rowNames, type StoredPlan } from './plan.ts'
import type { RowState } from './save.ts'

/** Makes the group if there is none, and returns how it is stored, which may be otherwise than asked for. */
export async function registerGroup(log: Log, plan: Plan): Promise<StoredPlan> {
  const rows = await storedPlans(log, log.database, plan.name)
  const known = rows.find(row => row.group === plan.group)
  if (known !== undefined && isSame(known.filter, plan.stored.filter)) return checkPartitions(known, plan)
  return log.database.transaction(async tx => {
    await lockSubscription(log, tx, plan.name)
    return registerLocked(log, tx, plan)
  })
}

async function registerLocked(log: Log, tx: Executor, plan: Plan): Promise<StoredPlan> {
  const { name, stored, replace } = plan
  const rows = await storedPlans(log, tx, name)
  const other = rows.find(row => !isSame(row.filter, stored.filter))
  if (other !== undefined && !replace) checkFilter(plan, other)
  if (other !== undefined) await replaceFilter(log, tx, plan)
  const known = rows.find(row => row.group === plan.group)
  if (known !== undefined) return checkPartitions({ ...known, filter: stored.filter }, plan)
  const { startFrom } = plan
  const start = startFrom === 'beginning' ? 0 : startFrom === 'now' ? (await settle(log, tx)).settled : startFrom
  await insertGroup(log, tx, stored, start)
  return stored
}

/** One row per partition, all of them at one position. */
export async function insertGroup(log: Log, tx: Executor, stored: StoredPlan, checkpoint: number): Promise<void> {
  const names = rowNames(stored)
  const made = await ensure(
    log,
    names.map(name => ({ name, kind: 'subscription' as const, checkpoint, definition: stored })),
    tx,
  )
  const taken = names.find(name => !made.includes(name))
  if (taken !== undefined) throw new DuplicateConsumer({ consumer: taken })
}

/** How the groups of a subscription are stored, one per group. */
export async function storedPlans(log: Log, executor: Executor, subscription?: string): Promise<StoredPlan[]> {
  const rows = await executor.run<{ definition: StoredPlan }>(sql`/* subscriptions.stored */
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
  { name, group }: Pick<Plan, 'name' | 'group'>,
): Promise<(RowState & { readonly name: string; readonly fence: number })[]> {
  const rows = await log.database.run<{ name: string; fence: number; paused: boolean; definition: StoredPlan }>(
    sql`/* subscriptions.rows */
      select name, fence, paused_at is not null as paused, definition
      from ${consumerNames(log).consumers}
      where kind = 'subscription'
        and definition ->> 'subscription' = ${name}::text
        and definition ->> 'group' = ${group}::text`,
  )
  return rows.map(row => ({ name: row.name, fence: row.fence, isPaused: row.paused, stored: row.definition }))
}

/** Whoever makes or changes groups of one subscription waits for the others. */
export async function lockSubscription(log: Log, tx: Executor, subscription: string): Promise<void> {
  await tx.run(sql`/* subscriptions.lock */
    select pg_advisory_xact_lock(${consumerNames(log).consumers.quoted}::regclass::oid::bigint::bit(32)::integer, ${hash(subscription) | 0}::integer)`)
}

/** Holders of the old filter must not go on with it, so they lose their leases. */
async function replaceFilter(log: Log, tx: Executor, { name, stored }: Plan): Promise<void> {
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

/** Somebody may have replaced the filter by another than the one that is run here. */
export function checkFilter({ name, stored }: Plan, row: StoredPlan): void {
  if (isSame(row.filter, stored.filter)) return
  throw new SubscriptionMismatch({ subscription: name, what: 'filter', stored: row.filter, given: stored.filter })
}

function checkPartitions(known: StoredPlan, { name: subscription, stored, partitionsGiven }: Plan): StoredPlan {
  if (partitionsGiven && known.partitions !== stored.partitions) {
    const [was, given] = [known.partitions, stored.partitions]
    throw new SubscriptionMismatch({ subscription, what: 'partitions', stored: was, given })
  }
  if (known.partitions > 1 && known.partitionBy !== stored.partitionBy) {
    const [was, given] = [known.partitionBy, stored.partitionBy]
    throw new SubscriptionMismatch({ subscription, what: 'partitionBy', stored: was, given })
  }
  return known
}

function isSame(a: object, b: object): boolean {
  return canonicalJson(a) === canonicalJson(b)
}
