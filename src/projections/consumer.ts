/**
 * A projection as a consumer of the log, and the tables it needs before it can be one.
 *
 *     projectionConsumer   applies events to the tables of the projection
 *     shadowConsumer       applies them to the tables that a rebuild fills, with a row and a checkpoint of its own
 *     inPlaceConsumer      applies them to its only tables, which a rebuild has emptied
 */
import { type BatchContext, type Consumer, consumer } from '../consumers/consumer.ts'
import type { Database } from '../database/database.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { planTables } from '../schema/plan.ts'
import type { Schema } from '../schema/schema.ts'
import { ProjectionNotSynced } from './errors.ts'
import type { ApplyContext, Projection } from './projection.ts'
import { shadowOf, type TableNames, tableNames } from './table.ts'

export type Prepare = (projection: Projection, signal?: AbortSignal) => Promise<void>

export function projectionConsumer(log: Log, projection: Projection, prepare: Prepare): Consumer {
  const { name, filter, options } = projection
  const handle = handlerOf(projection, tableNames(log.schema, projection), false)
  const tables = projection.tables.map(({ declared }) => declared.name)
  const self = consumer({ name, kind: 'projection', filter, tables, handle }, options)
  return { ...self, prepare: signal => prepare(projection, signal) }
}

export function shadowConsumer(log: Log, projection: Projection): Consumer {
  const { filter, options } = projection
  const handle = handlerOf(projection, tableNames(log.schema, projection, shadowOf), true)
  return consumer({ name: shadowName(projection), kind: 'projection', filter, handle }, options)
}

export function inPlaceConsumer(log: Log, projection: Projection): Consumer {
  const { name, filter, options } = projection
  const handle = handlerOf(projection, tableNames(log.schema, projection), true)
  return consumer({ name, kind: 'projection', filter, handle }, options)
}

/** The name of the row of a rebuild. */
export function shadowName({ name }: Pick<Projection, 'name'>): string {
  return `${name}${shadowMark}`
}

const shadowMark = '__rebuild'

function handlerOf(projection: Projection, tables: TableNames, isRebuild: boolean): Consumer['handle'] {
  return (events: readonly RecordedEvent[], ctx: BatchContext) => {
    const { tx, signal, attempt, isReplay } = ctx
    const context: ApplyContext = {
      ...{ tx, tables, signal, attempt, isReplay, isRebuild },
      isInline: false,
      at: event => ctx.at(event),
    }
    return projection.apply(events, context)
  }
}

/**
 * Makes sure that the tables of a projection exist before its code runs: once per store, never per event. Where the
 * store may change the schema they are made on demand; where it may not, `ProjectionNotSynced` names the call that
 * makes them.
 */
export function openPreparation(database: Database, schema: Schema, syncs: boolean): Prepare {
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
