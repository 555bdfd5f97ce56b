/** A projection as a consumer of the log, writing to its own tables or to those that are being built beside them. */
import { type BatchContext, type Consumer, consumer } from '../consumers/consumer.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import type { ApplyContext, Projection } from './projection.ts'
import { shadowOf, type TableNames, tableNames } from './table.ts'

export function projectionConsumer(
  log: Log,
  projection: Projection,
  prepare: (projection: Projection, signal?: AbortSignal) => Promise<void>,
): Consumer {
  const { name, filter, options } = projection
  const handle = handlerOf(projection, tableNames(log.schema, projection), false)
  const self = consumer({ name, kind: 'projection', filter, handle }, options)
  return { ...self, prepare: signal => prepare(projection, signal) }
}

/** The one that fills the new tables. It has a checkpoint of its own, so that it can go on after a crash. */
export function shadowConsumer(log: Log, projection: Projection): Consumer {
  const { filter, options } = projection
  const handle = handlerOf(projection, tableNames(log.schema, projection, shadowOf), true)
  return consumer({ name: shadowName(projection), kind: 'projection', filter, handle }, options)
}

/** The one that fills the only tables there are again. */
export function inPlaceConsumer(log: Log, projection: Projection): Consumer {
  const { name, filter, options } = projection
  const handle = handlerOf(projection, tableNames(log.schema, projection), true)
  return consumer({ name, kind: 'projection', filter, handle }, options)
}

export function shadowName(projection: Pick<Projection, 'name'>): string {
  return `${projection.name}${shadowMark}`
}

export function isShadow(name: string): boolean {
  return name.endsWith(shadowMark)
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
