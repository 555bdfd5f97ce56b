/**
 * Putting the new tables in the place of the old ones, in one transaction:
 *
 *     the barrier, if it is inline ─► lock the old tables ─► refuse what hangs on them ─► apply the last events ─► owner and grants
 *       ─► drop the old, rename the new ─► dead letters ─► the consumer's row: new fence, new checkpoint ─► commit
 *
 * The locks are taken in the order of a batch, tables first and the consumer's row last, so the two never wait for each
 * other in a circle. A batch that waits for a table goes on in the new one after the commit, and is then refused by the
 * fence. Whoever reads waits for this transaction; it gives up after a second of waiting for readers itself, and comes
 * back later, because everybody else queues behind it. Indexes that were not declared go with the old table.
 */

import type { Consumer } from '../../consumers/consumer.ts'
import { replaceBy } from '../../consumers/dead-letters/row.ts'
import { LeaseLost } from '../../consumers/errors.ts'
import { move } from '../../consumers/operator.ts'
import { forget, type Held } from '../../consumers/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import type { Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { holdInlineBarrier } from '../../events/inline/barrier.ts'
import type { Log } from '../../events/log.ts'
import { settle } from '../../events/order/order.ts'
import { readPage } from '../../events/read/page.ts'
import { type DeclaredTable, indexesOf } from '../../schema/table.ts'
import type { Projection } from '../projection.ts'
import { shadowOf } from '../table.ts'
import { copyGrants, refuseDependents } from './grants.ts'
import { ddl } from './shadow.ts'

export interface Switching {
  readonly log: Log
  readonly projection: Projection
  /** The one that fills the new tables. */
  readonly shadow: Consumer
  readonly lease: Held
  readonly signal: AbortSignal | undefined
  /** Whether appends write the old tables themselves, and have to wait for the new ones. */
  readonly isInline: boolean
}

/** The last events could not be applied: that is for the failure policy, outside of the switch. */
export class TailFailed extends Error {}

const lockMs = 1_000
const switchMs = 30_000
/** More than this is not for a moment in which readers wait. */
const mostTail = 2_000

/** Returns the position the new tables have reached. */
export function switchTables(switching: Switching): Promise<{ position: number; events: number }> {
  const { log, projection, signal } = switching
  return log.database.transaction(
    async tx => {
      if (switching.isInline) await holdInlineBarrier(log, tx)
      for (const { declared } of projection.tables)
        await ddl(tx, `lock table ${identifier(log.schema, declared.name)} in access exclusive mode`, declared.name)
      for (const { declared } of projection.tables)
        await refuseDependents(tx, projection.name, identifier(log.schema, declared.name))
      const tail = await applyTail(switching, tx)
      for (const { declared } of projection.tables) await replaceTable(log, tx, declared)
      await replaceBy(log, projection.name, switching.lease.consumer, tx)
      await moveRow(switching, tx, tail.position)
      return tail
    },
    { timeoutMs: switchMs, lockTimeoutMs: lockMs, signal },
  )
}

/** Applies what is settled by now and not applied yet, which must not be much. */
export async function applyTail(
  { log, projection, shadow, lease }: Pick<Switching, 'log' | 'projection' | 'shadow' | 'lease'>,
  tx: Transaction,
): Promise<{ position: number; events: number }> {
  const [row] = await tx.run<{ checkpoint: number }>(sql`/* projections.hold_shadow */
    select checkpoint
    from ${consumerNames(log).consumers}
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint
    for update`)
  if (row === undefined) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
  const { settled } = await settle(log, tx)
  const { where, ...filter } = projection.filter
  let position = row.checkpoint
  let applied = 0
  while (position < settled) {
    const page = await readPage(log, { filter, after: position, to: settled, limit: shadow.batchSize }, tx)
    const events = where === undefined ? page.events : page.events.filter(where)
    applied += events.length
    if (page.faults.size > 0 || applied > mostTail) throw new TailFailed('the last events are not for this moment')
    const ctx = { consumer: lease.consumer, tx, attempt: 1, isReplay: false, at: () => {} }
    if (events.length > 0)
      await shadow.handle(events, { ...ctx, signal: new AbortController().signal }).catch((error: unknown) => {
        throw new TailFailed('the last events failed', { cause: error })
      })
    position = page.reached
  }
  return { position, events: applied }
}

async function replaceTable(log: Log, tx: Transaction, declared: DeclaredTable): Promise<void> {
  const shadow = shadowOf(declared)
  const [old, next] = [identifier(log.schema, declared.name), identifier(log.schema, shadow.name)]
  await copyGrants(tx, old, next)
  await ddl(tx, `drop table ${old}`, declared.name)
  await ddl(tx, `alter table ${next} rename to ${identifier(declared.name)}`, declared.name)
  const indexes = indexesOf(declared).map((index, i) => [indexesOf(shadow)[i]!.name, index.name] as const)
  for (const [from, to] of [[`${shadow.name}_pkey`, `${declared.name}_pkey`] as const, ...indexes])
    await ddl(tx, `alter index ${identifier(log.schema, from)} rename to ${identifier(to)}`, to)
}

async function moveRow(
  { log, projection, lease, isInline }: Switching,
  tx: Transaction,
  position: number,
): Promise<void> {
  await forget(log, [lease.consumer], tx)
  if (!(await move(log, projection.name, { checkpoint: position, isInline }, tx)))
    throw new TailFailed('its lifecycle was changed meanwhile')
}
