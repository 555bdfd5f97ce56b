/**
 * A projection as this folder sees it: whichever kind it is, it is a filter, some tables, and a function that applies
 * events to them. From this one form come the async consumer, the inline projection and the rebuild.
 *
 *     defineProjection('order-totals', {
 *       events,                                                 types the handlers
 *       tables: { order_totals: { columns: { customer: 'text', cents: 'bigint' }, primaryKey: ['customer'] } },
 *       on: {
 *         OrderPlaced: (event, ctx) => ctx.tx.query(`insert into ${ctx.table('order_totals')} …`, [event.data.cents]),
 *       },
 *     })
 */

import { type ConsumerFilter, type ConsumerOptions, consumerOptionNames } from '../consumers/consumer.ts'
import { EventTypeUnhandled } from '../consumers/errors.ts'
import type { Awaitable } from '../core/core.ts'
import { checkDefinition, type Definition } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import { describe, refuseUnknownOptions } from '../core/options.ts'
import type { Transaction } from '../database/database.ts'
import type {
  EventDefinitions,
  EventKey,
  EventMap,
  EventsCarried,
  RecordedEvent,
  RecordedEventAt,
  UntypedEvents,
} from '../events/definition.ts'
import {
  type ColumnDefinitions,
  declareTable,
  type ProjectionTable,
  type TableDefinitions,
  type TableNames,
  versionTables,
} from './table.ts'

/**
 * 'inline': applied in the transaction of the append. 'async': applied soon after it, by a runner. 'live': stored nowhere,
 * folded when it is read.
 */
export type Lifecycle = 'inline' | 'async' | 'live'

/** The one form of all kinds. */
export interface Projection<M extends EventMap = never> extends Definition<'projection'> {
  /** Absent at run time: it carries the types. A projection on some of a store's events fits that store. */
  readonly '~events'?: ((map: M) => void) | undefined
  /** With the version, if that is not 1: `order-totals@2`. */
  readonly name: string
  readonly version: number
  readonly lifecycle: Lifecycle
  readonly filter: ConsumerFilter
  readonly tables: readonly ProjectionTable[]
  readonly options: ConsumerOptions
  /** The text of its code: a rebuild that was interrupted is resumed by the same code only. */
  readonly source: string
  apply(events: readonly RecordedEvent[], ctx: ApplyContext): Promise<void>
  /** Empties the read model, for one that is rebuilt in place. */
  readonly reset: ((ctx: ProjectionContext) => Awaitable<unknown>) | undefined
  /** Folds the events of one stream; undefined where a read model is more than that. */
  readonly fold: ((document: unknown, event: RecordedEvent) => unknown) | undefined
}

/**
 * The context that a projection's code gets with an event.
 *
 * @example
 * ```ts
 * const log = (event: RecordedEvent, { tx }: ProjectionContext) =>
 *   tx.query('insert into audit (stream) values ($1)', [event.stream])
 * ```
 */
export interface ProjectionContext {
  readonly projection: string
  /** The open transaction: its writes are committed together with the checkpoint, or not at all. */
  readonly tx: Transaction
  /** The name of one of the projection's tables, quoted, to be put into SQL. */
  table(name: string): string
  /** Aborts when the time of the handler is over. */
  readonly signal: AbortSignal
  /** How often the event has been tried, this time included. */
  readonly attempt: number
  /** True for a dead letter that is tried again: newer events were applied before. */
  readonly isReplay: boolean
  /** True while the read model is being rebuilt: send no mails. */
  readonly isRebuild: boolean
}

export interface ApplyContext extends Omit<ProjectionContext, 'projection' | 'table'> {
  readonly tables: TableNames
  /** Says which event is being worked on, so that a failure counts for that event; undefined: all of them at once. */
  at(event: RecordedEvent | undefined): void
  /** Other transactions may be writing the same rows: lock them in order. */
  readonly isInline: boolean
}

/** The options that all kinds share. */
export interface ProjectionOptions<M extends EventMap> extends ConsumerOptions {
  /** The events of the store; only their types are used. */
  readonly events?: EventDefinitions<M> | undefined
  /** Default 'async'. */
  readonly lifecycle?: Lifecycle | undefined
  /** Runs side by side with other versions, with a checkpoint and tables of its own. Default 1. */
  readonly version?: number | undefined
  /** Narrows down the events further than by the types it has code for. */
  readonly filter?: Omit<ConsumerFilter, 'types'> | undefined
}

const commonFields = ['events', 'lifecycle', 'version', 'filter', ...consumerOptionNames]

export interface ProjectionDefinition<
  M extends EventMap,
  Type extends string,
  Tables extends Readonly<Record<string, ColumnDefinitions>>,
> extends ProjectionOptions<M> {
  /** Handlers by type; `'*'` is for events of all types that have none of their own. */
  readonly on: {
    readonly [T in Type]: (event: RecordedEventAt<NoInfer<M>, T>, ctx: ProjectionContext) => Awaitable<unknown>
  }
  /** The tables it writes, by name. A rebuild fills new ones while these are read, and then replaces them. */
  readonly tables?: TableDefinitions<Tables> | undefined
  /** Deletes its own writes, in its transaction. A projection without tables needs it for a rebuild. */
  readonly reset?: ((ctx: ProjectionContext) => Awaitable<unknown>) | undefined
}

/**
 * Defines a projection in SQL of your own.
 *
 * @example
 * ```ts
 * const mails = defineProjection('mails', {
 *   events,
 *   tables: { mails: { columns: { stream: 'text', customer: 'text' }, primaryKey: ['stream'] } },
 *   on: {
 *     OrderPlaced: ({ stream, data }, { tx, table }) =>
 *       tx.query(`insert into ${table('mails')} values ($1, $2)`, [stream, data.customer]),
 *   },
 * })
 * ```
 */
