/**
 * Another number of partitions. An event's partition changes with it, so first the old partitions must complete every
 * event up to one position, and none beyond it:
 *
 *     close the group: holders release it ─► set the barrier, the highest position that any has done, and open the group
 *       ─► each partition runs up to the barrier ─► all have reached it: the old rows are deleted, the new ones made,
 *          and have the dead letters of the old ones, by stream
 *
 * A holder that does not release its lease in time loses it by a new fence, so no holder that does not know of the
 * barrier can deliver beyond it. If the caller dies on the way, calling again continues from there; if it gives up, all
 * is undone.
 */

import { divideAmong, lockOpen } from '../consumers/dead-letters/row.ts'
import { change } from '../consumers/operator.ts'
import { type ConsumerState, forget, isHeld as isHeldRow } from '../consumers/row.ts'
import { type Group, readRows, rowNames } from '../consumers/row-names.ts'
import { consumerNames } from '../consumers/schema.ts'
import { deadline, sleep } from '../core/abort.ts'
import { elapsedMs } from '../core/host.ts'
import { checkWhole } from '../core/options.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { SubscriptionParts } from './group.ts'
import { insertGroup, lockSubscription, notFound } from './groups.ts'
import type { StoredOptions } from './options.ts'
import { partitionOf } from './reader.ts'
import { subscriptionNames } from './schema.ts'

export interface RepartitionOptions {
  /** How long to wait for the old partitions to reach the barrier. Default 30 000. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
}

/** How long holders may take to release their leases. */
const letGoMs = 10_000

interface Row {
  readonly name: string
  readonly checkpoint: number
  readonly highest: number
  readonly state: ConsumerState
  readonly definition: StoredOptions
}

export async function repartition(
  parts: SubscriptionParts,
  group: Group,
  partitions: number,
  { timeoutMs = 30_000, signal }: RepartitionOptions,
): Promise<void> {
  const { log, wake } = parts
  checkWhole('partitions', partitions, 1, 1024)
  log.database.refuseInsideTransaction('repartition')
  const what = `The barrier of "${group.name}/${group.group}", which needs every partition run up to it,`
  const limit = deadline(signal, timeoutMs, { what, clock: log.clock })
  try {
    if (await closeGroup(parts, group, partitions)) return
    wake.changed()
    const until = elapsedMs() + Math.min(letGoMs, timeoutMs / 3)
    while (elapsedMs() < until && (await isHeld(parts, group))) await sleep(20, { signal: limit.signal })
    await setBarrier(parts, group)
    wake.changed()
    while (!(await divide(parts, group, partitions))) await sleep(20, { signal: limit.signal })
  } catch (error) {
    await removeBarrier(parts, group)
    throw error
  } finally {
    limit.dispose()
    wake.changed()
  }
}

/** From now on no runner takes the partitions. True if there is nothing to change. */
function closeGroup(parts: SubscriptionParts, group: Group, partitions: number): Promise<boolean> {
  const { log } = parts
  return log.database.transaction(async tx => {
    const rows = await lockRows(parts, tx, group)
    if (rows.length === 0) throw await notFound(log, tx, group.name, group.group)
    if (rows.length === partitions) return true
    await change(
      log,
      rows.map(row => row.name),
      { state: 'repartitioning', keepsHolder: true },
      tx,
    )
    return false
  })
}

async function isHeld({ log }: SubscriptionParts, { name, group }: Group): Promise<boolean> {
  const rows = await log.database.run(sql`/* subscriptions.held */
    select 1
    from ${consumerNames(log).consumers} as c
    where c.kind = 'subscription'
      and c.definition ->> 'subscription' = ${name}::text
      and c.definition ->> 'group' = ${group}::text
      and ${isHeldRow(log)}
    limit 1`)
  return rows.length > 0
}

async function setBarrier(parts: SubscriptionParts, group: Group): Promise<void> {
  const { log } = parts
  await log.database.transaction(async tx => {
    const rows = await lockRows(parts, tx, group)
    if (rows.length === 0) throw await notFound(log, tx, group.name, group.group)
    const barrier = rows.map(row => row.highest).reduce((a, b) => (a > b ? a : b))
    await change(
      log,
      rows.map(row => row.name),
      { state: 'active', definition: { barrier: barrier.toString() } },
      tx,
    )
  })
}

/** Puts the new rows in the place of the old ones; false while one of those has not reached the barrier. */
async function divide(parts: SubscriptionParts, group: Group, partitions: number): Promise<boolean> {
  const { log } = parts
  const known = await readRows(log, group.name, group.group)
  return log.database.transaction(async tx => {
    await lockOpen(log, known, tx)
    const rows = await lockRows(parts, tx, group)
    const [first] = rows
    if (first === undefined) throw await notFound(log, tx, group.name, group.group)
    if (rows.length === partitions && first.definition.barrier === undefined) return true
    const barrier = Number(first.definition.barrier ?? -1)
    if (rows.some(row => row.checkpoint !== barrier || row.highest !== barrier)) return false
    const { barrier: _, ...definition } = first.definition
    const names = rows.map(row => row.name)
    const newNames = rowNames(group, partitions)
    await divideAmong(log, names, stream => newNames[partitionOf(stream, partitions)]!, tx)
    await forget(log, names, tx)
    const maxInFlight = Math.max(definition.maxInFlight, partitions)
    await insertGroup(log, tx, { ...definition, partitions, maxInFlight }, barrier)
    return true
  })
}

async function removeBarrier(parts: SubscriptionParts, group: Group): Promise<void> {
  const { log } = parts
  await log.database
    .transaction(async tx => {
      const rows = await lockRows(parts, tx, group)
      const barred = rows.filter(row => row.state === 'repartitioning' || row.definition.barrier !== undefined)
      await change(
        log,
        barred.map(row => row.name),
        { state: 'active', definition: { barrier: undefined } },
        tx,
      )
    })
    .catch(() => {})
}

/** No process can make the group, and no holder can move it, until the transaction ends. */
async function lockRows({ log }: SubscriptionParts, tx: Executor, { name, group }: Group): Promise<Row[]> {
  await lockSubscription(log, tx, name)
  await tx.run(sql`/* subscriptions.lock_rows */
    select 1
    from ${consumerNames(log).consumers}
    where kind = 'subscription'
      and definition ->> 'subscription' = ${name}::text
      and definition ->> 'group' = ${group}::text
    order by name
    for update`)
  return tx.run<Row>(sql`/* subscriptions.read_rows */
    select c.name, c.checkpoint, c.state, c.definition,
      greatest(c.checkpoint, (
        select max(d.position)
        from ${subscriptionNames(log).deliveries} as d
        where d.consumer = c.name)) as highest
    from ${consumerNames(log).consumers} as c
    where c.kind = 'subscription'
      and c.definition ->> 'subscription' = ${name}::text
      and c.definition ->> 'group' = ${group}::text
    order by c.name`)
}
