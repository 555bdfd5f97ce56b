/**
 * What a processor does with each type of event: one handler or several, called in order, or one that takes whole runs.
 *
 *     handlers: { OrderPlaced: [reserve, greet], OrderShipped: notify }      each event by itself
 *     batch: { OrderPaid: events => book(events) }                           neighbours of one type together
 *
 * Events keep the order of the log: a run ends where an event of another type stands between.
 */

import type { Awaitable } from '../core/core.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { EventMap, RecordedEvent, RecordedEventOf } from '../events/definition.ts'
import type { BatchContext, Consumer, ConsumerFilter } from './consumer.ts'
import { NoHandler } from './errors.ts'

export type HandlerContext = Omit<BatchContext, 'at'>

export type EventHandler<Type extends string, Data> = (
  event: RecordedEventOf<Type, Data>,
  ctx: HandlerContext,
) => Awaitable<void>

export type RunHandler<Type extends string, Data> = (
  events: readonly RecordedEventOf<Type, Data>[],
  ctx: HandlerContext,
) => Awaitable<void>

export interface ProcessorHandlers<M extends EventMap> {
  /** For each type a handler, or several that are called one after the other. */
  handlers?: { readonly [T in keyof M & string]?: OneOrMore<EventHandler<T, M[T]>> } | undefined
  /** For each type a handler of events of it that follow each other. A type has either these or those above. */
  batch?: { readonly [T in keyof M & string]?: OneOrMore<RunHandler<T, M[T]>> } | undefined
  /** Types without a handler: never read ('ignore', the default), or a failure that the policy decides about ('fail'). */
  unknown?: 'ignore' | 'fail' | undefined
}

export type OneOrMore<T> = T | readonly T[]

/** The part of a consumer that follows from its handlers. Refuses what could only fail later. */
export function handlersOf<M extends EventMap>(
  name: string,
  { handlers = {}, batch = {}, unknown = 'ignore' }: ProcessorHandlers<M>,
): Pick<Consumer, 'filter' | 'handle'> {
  const single = listed<EventHandler<string, unknown>>('handlers', handlers)
  const runs = listed<RunHandler<string, unknown>>('batch', batch)
  const both = [...single.keys()].find(type => runs.has(type))
  if (both !== undefined) throw new InvalidOption({ option: 'batch', reason: `${both} has a handler in handlers, too` })
  if (single.size + runs.size === 0)
    throw new InvalidOption({ option: 'handlers', reason: `must have a handler for at least one type of event` })
  if (unknown !== 'ignore' && unknown !== 'fail')
    throw new InvalidOption({ option: 'unknown', reason: `must be 'ignore' or 'fail', not ${String(unknown)}` })
  const filter: ConsumerFilter = unknown === 'fail' ? {} : { types: [...single.keys(), ...runs.keys()] }

  return {
    filter,
    async handle(events, ctx) {
      for (let start = 0; start < events.length; ) {
        const { type } = events[start]!
        const inRun = runs.get(type)
        const end = inRun === undefined ? start + 1 : endOfRun(events, start)
        const run = events.slice(start, end)
        ctx.at(run.length === 1 ? run[0] : undefined)
        const { at: _, ...rest } = ctx
        const given: HandlerContext = start === 0 ? rest : { ...rest, attempt: 1 }
        if (inRun !== undefined) for (const fn of inRun) await fn(run, given)
        else for (const fn of single.get(type) ?? refuse(name, type)) await fn(run[0]!, given)
        start = end
      }
    },
  }
}

function endOfRun(events: readonly RecordedEvent[], start: number): number {
  let end = start + 1
  while (end < events.length && events[end]!.type === events[start]!.type) end++
  return end
}

function refuse(consumer: string, type: string): never {
  throw new NoHandler({ consumer, type })
}

function listed<Fn>(option: string, given: object): Map<string, readonly Fn[]> {
  const list = new Map<string, readonly Fn[]>()
  for (const [type, one] of Object.entries(given)) {
    if (one === undefined) continue
    checkName('Event type', type)
    const fns: readonly unknown[] = Array.isArray(one) ? one : [one]
    if (fns.length === 0 || fns.some(fn => typeof fn !== 'function'))
      throw new InvalidOption({ option: `${option}.${type}`, reason: 'must be a function, or a list of functions' })
    list.set(type, fns as readonly Fn[])
  }
  return list
}
