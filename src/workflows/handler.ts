/** A handler as it is registered: what it wants, how it is run, and what of that is stored as its route. */
import type { StartFrom } from '../consumers/consumer.ts'
import type { Awaitable } from '../core/core.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { Backoff } from '../core/retry.ts'
import { checkWhole } from '../core/whole.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import type { DeadLetterReason } from './dead-letters/letters.ts'
import type { HandlerResult } from './emit.ts'
import type { Transition } from './transition.ts'

/** One failure for good, as `onFailure` sees it. */
export interface TerminalFailure {
  readonly error: unknown
  readonly reason: DeadLetterReason
  /** How often it was tried; a retry of its dead letter counts anew. */
  readonly attempts: number
}

export interface RateLimit {
  readonly limit: number
  readonly perMs: number
}

export interface HandlerOptions<M extends EventMap, T extends keyof M & string, E extends keyof M & string> {
  /** Its durable name: the same as long as it is the same handler, whatever file it is in. */
  name: string
  /** Raised when changed code must not go on with what older code has begun. Default 1. */
  version?: number | undefined
  /** How many more times after the first try. Default 0. */
  retries?: number | undefined
  /** The waits between tries. Default 1 s, doubling to 256 s, half of it left to chance. */
  backoff?: Partial<Backoff> | undefined
  /** False for errors that no retry can mend. */
  isRetryable?: ((error: unknown) => boolean) | undefined
  /** How long one attempt may run, waits left out. Default 30 000. */
  timeoutMs?: number | undefined
  /** How long after its event an execution may end: attempts, waits and retries. Default: no limit. */
  deadlineMs?: number | undefined
  /** Lower comes first, but nothing waits for ever: a step is worth ten seconds. Default 10. */
  priority?: number | undefined
  /** How long after its event it is run. Default 0. */
  delayMs?: number | undefined
  /** Strictly one at a time, in the order of the log: per workflow, or per key. Default false. */
  ordered?: boolean | ((event: RecordedEvent<Pick<M, T>>) => string) | undefined
  /** Short code that only uses the database, run where events are dispatched, in that transaction. Default false. */
  inline?: boolean | undefined
  /** How long an inline run may take before it is queued instead. Default 100. */
  inlineMs?: number | undefined
  /** The most that run at once, in all processes; or per key. Default: no limit. */
  concurrency?:
    | number
    | { limit?: number; perKey: number; key: (event: RecordedEvent<Pick<M, T>>) => string }
    | undefined
  /** The most that are begun in a time, in all processes. */
  rate?: RateLimit | undefined
  /** What becomes of an ordered lane when its head is a dead letter: go on (default), or park until that is seen to. */
  onDead?: 'continue' | 'park' | undefined
  /** Whether it wants this event at all; asked by the worker. */
  when?: ((event: RecordedEvent<Pick<M, T>>) => boolean) | undefined
  /** Whether the event changes an aggregate in a way it wants: `transition(Order, (before, after) => …)`. */
  transition?: Transition | undefined
  /** Called when a worker starts, before it takes anything. */
  init?: (() => Awaitable<unknown>) | undefined
  /** The types it may emit; anything else is refused. Default: any. */
  emits?: readonly E[] | undefined
  /**
   * When it has failed for good: what it emits to tell of that, which never runs this handler; within 5 seconds. Or
   * 'compensate', to undo what the workflow has done.
   */
  onFailure?:
    | 'compensate'
    | ((failure: TerminalFailure, event: RecordedEvent<Pick<M, T>>) => Awaitable<HandlerResult>)
    | undefined
  /** Where it begins when it is new. Default 'now'. */
  startFrom?: StartFrom | undefined
}

export type HandlerKind = 'queued' | 'ordered' | 'inline' | 'join' | 'undo'

/** What is stored of a handler: all that whoever lacks its code has to know. */
export interface RouteDefinition {
  readonly retries: number
  readonly backoff: Backoff
  readonly ordered: boolean
  readonly keyed: boolean
  readonly keyConcurrency?: number | undefined
  readonly onDead: 'continue' | 'park'
  readonly emits?: readonly string[] | undefined
  readonly join?: JoinDefinition | undefined
}

export interface JoinDefinition {
  readonly policy: 'all' | 'all-settled' | 'quorum' | 'first'
  readonly quorum?: number | undefined
  readonly timeoutMs?: number | undefined
  readonly onTimeout: 'dead-letter' | 'partial'
}

/** What a run gets besides its event; what it is made of is known to `context.ts`. */
export type Run = (event: unknown, ctx: never) => Awaitable<HandlerResult>

