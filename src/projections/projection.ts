/**
 * A projection as this folder sees it: whichever kind it is, it is a filter, some tables, and a function that applies
 * events to them. From this one form come the async consumer, the inline projection and the rebuild.
 *
 *     projection('order-totals', {
 *       events: shopEvents,                                     types the handlers
 *       tables: [table('order_totals', { columns: …, primaryKey: ['customer'] })],
 *       on: {
 *         OrderPlaced: (event, ctx) => ctx.tx.query(`insert into ${ctx.table('order_totals')} …`, [event.data.total]),
 *       },
 *     })
 */

import type { ConsumerFilter, ConsumerOptions } from '../consumers/consumer.ts'
import { NoHandler } from '../consumers/errors.ts'
import type { Awaitable } from '../core/core.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { Transaction } from '../database/database.ts'
import type { EventDefinitions, EventMap, RecordedEvent, RecordedEventOf, UntypedEvents } from '../events/definition.ts'
import type { DeclaredTable } from '../schema/table.ts'
import { type ProjectionTable, type TableNames, versionTables } from './table.ts'

export type Lifecycle = 'inline' | 'async' | 'live'

/** The one form of all kinds. */
export interface Projection {
  /** With the version, if that is not 1: `order-totals@2`. */
  readonly name: string
  readonly version: number
  readonly filter: ConsumerFilter
  readonly tables: readonly ProjectionTable[]
  readonly options: ConsumerOptions
  /** The text of its code, to tell whether a rebuild that was cut off was made by the same. */
  readonly source: string
  /** Undefined where there is nothing to keep: it can only be folded when it is read. */
  readonly apply: ((events: readonly RecordedEvent[], ctx: ApplyContext) => Promise<void>) | undefined
  /** Empties the read model, for one that is rebuilt in place. */
  readonly reset: ((ctx: ProjectionContext) => Awaitable<unknown>) | undefined
  /** Folds the events of one stream, for what can be read without being kept. */
  readonly fold: ((document: unknown, event: RecordedEvent) => unknown) | undefined
}

/** What a projection's code is given beside the events. */
export interface ProjectionContext {
  readonly projection: string
  /** The open transaction: what is written in it counts if, and only if, the checkpoint moves past the event. */
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
  /** Says which event is being worked on, so that a failure can be told to be its; undefined: all of them at once. */
  at(event: RecordedEvent | undefined): void
  /** Others may be writing the same rows: lock them in order. */
  readonly isInline: boolean
}

/** What all kinds have in common. */
export interface ProjectionOptions<M extends EventMap = UntypedEvents> extends ConsumerOptions {
  /** The events there are; only their types are used, to type the handlers. */
  readonly events?: EventDefinitions<M> | undefined
  /** Runs beside other versions, with a checkpoint and tables of its own. Default 1. */
  readonly version?: number | undefined
  /** What it wants beside the types it has handlers for. */
  readonly filter?: Omit<ConsumerFilter, 'types'> | undefined
}

/** Handlers by type; `'*'` is for events of all types that have none of their own. */
export type ProjectionHandlers<M extends EventMap = UntypedEvents> = string extends keyof M
  ? { readonly [type: string]: (event: RecordedEvent, ctx: ProjectionContext) => Awaitable<unknown> }
  : {
      readonly [T in keyof M & string]?: (event: RecordedEventOf<T, M[T]>, ctx: ProjectionContext) => Awaitable<unknown>
    } & { readonly '*'?: (event: RecordedEvent<M>, ctx: ProjectionContext) => Awaitable<unknown> }

export interface CustomOptions<M extends EventMap = UntypedEvents> extends ProjectionOptions<M> {
  readonly on: ProjectionHandlers<NoInfer<M>>
  /** The tables it writes. With them it is rebuilt beside the old ones, and switched. */
  readonly tables?: readonly DeclaredTable[] | undefined
  /** Empties what it wrote, in its transaction. Without tables, the way to be rebuilt. */
  readonly reset?: ((ctx: ProjectionContext) => Awaitable<unknown>) | undefined
}

/** A projection in SQL of your own. */
export function projection<M extends EventMap = UntypedEvents>(name: string, options: CustomOptions<M>): Projection {
  const handlers = handlersOf<(event: RecordedEvent, ctx: ProjectionContext) => Awaitable<unknown>>(name, options.on)
  return {
    ...nameAndFilter(name, options, handlers),
    tables: versionTables(options.tables ?? [], options.version ?? 1),
    reset: options.reset,
    fold: undefined,
    async apply(events, ctx) {
      const given = userContext(name, ctx)
      for (const [i, event] of events.entries()) {
        ctx.at(event)
        // Only the first can have failed before.
        await handlerFor(handlers, name, event)(event, i === 0 ? given : { ...given, attempt: 1 })
      }
    },
  }
}

/** What a handler sees of a context. */
export function userContext(name: string, ctx: ApplyContext): ProjectionContext {
  const { tx, signal, attempt, isReplay, isRebuild, tables } = ctx
  return { projection: name, tx, signal, attempt, isReplay, isRebuild, table: table => tables(table).quoted }
}

/** Name, version, filter and options, checked. */
export function nameAndFilter(
  name: string,
  given: Omit<ProjectionOptions<EventMap>, 'events'>,
  handlers: ReadonlyMap<string, unknown>,
): Pick<Projection, 'name' | 'version' | 'filter' | 'options' | 'source'> {
  const { version = 1, filter, batchSize, leaseMs, timeoutMs, policy, breaker, startFrom } = given
  checkName('Consumer', name)
  if (!Number.isInteger(version) || version < 1 || version > 9999)
    throw new InvalidOption({ option: 'version', reason: `must be a whole number from 1 to 9999, not ${version}` })
  const types = [...handlers.keys()]
  return {
    name: version === 1 ? name : `${name}@${version}`,
    version,
    filter: types.includes('*') ? { ...filter } : { ...filter, types },
    options: { batchSize, leaseMs, timeoutMs, policy, breaker, startFrom },
    source: sourceOf(given),
  }
}

function sourceOf(given: object): string {
  return JSON.stringify(given, (key, value) => {
    if (key === 'events') return undefined
    return typeof value === 'function' ? String(value) : value
  })
}

/** The handlers by type, looked at once. */
export function handlersOf<H>(
  name: string,
  on: object,
  isHandler: (given: unknown) => boolean = given => typeof given === 'function',
): ReadonlyMap<string, H> {
  const handlers = new Map<string, H>()
  for (const [type, handler] of Object.entries(on ?? {})) {
    if (handler === undefined) continue
    if (!isHandler(handler))
      throw new InvalidOption({ option: `on.${type}`, reason: `of projection "${name}" is not a handler` })
    handlers.set(type, handler as H)
  }
  if (handlers.size === 0) throw new InvalidOption({ option: 'on', reason: `of projection "${name}" has no handlers` })
  return handlers
}

/** A dead letter may come back after its handler was taken out, so a type can be without one. */
export function handlerFor<H>(handlers: ReadonlyMap<string, H>, name: string, event: RecordedEvent): H {
  const handler = handlers.get(event.type) ?? handlers.get('*')
  if (handler === undefined) throw new NoHandler({ consumer: name, type: event.type })
  return handler
}
