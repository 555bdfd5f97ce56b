/**
 * The status of a tenant: its version, its differences from the declarations, its size, and how far its consumers are
 * behind.
 */
import { readStatus } from '../consumers/status.ts'
import type { Database } from '../database/database.ts'
import { identifier, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import type { Schema } from '../schema/schema.ts'
import { readTableFacts } from '../schema/table-facts.ts'
import type { Placement } from './placement.ts'

export interface TenantStatus extends Placement {
  /** The last migration it has had; 0 if it has no store yet. */
  readonly version: number
  /** The objects that a sync would make. */
  readonly pending: readonly string[]
  /** The differences from its migrations and declarations. */
  readonly drift: readonly string[]
  /** The size of all its tables and indexes. */
  readonly bytes: number
  /** The number of events, as the server estimates it. */
  readonly events: number
  /** The highest position drawn. */
  readonly head: number
  /** How many positions the slowest consumer is behind. Paused consumers do not count. */
  readonly lag: number
}

export async function readTenantStatus(
  placement: Placement,
  { database, schema, log }: { database: Database; schema: Schema; log: Log },
): Promise<TenantStatus> {
  const { status, pending } = await schema.state()
  if (status === 'missing')
    return { ...placement, version: 0, pending, drift: [], bytes: 0, events: 0, head: 0, lag: 0 }
  const { problems } = await schema.check()
  const [row] = await database.run<{ version: number }>(sql`/* tenants.version */
    select coalesce(max(id), 0) as version
    from ${identifier(placement.schema, 'migrations')}`)
  const facts = await readTableFacts(database, placement.schema)
  const { head } = await settle(log)
  const consumers = await readStatus(log)
  const lags = consumers.filter(({ isPaused, state }) => !isPaused && state !== 'inline').map(({ lag }) => lag)
  return {
    ...placement,
    version: row!.version,
    pending,
    drift: problems.map(({ object, problem }) => `${object} ${problem}`),
    bytes: [...facts.values()].reduce((sum, { bytes }) => sum + bytes, 0),
    events: Math.max(0, facts.get('events')?.estimate ?? 0),
    head,
    lag: Math.max(0, ...lags),
  }
}