export interface Handler {
  readonly name: string
  readonly version: number
  readonly kind: HandlerKind
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
  readonly startFrom: StartFrom
  readonly keyOf: ((event: RecordedEvent) => string) | undefined
  readonly when: ((event: RecordedEvent) => boolean) | undefined
  readonly transition: Transition | undefined
  readonly init: (() => Awaitable<unknown>) | undefined
  readonly isRetryable: ((error: unknown) => boolean) | undefined
  readonly onFailure:
    | 'compensate'
    | ((failure: TerminalFailure, event: RecordedEvent) => Awaitable<HandlerResult>)
    | undefined
  readonly run: Run
}

export type AnyHandlerOptions = HandlerOptions<UntypedEvents, string, string>

/** Refuses what could only fail later. */
export function defineHandler(
  types: readonly string[] | undefined,
  options: AnyHandlerOptions,
  run: Run,
  more: { kind?: 'join' | 'undo'; join?: JoinDefinition } = {},
): Handler {
  const { name, version = 1, retries = 0, timeoutMs = 30_000, priority = 10, delayMs = 0, inlineMs = 100 } = options
  checkName('Handler', name)
  for (const type of types ?? []) checkName('Event type', type)
  if (types?.length === 0)
    throw new InvalidOption({ option: 'types', reason: `of handler "${name}" are an empty list` })
  if (typeof run !== 'function')
    throw new InvalidOption({ option: 'run', reason: `of handler "${name}" is no function` })
  checkWhole('version', version, 1)
  checkWhole('retries', retries, 0)
  checkWhole('timeoutMs', timeoutMs, 1)
  checkWhole('delayMs', delayMs, 0)
  checkWhole('inlineMs', inlineMs, 1)
  if (options.deadlineMs !== undefined) checkWhole('deadlineMs', options.deadlineMs, delayMs + 1)
  if (!Number.isSafeInteger(priority) || Math.abs(priority) > 1000)
    throw new InvalidOption({
      option: 'priority',
      reason: `must be a whole number from -1000 to 1000, not ${priority}`,
    })
  const backoff: Backoff = { baseMs: 1000, factor: 2, maxMs: 256_000, jitter: 0.5, ...options.backoff }
  const { keyOf, keyConcurrency, concurrency } = keysOf(name, options)
  checkRate(options.rate)
  const ordered = (options.ordered ?? false) !== false || options.inline === true
  if (options.inline === true && (keyOf !== undefined || concurrency !== undefined || options.rate !== undefined))
    throw new InvalidOption({ option: 'inline', reason: `handler "${name}" cannot be limited or keyed too` })
  if (options.onDead === 'park' && !ordered)
    throw new InvalidOption({ option: 'onDead', reason: `of handler "${name}" parks a lane: it has to be ordered` })
  const definition: RouteDefinition = {
    ...{ retries, backoff, ordered, keyed: keyOf !== undefined, keyConcurrency },
    ...{ onDead: options.onDead ?? 'continue', emits: options.emits, join: more.join },
  }
  const { deadlineMs, rate, startFrom = 'now', when, transition, init, isRetryable, onFailure } = options
  const kind = more.kind ?? (options.inline === true ? 'inline' : ordered ? 'ordered' : 'queued')
  return {
    ...{
      name,
      version,
      kind,
      types,
      definition,
      priority,
      delayMs,
      timeoutMs,
      deadlineMs,
      concurrency,
      rate,
      inlineMs,
    },
    ...{ startFrom, keyOf, when, transition, init, isRetryable, run, onFailure: onFailure as Handler['onFailure'] },
  }
}

function keysOf(
  name: string,
  { ordered, concurrency }: AnyHandlerOptions,
): Pick<Handler, 'keyOf' | 'concurrency'> & { keyConcurrency: number | undefined } {
  const orderedBy = typeof ordered === 'function' ? ordered : undefined
  if (typeof concurrency !== 'object') {
    if (concurrency !== undefined) checkWhole('concurrency', concurrency, 1)
    return { keyOf: orderedBy, keyConcurrency: undefined, concurrency }
  }
  if ((ordered ?? false) !== false)
    throw new InvalidOption({
      option: 'concurrency',
      reason: `of handler "${name}" per key is 1 already: it is ordered`,
    })
  checkWhole('concurrency.perKey', concurrency.perKey, 1)
  if (concurrency.limit !== undefined) checkWhole('concurrency.limit', concurrency.limit, 1)
  return { keyOf: concurrency.key, keyConcurrency: concurrency.perKey, concurrency: concurrency.limit }
}

function checkRate(rate: RateLimit | undefined): void {
  if (rate === undefined) return
  checkWhole('rate.limit', rate.limit, 1)
  checkWhole('rate.perMs', rate.perMs, 1)
}
