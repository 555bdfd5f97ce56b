/**
 * Makes sure that a projection's tables are there before its code runs: once per store, never per event. Where the store
 * may change the schema it does so on the spot; where it may not, it says what to call.
 */

import type { Database } from '../../database/database.ts'
import { planTables } from '../../schema/plan.ts'
import type { Schema } from '../../schema/schema.ts'
import { ProjectionNotSynced } from '../errors.ts'
import type { Projection } from '../projection.ts'

export type Prepare = (projection: Projection) => Promise<void>

export function preparation(database: Database, schema: Schema, syncs: boolean): Prepare {
  const prepared = new WeakSet<Projection>()
  return async projection => {
    if (projection.tables.length === 0 || prepared.has(projection)) return
    const tables = projection.tables.map(table => table.declared)
    const { steps } = await planTables(database, { schema: schema.name, tables })
    if (steps.length > 0 && !syncs) {
      const missing = [...new Set(steps.map(step => step.object))]
      throw new ProjectionNotSynced({ projection: projection.name, missing })
    }
    if (steps.length > 0) await schema.sync()
    prepared.add(projection)
  }
}
