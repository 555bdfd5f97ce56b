/**
 * Replaces the tables of a projection by those that a rebuild has filled, in one transaction:
 *
 *     barrier (if inline) ─► lock the old tables ─► refuse dependents ─► apply the last events ─► owner and grants
 *       ─► drop the old tables, rename the new ones ─► dead letters ─► row: new fence, new checkpoint ─► commit
 *
 * If a turn's time is not enough for the last events, it commits what it has applied, and the next turn continues.
 *
 * Guarantees:
 * - A reader sees the old tables or the new ones, and waits for this transaction in between.
 * - Locks are taken in the order of a batch: tables first, the row last. So a batch and a switch never deadlock. A batch that
 *   waits for a table continues with the new one after the commit, and is then refused by its fence.
 * - The new tables have the owner and the grants of the old ones. Indexes that were not declared are dropped with the old.
 *
 * What can fail: `ViewsDepend`, if something of the user's depends on an old table. The locks are not granted within a
 * second: the transaction gives up and is tried again later, because every reader queues behind it. `TailFailed`: the last
 * events could not be applied here, and the failure policy decides about them outside of the switch.
 */

import type { Consumer } from '../../consumers/consumer.ts'
import { replaceBy } from '../../consumers/dead-letters/row.ts'
import { LeaseLost } from '../../consumers/errors.ts'
import { move } from '../../consumers/operator.ts'
import { firstBatchLimit, forget, type Held, save } from '../../consumers/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { elapsedMs } from '../../core/host.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { type Identifier, identifier, sql } from '../../database/sql.ts'
import { toRillflowError } from '../../database/sqlstate.ts'
import { holdInlineBarrier } from '../../events/inline/barrier.ts'
import type { Log } from '../../events/log.ts'
import { settle } from '../../events/order/order.ts'
import { readPage } from '../../events/read/page.ts'
import { type DeclaredTable, indexesOf } from '../../schema/table.ts'
import { ViewsDepend } from '../errors.ts'
import type { Projection } from '../projection.ts'
import { shadowOf } from '../table.ts'

export interface TailParts {
  readonly log: Log
  readonly projection: Projection
  /** The consumer that fills the new tables. */
  readonly shadow: Consumer
  readonly lease: Held
  /** The position that is enough for a switch; undefined: the end of the log. */
  readonly goal: number | undefined
  /** The longest time that events are applied in one transaction. */
  readonly turnMs: number
}

export interface Switching extends TailParts {
  readonly signal: AbortSignal | undefined
  /** Whether appends write the old tables themselves, so that they have to wait for the switch. */
  readonly isInline: boolean
}

/** The last events could not be applied: the failure policy decides about them, outside of the switch. */
export class TailFailed extends Error {}

const lockMs = 1_000
const switchMs = 30_000
const tailPage = 200
const firstTurnMs = 250
const maxTurnMs = 8_000

/**
 * The time of the nth turn. It doubles: writers add events between two turns, however many they are, so a turn has to be
 * longer than what they add takes.
 */
export function turnOf(n: number): number {
  return Math.min(maxTurnMs, firstTurnMs * 2 ** (n - 1))
}

/** Applies the last events, and replaces the tables once there are none left. */
export function switchTables(switching: Switching): Promise<Tail> {
  const { log, projection, signal } = switching
  return log.database.transaction(
    async tx => {
      if (switching.isInline) await holdInlineBarrier(log, tx)
      for (const { declared } of projection.tables)
        await ddl(tx, `lock table ${identifier(log.schema, declared.name)} in access exclusive mode`, declared.name)
      for (const { declared } of projection.tables)
        await refuseDependents(tx, projection.name, identifier(log.schema, declared.name))
      const tail = await applyTail(switching, tx)
      if (!tail.isWhole) return tail
      for (const { declared } of projection.tables) await replaceTable(log, tx, declared)
      await replaceBy(log, projection.name, switching.lease.consumer, tx)
      await moveRow(switching, tx, tail.position)
      return tail
    },
    { timeoutMs: switchMs, lockTimeoutMs: lockMs, signal, changesTables: true },
  )
}

/** The last events of a switch, as far as one transaction has applied them. */
export interface Tail {
  readonly position: number
  readonly events: number
  /** False if there are more: the checkpoint is stored, and the next transaction continues. */
  readonly isWhole: boolean
}

/**
 * Applies the events that have settled since the last batch, for as long as `turnMs`. Whatever waits for this transaction
 * (readers of the tables; writers, behind the barrier) gets its turn before the next one. [barrier-9]
 */
