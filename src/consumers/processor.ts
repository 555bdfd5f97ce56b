/**
 * A processor: a consumer that reacts to events by code of your own, one after the other, in a transaction with its
 * checkpoint. In contrast to a projection it keeps no read model, and it stops when an event cannot be applied.
 *
 *     defineProcessor('stock', {
 *       events,
 *       on: { OrderPlaced: [reserve, greet], OrderShipped: notify },      each event by itself
 *       batch: { OrderPaid: (events, { tx }) => book(events, tx) },       neighbours of one type together
 *     })
 *
 * Events keep the order of the log: a batch ends at the first event of another type. A runner runs it
 * (`store.start()`), or a program by hand: `await store.consumers.run(stock, { signal })` rejects with the error that
 * stopped it.
 */

import type { Awaitable } from '../core/core.ts'
import { checkDefinition, type Definition } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import { describe, refuseUnknownOptions } from '../core/options.ts'
import type { EventDefinitions, EventMap, RecordedEvent, RecordedEventOf, UntypedEvents } from '../events/definition.ts'
import { type BatchContext, type Consumer, type ConsumerOptions, consumer, consumerOptionNames } from './consumer.ts'
import { EventTypeUnhandled } from './errors.ts'

/** The context that a processor's code gets with an event. */
export type ProcessorContext = Omit<BatchContext, 'at'>

export type OneOrMore<T> = T | readonly T[]

export interface ProcessorDefinition<
  M extends EventMap,
  Single extends keyof M & string,
  Batched extends keyof M & string,
> extends ConsumerOptions {
  /** The events of the store; only their types are used. */
  readonly events?: EventDefinitions<M> | undefined
  /** For each type a function, or several that are called one after the other. */
  readonly on?:
    | { readonly [T in Single]: OneOrMore<(event: RecordedEventOf<T, M[T]>, ctx: ProcessorContext) => Awaitable<void>> }
    | undefined
  /** For each type a function of events of it that follow each other. A type is in `on` or in `batch`. */
  readonly batch?:
    | {
        readonly [T in Batched]: OneOrMore<
          (events: readonly RecordedEventOf<T, M[T]>[], ctx: ProcessorContext) => Awaitable<void>
        >
      }
    | undefined
  /** Events of other types: 'ignore' (default) does not read them, 'fail' makes each a failure. */
  readonly unknown?: 'ignore' | 'fail' | undefined
}

/** A processor, as it was defined. */
export interface Processor<M extends EventMap = never> extends Definition<'processor'> {
  /** Absent at run time: it carries the types. A processor of some of a store's events fits that store. */
  readonly '~events'?: ((map: M) => void) | undefined
  /** As the runner sees it. */
  readonly consumer: Consumer
}

/**
 * Defines a consumer that handles pages of events in the transaction of its checkpoint, and stops at an error.
 *
 * @example
 * ```ts
 * const counter = defineProcessor('counter', {
 *   events,
 *   on: { OrderShipped: ({ data }) => console.log(data.carrier) },
 * })
 * ```
 */
export function defineProcessor<
  M extends EventMap = UntypedEvents,
  Single extends keyof M & string = never,
  Batched extends keyof M & string = never,
>(name: string, definition: ProcessorDefinition<M, Single, Batched>): Processor<M> {
  checkDefinition('defineProcessor', name, definition)
  const what = `Processor "${name}"`
  refuseUnknownOptions(what, definition, ['events', 'on', 'batch', 'unknown', ...consumerOptionNames])
  const { batchSize = 100, unknown = 'ignore' } = definition
  const single = functionsOf<EventFunction>(what, 'on', definition.on ?? {})
  const batched = functionsOf<BatchFunction>(what, 'batch', definition.batch ?? {})
  const both = [...single.keys()].find(type => batched.has(type))
  if (both !== undefined) refuse('batch', `${what} has ${both} in "on" and in "batch". Leave it out of one of them.`)
  if (single.size + batched.size === 0)
    refuse('on', `${what} has no code. Give a function for each type of event: on: { OrderPlaced: event => … }.`)
  if (unknown !== 'ignore' && unknown !== 'fail')
    refuse('unknown', `${what} has ${describe(unknown)} as "unknown". It must be 'ignore' or 'fail'.`)
  const filter = unknown === 'fail' ? {} : { types: [...single.keys(), ...batched.keys()] }
  const built = consumer(
    { name, kind: 'processor', filter, handle: (events, ctx) => applyInOrder(name, single, batched, events, ctx) },
    { ...definition, batchSize },
    { onFailure: 'stop', pausesWhenStopped: false },
  )
  return Object.freeze({ kind: 'processor', name, consumer: built })
}

type EventFunction = (event: RecordedEvent, ctx: ProcessorContext) => Awaitable<void>
type BatchFunction = (events: readonly RecordedEvent[], ctx: ProcessorContext) => Awaitable<void>

async function applyInOrder(
  name: string,
  single: ReadonlyMap<string, readonly EventFunction[]>,
  batched: ReadonlyMap<string, readonly BatchFunction[]>,
  events: readonly RecordedEvent[],
  { at, ...context }: BatchContext,
): Promise<void> {
  for (let start = 0; start < events.length; ) {
    const { type } = events[start]!
    const inBatch = batched.get(type)
    const end = inBatch === undefined ? start + 1 : endOfBatch(events, start)
    const batch = events.slice(start, end)
    at(batch.length === 1 ? batch[0] : undefined)
    // Only the first event can have failed before.
    const ctx: ProcessorContext = start === 0 ? context : { ...context, attempt: 1 }
    if (inBatch !== undefined) for (const apply of inBatch) await apply(batch, ctx)
    else for (const apply of single.get(type) ?? unhandled(name, type)) await apply(batch[0]!, ctx)
    start = end
  }
}

function endOfBatch(events: readonly RecordedEvent[], start: number): number {
  let end = start + 1
  while (end < events.length && events[end]!.type === events[start]!.type) end++
  return end
}

function unhandled(consumer: string, type: string): never {
  throw new EventTypeUnhandled({ consumer, type })
}

function functionsOf<Fn>(what: string, option: 'on' | 'batch', given: object): Map<string, readonly Fn[]> {
  const functions = new Map<string, readonly Fn[]>()
  for (const [type, one] of Object.entries(given)) {
    if (one === undefined) continue
    checkName('Event type', type)
    const list: readonly unknown[] = Array.isArray(one) ? one : [one]
    if (list.length === 0 || list.some(fn => typeof fn !== 'function'))
      refuse(
        `${option}.${type}`,
        `${what} has ${describe(one)} as "${option}.${type}". It must be a function, or several.`,
      )
    functions.set(type, list as readonly Fn[])
  }
  return functions
}

function refuse(option: string, reason: string): never {
  throw new InvalidOption({ option, reason })
}
