/**
 * The administration of subscriptions, in addition to that of every consumer (`store.consumers`): groups and their
 * partitions. Holders of the rows notice each change.
 */

import * as operator from '../consumers/operator.ts'
import { readRows } from '../consumers/row-names.ts'
import { type Named, nameOf } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkWhole, refusingUnknownOptions } from '../core/options.ts'
import { type Page, type PageOptions, pageOfAll } from '../core/page.ts'
import type { SubscriptionParts } from './group.ts'
import { notFound } from './groups.ts'
import { type RepartitionOptions, repartition } from './repartition.ts'
import { type GroupStatus, readGroups } from './status.ts'

export interface GroupOption {
  /** Default 'default'. */
  group?: string | undefined
}

export interface Administration {
  /** The groups of a subscription by name, with their partitions. */
  groups(subscription: Named, options?: PageOptions): Promise<Page<GroupStatus>>
  /** The most events of a group that may be delivered and not acknowledged, from now on. */
  setMaxInFlight(subscription: Named, maxInFlight: number, options?: GroupOption): Promise<void>
  /**
   * Changes the number of partitions. All of them run up to one position, in the runners that hold them; the new ones
   * begin there. Waits for that, up to `timeoutMs` (default 30 000).
   */
  repartition(subscription: Named, partitions: number, options?: RepartitionOptions & GroupOption): Promise<void>
}

export function openAdministration(parts: SubscriptionParts): Administration {
  const { log, wake } = parts
  const administration: Administration = {
    groups: async (subscription, options = {}) =>
      pageOfAll(
        'store.subscriptions.groups',
        await readGroups(log, nameOf(subscription)),
        options,
        ({ group }) => group,
      ),
    async setMaxInFlight(subscription, maxInFlight, { group = 'default' } = {}) {
      checkWhole('maxInFlight', maxInFlight, 1)
      const name = nameOf(subscription)
      await log.database.transaction(async tx => {
        const rows = await readRows(log, name, group, tx)
        if (rows.length === 0) throw await notFound(log, tx, name, group)
        if (maxInFlight < rows.length) {
          const reason = `Group "${group}" of subscription "${name}" has ${rows.length} partitions, so maxInFlight must be at least that, not ${maxInFlight}.`
          throw new InvalidOption({ option: 'maxInFlight', reason })
        }
        await operator.change(log, rows, { definition: { maxInFlight }, keepsHolder: true }, tx)
      })
      wake.changed()
    },
    repartition: async (subscription, partitions, { group = 'default', ...options } = {}) =>
      repartition(parts, { name: nameOf(subscription), group }, partitions, options),
  }
  return refusingUnknownOptions('store.subscriptions', administration, {
    setMaxInFlight: [2, ['group']],
    repartition: [2, ['group', 'timeoutMs', 'signal']],
  })
}
