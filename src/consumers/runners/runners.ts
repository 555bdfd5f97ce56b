/** The daemons of all processes: who is there, in which role, with which consumers. */

import { nearestName } from '../../core/nearest.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { Wake } from '../../events/order/wake.ts'
import { NodeNotFound } from '../errors.ts'
import { consumerNames } from '../schema.ts'
import type { Role } from './members.ts'

export interface DaemonDescription {
  /** A random id, a new one with each start. */
  readonly owner: string
  readonly node: string | undefined
  readonly role: Role
  readonly startedAt: Date
  /** How long ago it gave the last sign of life. */
  readonly heartbeatAgeMs: number
  /** Whether it counts as running. */
  readonly isAlive: boolean
  /** The consumers whose leases it holds. */
  readonly leases: readonly string[]
}

export interface Daemons {
  list(): Promise<DaemonDescription[]>
  /** Makes a node hot, and the hot node there is a standby. */
  promote(node: string): Promise<void>
  /** Makes a node a standby; the longest waiting other one becomes hot. */
  demote(node: string): Promise<void>
}

export function administerDaemons({ log, wake }: { readonly log: Log; readonly wake: Wake }): Daemons {
  const list = async (): Promise<DaemonDescription[]> => {
    const rows = await log.database.run<{
      owner: string
      node: string | null
      role: Role
      started_at: Date
      age_ms: number
      alive: boolean
      leases: string[] | null
    }>(sql`/* daemons.list */
      select
        d.owner,
        d.node,
        d.role,
        d.started_at,
        greatest(0, extract(epoch from ${log.names.clock}(d.heartbeat_at) - d.heartbeat_at) * 1000)::float8 as age_ms,
        d.heartbeat_at >= ${log.names.clock}(d.heartbeat_at) - make_interval(secs => d.lease_ms / 1000.0) as alive,
        (select array_agg(c.name order by c.name)
          from ${consumerNames(log).consumers} as c
          where c.owner = d.owner
            and c.lease_until > ${log.names.clock}(c.lease_until)) as leases
      from ${consumerNames(log).daemons} as d
      order by d.node nulls last, d.started_at, d.owner`)
    const sign = log.database.soleUser
    return rows.map(row => ({
      owner: row.owner,
      node: row.node ?? undefined,
      role: row.role,
      startedAt: row.started_at,
      heartbeatAgeMs: row.age_ms,
      isAlive: row.alive && (sign === undefined || row.owner.startsWith(`${sign}/`)),
      leases: row.leases ?? [],
    }))
  }

  const refuseUnknown = async (node: string): Promise<void> => {
    const nodes = (await list()).flatMap(each => (each.isAlive && each.node !== undefined ? [each.node] : []))
    if (!nodes.includes(node)) throw new NodeNotFound({ node, nearest: nearestName(node, nodes) })
  }

  return {
    list,
    async promote(node) {
      await refuseUnknown(node)
      await log.database.run(sql`/* daemons.promote */
        update ${consumerNames(log).daemons}
        set role = case when node = ${node}::text then 'hot' else 'standby' end
        where node is not null
          and (node = ${node}::text or role = 'hot')`)
      wake.changed()
    },
    async demote(node) {
      await refuseUnknown(node)
      // Last in the line of those who wait to become hot.
      await log.database.run(sql`/* daemons.demote */
        update ${consumerNames(log).daemons}
        set role = 'standby',
          started_at = ${log.names.clock}(started_at)
        where node = ${node}::text`)
      wake.changed()
    },
  }
}
