/**
 * Handlers: code that runs because of events, defined without a store.
 *
 *     export const charge = defineHandler('charge', {
 *       events,
 *       on: 'OrderPlaced',
 *       retries: 5,
 *       run: async (event, { step, emit }) => emit('OrderPaid', { receipt: await step('charge', () => pay(event.data)) }),
 *     })
 *
 * A definition is checked here, so that an option which could only fail later fails at once. The facts that every
 * process needs, also one that lacks the handler's code, are stored as its route.
 */

import type { Awaitable } from '../core/core.ts'
import { checkDefinition, type Definition } from '../core/definition.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import { describe, refuseUnknownInside, refuseUnknownOptions } from '../core/options.ts'
import type { Backoff } from '../core/retry.ts'
import { backoffNames } from '../core/retry.ts'
import type { EventDefinitions, EventMap, EventsCarried, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import type { DeadLetterReason } from './dead-letters/record.ts'
import type { Emit, HandlerResult } from './emit.ts'
import type { HandlerContext } from './steps/context.ts'
import type { Transition } from './transition.ts'

export interface RateLimit {
  readonly limit: number
  readonly perMs: number
}

/** How handlers, joins and undos run. */
export interface RunOptions {
  /** Raise it when changed code must not continue executions that older code has begun. Default 1. */
  version?: number | undefined
  /** How often it is tried again after a failure. Default 3. */
  retries?: number | undefined
  /** The waits between attempts. Default 1 s, doubling to 256 s, half of it left to chance. */
  backoff?: Partial<Backoff> | undefined
  /** False for errors that no retry can fix. */
  isRetryable?: ((error: unknown) => boolean) | undefined
  /** How long one attempt may run, without its waits. Default 30 000. */
  timeoutMs?: number | undefined
  /** How long after its event an execution may end, with all attempts, waits and retries. Default: no limit. */
  deadlineMs?: number | undefined
  /** Lower comes first, but nothing waits for ever: a step of priority is worth ten seconds. Default 10. */
  priority?: number | undefined
  /** How long after its event it runs. Default 0. */
  delayMs?: number | undefined
  /** The most that run at once, in all processes. Default: no limit. */
  concurrency?: number | undefined
  /** The most that begin in a time, in all processes. */
  rate?: RateLimit | undefined
  /** Called when a worker starts, before it takes any work. */
  init?: (() => Awaitable<unknown>) | undefined
}

/** The action after the last attempt of an execution. `'park'` also stops its lane until an operator acts. */
export type FailureEnd = 'deadLetter' | 'skip' | 'stop' | 'park'

/**
 * One failed attempt.
 *
 * @example
 * ```ts
 * const isLate = ({ attempt }: HandlerFailure) => attempt > 3
 * ```
 */
export interface HandlerFailure<Event = RecordedEvent> {
  readonly handler: string
  readonly error: unknown
  /** How often it has been tried by now, from 1; a retry of its dead letter counts anew. */
  readonly attempt: number
  /** Undefined if it is no longer in the log. */
  readonly event: Event | undefined
}

/**
 * A failure for good, as `onDeadLetter` gets it.
 *
 * @example
 * ```ts
 * const why = ({ reason }: TerminalFailure) => reason
 * ```
 */
export interface TerminalFailure<Event = RecordedEvent> extends HandlerFailure<Event> {
  readonly reason: DeadLetterReason
  readonly event: Event
}

/** The options that handlers and joins share. */
export interface ReactOptions<M extends EventMap, T extends keyof M & string, E extends keyof M & string>
  extends RunOptions {
  /** The events of the store; only their types are used. */
  events?: EventDefinitions<M> | undefined
  /** The types it may emit; others are refused. Default: any. */
  emits?: readonly E[] | undefined
  /**
   * After the last attempt: a dead letter (default), nothing ('skip'), a paused handler ('stop') or a dead letter and a
   * parked lane ('park'). Or a function that is called after every failure, sets the limit itself, and may also return
   * 'retry'.
   */
  onFailure?:
    | FailureEnd
    | ((failure: HandlerFailure<HandledEvent<M, NoInfer<T>>>) => Awaitable<FailureEnd | 'retry'>)
    | undefined
  /**
   * Called when it was dead-lettered, to emit events that report that. They never run this handler. It may take 5
   * seconds. Or 'compensate', to run the undos of the workflow.
   */
  onDeadLetter?:
    | 'compensate'
    | ((
        failure: TerminalFailure<HandledEvent<M, NoInfer<T>>>,
        ctx: { readonly emit: Emit<M> },
      ) => Awaitable<HandlerResult<keyof M & string>>)
    | undefined
  /** Where it begins when it is new: 'now' (default), 'start', or after a position. */
  from?: 'start' | 'now' | number | undefined
  /** Whether it is paused when it is new: its executions queue until `handlers.resume`, or one is run by hand. Default false. */
  paused?: boolean | undefined
}

/** An event of these types; of any type where the events are not defined. */
export type HandledEvent<M extends EventMap, T extends keyof M & string> = string extends keyof M
  ? RecordedEvent
  : RecordedEvent<Pick<M, T>>

export interface HandlerOptions<M extends EventMap, T extends keyof M & string, E extends keyof M & string>
  extends Omit<ReactOptions<M, T, E>, 'concurrency'> {
  /** The event types it runs for: one, several, or all. */
  on: T | readonly T[] | '*'
  run(event: HandledEvent<M, NoInfer<T>>, ctx: HandlerContext<M, NoInfer<E>>): Awaitable<HandlerResult<NoInfer<E>>>
  /** Strictly one at a time, in the order of the log: per workflow, or per key. Default false. */
  ordered?: boolean | ((event: HandledEvent<M, NoInfer<T>>) => string) | undefined
  /** Short code that only uses the database, run where events are dispatched, in that transaction. Default false. */
  inline?: boolean | undefined
  /** How long an inline run may take before it is queued instead. Default 100. */
  inlineMs?: number | undefined
  /** The most that run at once, in all processes; or per key. Default: no limit. */
  concurrency?:
    | number
    | { limit?: number; perKey: number; key: (event: HandledEvent<M, NoInfer<T>>) => string }
    | undefined
  /** Whether it wants this event; called by the worker. */
  when?: ((event: HandledEvent<M, NoInfer<T>>) => boolean) | undefined
  /** Whether the event changes an aggregate in a way it wants: `transition(Order, (before, after) => …)`. */
  transition?: Transition | undefined
}

/** How the executions of a handler run: claimed, one after the other, by the dispatcher, for a batch, or to undo a step. */
export type HandlerKind = 'queued' | 'ordered' | 'inline' | 'join' | 'undo'

/** The part of a handler that is stored in its route. */
export interface RouteDefinition {
  readonly retries: number
  readonly backoff: Backoff
  readonly ordered: boolean
  readonly keyed: boolean
  readonly keyConcurrency?: number | undefined
  readonly onFailure: FailureEnd | 'asked'
  readonly emits?: readonly string[] | undefined
  readonly join?: JoinRoute | undefined
}

/** The part of a join that is stored in its route. */
export interface JoinRoute {
  readonly policy: 'all' | 'allSettled' | 'quorum' | 'first'
  readonly quorum?: number | undefined
  readonly timeoutMs?: number | undefined
  readonly onTimeout: 'deadLetter' | 'partial'
}

/** The function of a handler as it is called; its input is its event, the events of its batch, or a step to undo. */
export type RunFunction = (input: unknown, ctx: never) => Awaitable<HandlerResult>

/** A handler, a join or an undo, as it was defined. `M`: the events it needs. */
export interface Handler<M extends EventMap = never> extends Definition<'handler' | 'join' | 'undo'> {
  /** Absent at run time: it keeps a definition out of stores that lack its events. */
  readonly '~uses'?: ((events: M) => void) | undefined
  readonly version: number
  readonly runsAs: HandlerKind
  /** Undefined: all types. */
  readonly types: readonly string[] | undefined
  readonly definition: RouteDefinition
  readonly priority: number
  readonly delayMs: number
  readonly timeoutMs: number
  readonly deadlineMs: number | undefined
  readonly concurrency: number | undefined
  readonly rate: RateLimit | undefined
  readonly inlineMs: number
  readonly from: 'start' | 'now' | number
  readonly paused: boolean
  readonly keyOf: ((event: RecordedEvent) => string) | undefined
  readonly when: ((event: RecordedEvent) => boolean) | undefined
  readonly transition: Transition | undefined
  readonly init: (() => Awaitable<unknown>) | undefined
  readonly isRetryable: ((error: unknown) => boolean) | undefined
  readonly onFailure: FailureEnd | ((failure: HandlerFailure) => Awaitable<FailureEnd | 'retry'>)
  readonly onDeadLetter:
    | 'compensate'
    | ((failure: TerminalFailure, ctx: { readonly emit: Emit }) => Awaitable<HandlerResult>)
    | undefined
  readonly run: RunFunction
}

/**
 * Defines what happens because of an event: durably, with steps that are not done again, waits and emitted events.
 *
 * @example
 * ```ts
 * const ship = defineHandler('ship', {
 *   events,
 *   on: 'OrderPlaced',
 *   async run(event, { step, emit }) {
 *     const carrier = await step('book-carrier', async () => 'Swift')
 *     return emit('OrderShipped', { carrier }, { stream: event.stream })
 *   },
 * })
 * ```
 */
export function defineHandler<
  M extends EventMap = UntypedEvents,
  T extends keyof M & string = keyof M & string,
  E extends keyof M & string = keyof M & string,
>(name: string, definition: HandlerOptions<M, T, E>): Handler<EventsCarried<M>> {
  checkDefinition('defineHandler', name, definition)
  const what = `Handler "${name}"`
  refuseUnknownOptions(what, definition, [...reactOptions, ...ownOptions])
  return handlerOf('handler', name, definition as unknown as AnyHandlerOptions, typesOf(what, definition.on))
}

/** Options of any events, as the functions here see them. */
export type AnyHandlerOptions = HandlerOptions<UntypedEvents, string, string>

const runOptions = [
  ...['version', 'retries', 'backoff', 'isRetryable', 'timeoutMs', 'deadlineMs', 'priority', 'delayMs', 'concurrency'],
  ...['rate', 'init', 'events', 'emits', 'run'],
] as const
/** The names of the options that handlers and joins share. */
export const reactOptions: readonly string[] = [...runOptions, 'on', 'onFailure', 'onDeadLetter', 'from', 'paused']
/** The names of the options of undos. */
export const undoOptions: readonly string[] = runOptions
const ownOptions = ['ordered', 'inline', 'inlineMs', 'when', 'transition'] as const

/** Undefined: all types. */
export function typesOf(what: string, on: unknown): readonly string[] | undefined {
  if (on === '*') return undefined
  const types: unknown = typeof on === 'string' ? [on] : on
  if (!Array.isArray(types) || types.length === 0)
    throw refusal(
      what,
      'on',
      `needs at least one event type as "on", not ${describe(on)}. Name one, several, or all: '*'.`,
    )
  for (const type of types) checkName('Event type', type)
  return types
}

/** The checked definition. */
export function handlerOf<M extends EventMap>(
  kind: Handler['kind'],
  name: string,
  options: Omit<AnyHandlerOptions, 'on'>,
  types: readonly string[] | undefined,
  join?: JoinRoute,
): Handler<M> {
  const what = `${nouns[kind]} "${name}"`
  checkName('Handler', name)
  const { version = 1, retries = 3, timeoutMs = 30_000, priority = 10, delayMs = 0, inlineMs = 100 } = options
  const { inline = false, from = 'now', paused = false, onFailure = 'deadLetter', deadlineMs, rate } = options
  if (typeof options.run !== 'function')
    throw refusal(
      what,
      'run',
      `has no function to run: "run" is ${describe(options.run)}. Give it as a field: run(…) { … }.`,
    )
  checkCount(what, 'version', version, 1)
  checkCount(what, 'retries', retries, 0)
  checkCount(what, 'timeoutMs', timeoutMs, 1)
  checkCount(what, 'delayMs', delayMs, 0, maxWaitMs)
  checkCount(what, 'inlineMs', inlineMs, 1)
  checkCount(what, 'priority', priority, -1000, 1000)
  if (deadlineMs !== undefined) checkCount(what, 'deadlineMs', deadlineMs, delayMs + 1, maxWaitMs)
  if (from !== 'start' && from !== 'now') checkCount(what, 'from', from, 0, Number.MAX_SAFE_INTEGER)
  refuseUnknownInside(what, 'backoff', options.backoff, backoffNames)
  refuseUnknownInside(what, 'rate', rate, ['limit', 'perMs'])
  refuseUnknownInside(what, 'concurrency', options.concurrency, ['limit', 'perKey', 'key'])
  if (rate !== undefined) {
    checkCount(what, 'rate.limit', rate.limit, 1)
    checkCount(what, 'rate.perMs', rate.perMs, 1)
  }
  const backoff: Backoff = { baseMs: 1000, factor: 2, maxMs: 256_000, jitter: 0.5, ...options.backoff }
  const { keyOf, keyConcurrency, concurrency } = keysOf(what, options)
  if (inline && (keyOf !== undefined || concurrency !== undefined || rate !== undefined))
    throw refusal(what, 'inline', 'is inline, so it cannot have a key, a concurrency or a rate. Leave one of them out.')
  const ordered = (options.ordered ?? false) !== false || inline
  checkFailure(what, onFailure, ordered)
  const definition: RouteDefinition = {
    ...{ retries, backoff, ordered, keyed: keyOf !== undefined, keyConcurrency },
    ...{ onFailure: typeof onFailure === 'function' ? 'asked' : onFailure, emits: options.emits, join },
  }
  const { when, transition, init, isRetryable, onDeadLetter } = options
  const runsAs = kind === 'handler' ? (inline ? 'inline' : ordered ? 'ordered' : 'queued') : kind
  return Object.freeze({
    ...{ kind, name, version, runsAs, types, definition, priority, delayMs, timeoutMs, deadlineMs, concurrency, rate },
    ...{ inlineMs, from, paused, keyOf, when, transition, init, isRetryable },
    onFailure: onFailure as Handler['onFailure'],
    onDeadLetter: onDeadLetter as Handler['onDeadLetter'],
    run: options.run as unknown as RunFunction,
  })
}

const nouns = { handler: 'Handler', join: 'Join', undo: 'Undo' } as const

function keysOf(
  what: string,
  { ordered, concurrency }: Pick<AnyHandlerOptions, 'ordered' | 'concurrency'>,
): Pick<Handler, 'keyOf' | 'concurrency'> & { keyConcurrency: number | undefined } {
  const orderedBy = typeof ordered === 'function' ? ordered : undefined
  if (typeof concurrency !== 'object') {
    if (concurrency !== undefined) checkCount(what, 'concurrency', concurrency, 1)
    return { keyOf: orderedBy, keyConcurrency: undefined, concurrency }
  }
  if ((ordered ?? false) !== false)
    throw refusal(
      what,
      'concurrency',
      'is ordered, so one at a time runs per key. Leave out "concurrency" or "ordered".',
    )
  checkCount(what, 'concurrency.perKey', concurrency.perKey, 1)
  if (concurrency.limit !== undefined) checkCount(what, 'concurrency.limit', concurrency.limit, 1)
  return { keyOf: concurrency.key, keyConcurrency: concurrency.perKey, concurrency: concurrency.limit }
}

/** The ends that a failure can have, for checks. */
export const failureEnds: readonly FailureEnd[] = ['deadLetter', 'skip', 'stop', 'park']

function checkFailure(what: string, onFailure: unknown, ordered: boolean): void {
  if (typeof onFailure === 'function') return
  if (!(failureEnds as readonly unknown[]).includes(onFailure)) {
    const ends = failureEnds.map(end => `'${end}'`).join(', ')
    throw refusal(what, 'onFailure', `needs ${ends} or a function as "onFailure", not ${describe(onFailure)}.`)
  }
  if (onFailure === 'park' && !ordered)
    throw refusal(
      what,
      'onFailure',
      'parks a lane when it fails, and has none. Make it ordered, or choose another end.',
    )
}

/** The error of a definition or a call that cannot work: `what` is the subject of the sentence, `problem` the rest. */
export function refusal(what: string, option: string, problem: string): InstanceType<typeof InvalidOption> {
  return new InvalidOption({ option, reason: `${what} ${problem}` })
}

/** Refuses a value that is not a whole number within its bounds; by default those of the database's `integer`. */
/** A hundred years: the limit of all waits that the database keeps. */
export const maxWaitMs: number = 100 * 365 * 24 * 3600 * 1000

export function checkCount(what: string, option: string, value: unknown, min: number, max: number = 2 ** 31 - 1): void {
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return
  throw refusal(what, option, `needs a whole number from ${min} to ${max} as "${option}", not ${describe(value)}.`)
}