export function defineProjection<
  M extends EventMap = UntypedEvents,
  Type extends EventKey<NoInfer<M>> = EventKey<NoInfer<M>>,
  Tables extends Readonly<Record<string, ColumnDefinitions>> = Readonly<Record<string, ColumnDefinitions>>,
>(name: string, definition: ProjectionDefinition<M, Type, Tables>): Projection<EventsCarried<M>> {
  checkDefinition('defineProjection', name, definition)
  const handlers = handlersOf<(event: RecordedEvent, ctx: ProjectionContext) => Awaitable<unknown>>(
    name,
    'on',
    definition.on,
  )
  const tables = Object.entries(definition.tables ?? {}).map(([table, given]) => declareTable(table, given))
  return Object.freeze(
    checkLifecycle({
      ...commonParts(name, definition, handlers, ['on', 'tables', 'reset']),
      tables: versionTables(tables, definition.version ?? 1),
      reset: definition.reset,
      fold: undefined,
      async apply(events: readonly RecordedEvent[], ctx: ApplyContext) {
        const given = userContext(name, ctx)
        for (const [i, event] of events.entries()) {
          ctx.at(event)
          // Only the first can have failed before.
          await handlerFor(handlers, name, event)(event, i === 0 ? given : { ...given, attempt: 1 })
        }
      },
    }),
  )
}

/** The part of a context that a handler sees. */
export function userContext(name: string, ctx: ApplyContext): ProjectionContext {
  const { tx, signal, attempt, isReplay, isRebuild, tables } = ctx
  return { projection: name, tx, signal, attempt, isReplay, isRebuild, table: table => tables(table).quoted }
}

/** Name, version, lifecycle, filter and options, checked. `fields` are the options that only this kind has. */
export function commonParts(
  name: string,
  given: Omit<ProjectionOptions<EventMap>, 'events'>,
  handlers: ReadonlyMap<string, unknown>,
  fields: readonly string[],
): Pick<Projection, 'kind' | 'name' | 'version' | 'lifecycle' | 'filter' | 'options' | 'source'> {
  const { version = 1, lifecycle = 'async', filter } = given
  checkName('Consumer', name)
  refuseUnknownOptions(`Projection "${name}"`, given, [...commonFields, ...fields])
  if (!Number.isInteger(version) || version < 1 || version > 9999) {
    const reason = `Projection "${name}" has the version ${describe(version)}. It must be a whole number from 1 to 9999.`
    throw new InvalidOption({ option: 'version', reason })
  }
  const types = [...handlers.keys()]
  return {
    kind: 'projection',
    name: version === 1 ? name : `${name}@${version}`,
    ...{ version, lifecycle },
    filter: types.includes('*') ? { ...filter } : { ...filter, types },
    options: Object.fromEntries(consumerOptionNames.map(option => [option, given[option]])),
    source: sourceOf(given),
  }
}

/** The text of a definition, with its functions. Its lifecycle does not change how it applies an event. */
function sourceOf(given: object): string {
  return JSON.stringify(given, (key, value) => {
    if (key === 'events' || key === 'lifecycle') return undefined
    return typeof value === 'function' ? String(value) : value
  })
}

/** The handlers by type. */
export function handlersOf<H>(name: string, field: 'on' | 'evolve', given: object): ReadonlyMap<string, H> {
  const handlers = new Map<string, H>()
  for (const [type, handler] of Object.entries(given ?? {})) {
    if (handler === undefined) continue
    if (typeof handler !== 'function') {
      const reason = `Projection "${name}" needs a function as "${field}.${type}", and has ${describe(handler)}.`
      throw new InvalidOption({ option: `${field}.${type}`, reason })
    }
    handlers.set(type, handler as H)
  }
  if (handlers.size > 0) return handlers
  const reason = `Projection "${name}" has no handlers in "${field}". Give a function for each type of event that it follows.`
  throw new InvalidOption({ option: field, reason })
}

/** A dead letter may come back after its handler was removed, so a type can be without one. */
export function handlerFor<H>(handlers: ReadonlyMap<string, H>, name: string, event: RecordedEvent): H {
  const handler = handlers.get(event.type) ?? handlers.get('*')
  if (handler === undefined) throw new EventTypeUnhandled({ consumer: name, type: event.type })
  return handler
}

/** Refuses a lifecycle that the projection cannot have, and returns the projection. */
export function checkLifecycle<P extends Projection>(projection: P): P {
  const { name, lifecycle, fold, filter } = projection
  const refuse = (reason: string): never => {
    throw new InvalidOption({ option: 'lifecycle', reason: `Projection "${name}" ${reason}` })
  }
  if (!['inline', 'async', 'live'].includes(lifecycle))
    refuse(`has the lifecycle ${describe(lifecycle)}. It must be 'inline', 'async' or 'live'.`)
  if (lifecycle === 'async') return projection
  if (lifecycle === 'live' && fold === undefined)
    refuse(`cannot be live: only a document projection without "identity" is the fold of one stream.`)
  if (hasFurtherFilter(filter))
    refuse(
      `cannot be ${lifecycle}: it has a filter, and ${lifecycle} projections choose events by types alone. Leave "filter" out, or make it async.`,
    )
  return projection
}

/** The name that all versions of a projection share. */
export function withoutVersion(name: string): string {
  return name.replace(/@\d+$/, '')
}

/** Whether events are chosen by more than their types. */
export function hasFurtherFilter({ types: _, ...rest }: ConsumerFilter): boolean {
  return Object.values(rest).some(each => each !== undefined)
}
