/**
 * What operators do with subscriptions. The rows are changed, and everybody is told: a consumer at work anywhere heeds it.
 * Whatever moves a checkpoint draws a new fence, so that the operator wins over what is under way.
 */

import * as operator from '../consumers/operator.ts'
import { consumerNames } from '../consumers/schema.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkWhole } from '../core/whole.ts'
import type { Transaction } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { settle } from '../events/order/order.ts'
import { checkPosition } from '../events/read/log.ts'
import { notFound } from './not-found.ts'
import type { StoredFilter } from './plan.ts'
import { storedPlans } from './register.ts'
import { type RepartitionOptions, repartition } from './repartition.ts'
import type { SubscriptionParts } from './runner.ts'
import { subscriptionNames } from './schema.ts'
import { type GroupStatus, readGroups } from './status.ts'

export interface SubscriptionSummary {
  readonly name: string
  readonly filter: StoredFilter
  readonly groups: readonly string[]
}

export interface Administration {
  list(): Promise<SubscriptionSummary[]>
  /** All groups of a subscription. */
  groups(name: string): Promise<GroupStatus[]>
  /** One group; default 'default'. */
  status(name: string, group?: string): Promise<GroupStatus>
  /** Nothing is delivered until `resume`; what is out can still be acknowledged. Without a group: all of them. */
  pause(name: string, group?: string): Promise<void>
  resume(name: string, group?: string): Promise<void>
  /** Goes on after this position. What was acknowledged beyond it is forgotten; consumers at work begin there anew. */
  reset(name: string, position: number, group?: string): Promise<void>
  /** The most events of a group that may be delivered and not acknowledged, from now on. */
  setMaxInFlight(name: string, group: string, maxInFlight: number): Promise<void>
  /**
   * Changes the number of partitions. All of them are run to one position, by whoever has them; the new ones begin there.
   * Waits for that, up to `timeoutMs` (default 30 000).
   */
  repartition(name: string, group: string, partitions: number, options?: RepartitionOptions): Promise<void>
  /** Removes a group, or all of them, with checkpoints and dead letters. Who is at work gets `SubscriptionNotFound`. */
  delete(name: string, group?: string): Promise<void>
}

export function openAdministration(parts: SubscriptionParts): Administration {
  const { log, wake } = parts

  /** Changes the rows of a group, or of all. */
  const change = async (
    name: string,
    group: string | undefined,
    work: (tx: Transaction, names: string[]) => Promise<void>,
  ): Promise<void> => {
    await log.database.transaction(async tx => {
      const rows = await tx.run<{ name: string }>(sql`/* subscriptions.change */
        select name
        from ${consumerNames(log).consumers}
        where kind = 'subscription'
          and definition ->> 'subscription' = ${name}::text
          and (${group ?? null}::text is null or definition ->> 'group' = ${group ?? null}::text)
        order by name
        for update`)
      if (rows.length === 0) throw await notFound(log, tx, name, group)
      await work(
        tx,
        rows.map(row => row.name),
      )
    })
    wake.changed()
  }

  return {
    async list() {
      const byName = new Map<string, { name: string; filter: StoredFilter; groups: string[] }>()
      for (const { subscription, group, filter } of await storedPlans(log, log.database)) {
        const known = byName.get(subscription) ?? { name: subscription, filter, groups: [] }
        byName.set(subscription, known)
        if (!known.groups.includes(group)) known.groups.push(group)
      }
      return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
    },
    groups: name => readGroups(log, name),
    async status(name, group = 'default') {
      return (await readGroups(log, name, group))[0]!
    },
    pause: (name, group) =>
      change(name, group, async (tx, names) => {
        await operator.pause(log, names, tx)
      }),
    resume: (name, group) =>
      change(name, group, async (tx, names) => {
        await operator.resume(log, names, tx, { keepsHolder: true })
      }),
    async reset(name, position, group) {
      checkPosition('position', position)
      const { head } = await settle(log)
      if (position > head)
        throw new InvalidOption({ option: 'position', reason: `is ${position}, beyond the head of the log, ${head}` })
      await change(name, group, async (tx, names) => {
        await tx.run(sql`/* subscriptions.forget */
          delete from ${subscriptionNames(log).deliveries}
          where consumer = any(${names}::text[])`)
        await operator.reset(log, names, position, tx)
      })
    },
    async setMaxInFlight(name, group, maxInFlight) {
      checkWhole('maxInFlight', maxInFlight, 1)
      await change(name, group, async (tx, names) => {
        if (maxInFlight < names.length)
          throw new InvalidOption({
            option: 'maxInFlight',
            reason: `must be at least 1 for each of ${names.length} partitions`,
          })
        await operator.change(log, names, { definition: { maxInFlight }, keepsHolder: true }, tx)
      })
    },
    repartition: (name, group, partitions, options = {}) => repartition(parts, { name, group }, partitions, options),
    async delete(name, group) {
      await change(name, group, async (tx, names) => {
        await tx.run(sql`/* subscriptions.delete_deliveries */
          delete from ${subscriptionNames(log).deliveries}
          where consumer = any(${names}::text[])`)
        await operator.remove(log, names, tx)
      })
    },
  }
}