export async function applyTail(
  { log, projection, shadow, lease, goal, turnMs }: TailParts,
  tx: Transaction,
): Promise<Tail> {
  const [row] = await tx.run<{ checkpoint: number; batch_limit: number | null }>(sql`/* projections.hold_shadow */
    select checkpoint, batch_limit
    from ${consumerNames(log).consumers}
    where name = ${lease.consumer}::text
      and fence = ${lease.fence}::bigint
    for update`)
  if (row === undefined) throw new LeaseLost({ consumer: lease.consumer, fence: lease.fence })
  const { settled } = await settle(log, tx)
  const { where, ...filter } = projection.filter
  const until = elapsedMs() + turnMs
  // So many were applied in time before. A full page of a slow handler would outlive the transaction, again and again.
  const limit = Math.min(tailPage, row.batch_limit ?? firstBatchLimit)
  let position = row.checkpoint
  let events = 0
  while (position < settled && elapsedMs() < until) {
    const page = await readPage(log, { filter, after: position, to: settled, limit }, tx)
    const wanted = where === undefined ? page.events : page.events.filter(where)
    if (page.faults.size > 0) throw new TailFailed('one of the last events cannot be read')
    const ctx = { consumer: lease.consumer, tx, attempt: 1, isReplay: false, at: () => {} }
    if (wanted.length > 0)
      await shadow.handle(wanted, { ...ctx, signal: new AbortController().signal }).catch((error: unknown) => {
        throw new TailFailed('the last events failed', { cause: error })
      })
    events += wanted.length
    position = page.reached
  }
  const isWhole = position >= (goal ?? settled)
  if (!isWhole) await save(log, lease, { from: row.checkpoint, checkpoint: position }, tx)
  return { position, events, isWhole }
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
    throw new TailFailed('the lifecycle was changed meanwhile')
}

/**
 * Refuses a table with dependents that cannot be moved to another table: views and functions stay with the table they were
 * made for, whatever its name; triggers and policies would be dropped with it.
 */
export async function refuseDependents(executor: Executor, projection: string, table: Identifier): Promise<void> {
  const rows = await executor.run<{ what: string }>(sql`/* projections.dependents */
    select distinct
      case
        when d.classid = 'pg_rewrite'::regclass
          then (select 'view ' || r.ev_class::regclass::text from pg_rewrite as r where r.oid = d.objid)
        else pg_describe_object(d.classid, d.objid, 0)
      end as what
    from pg_depend as d
    where d.refclassid = 'pg_class'::regclass
      and d.refobjid = ${table.quoted}::text::regclass
      and (d.classid in ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass,
          'pg_publication_rel'::regclass)
        or (d.classid = 'pg_trigger'::regclass
          and exists (select from pg_trigger as t where t.oid = d.objid and not t.tgisinternal))
        or (d.classid = 'pg_constraint'::regclass
          and exists (select from pg_constraint as c where c.oid = d.objid and c.conrelid <> d.refobjid)))
    order by what`)
  if (rows.length > 0) throw new ViewsDepend({ projection, table: table.quoted, views: rows.map(row => row.what) })
}

/** Gives the new table the owner and the grants of the old one. */
export async function copyGrants(tx: Transaction, from: Identifier, to: Identifier): Promise<void> {
  const [owner] = await tx.run<{ name: string; differs: boolean }>(sql`/* projections.owner */
    select pg_get_userbyid(old.relowner) as name, old.relowner <> new.relowner as differs
    from pg_class as old, pg_class as new
    where old.oid = ${from.quoted}::text::regclass
      and new.oid = ${to.quoted}::text::regclass`)
  if (owner?.differs === true) await ddl(tx, `alter table ${to} owner to ${identifier(owner.name)}`, 'owner')
  const grants = await tx.run<{ grantee: string | null; privilege: string; column: string | null; option: boolean }>(
    sql`/* projections.grants */
      select
        case when acl.grantee = 0 then null else pg_get_userbyid(acl.grantee) end as grantee,
        acl.privilege_type as privilege,
        null::text as column,
        acl.is_grantable as option
      from pg_class as c, aclexplode(c.relacl) as acl
      where c.oid = ${from.quoted}::text::regclass
        and acl.grantee <> c.relowner
      union all
      select
        case when acl.grantee = 0 then null else pg_get_userbyid(acl.grantee) end,
        acl.privilege_type,
        a.attname::text,
        acl.is_grantable
      from pg_attribute as a, aclexplode(a.attacl) as acl
      where a.attrelid = ${from.quoted}::text::regclass
        and not a.attisdropped
        and exists (
          select
          from pg_attribute as same
          where same.attrelid = ${to.quoted}::text::regclass
            and same.attname = a.attname)`,
  )
  for (const { grantee, privilege, column, option } of grants) {
    const what = `${privilege}${column === null ? '' : ` (${identifier(column)})`}`
    const grantees = `${grantee === null ? 'public' : identifier(grantee)}${option ? ' with grant option' : ''}`
    await ddl(tx, `grant ${what} on ${to} to ${grantees}`, 'grant')
  }
}

/** Sends a statement as plain text: one that is never sent again is not worth preparing. */
export async function ddl(tx: Transaction, text: string, what: string): Promise<void> {
  try {
    await tx.query(text)
  } catch (error) {
    throw toRillflowError(error, what)
  }
}
