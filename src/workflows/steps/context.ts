/** What a handler gets besides its event. */
import type { Awaitable } from '../../core/core.ts'
import type { Cutoff } from '../../core/cutoff.ts'
import type { Transaction } from '../../database/database.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../../events/definition.ts'
import type { Handler } from '../handler.ts'
import type { Claimed } from '../work/claim.ts'
import type { Attempt } from './attempt.ts'
import { type Child, type StartOptions, startChild } from './children.ts'
import { type Repeatable, repeatable } from './repeatable.ts'
import { type WaitOptions, waitForSignal } from './signals.ts'
import { type StepOptions, step, transactionalStep } from './steps.ts'
import { sleepFor } from './timers.ts'

/**
 * A handler that waits is run again from its top when the wait is over, as is one that is tried again: its steps are then
 * answered from memory. So all that may differ from run to run belongs into steps, and the time, ids and chance come from here.
 */
export interface HandlerContext<M extends EventMap = UntypedEvents> extends Repeatable {
  /** The same in every run, and no other one's: an idempotency key for whatever is called. */
  readonly executionId: string
  readonly correlationId: string
  readonly handler: string
  readonly version: number
  /** Which try this is, from 1; runs after a wait belong to the same. */
  readonly attempt: number
  /** Aborts when the run is over: its time is up, it was cancelled or taken over, or the worker stops. */
  readonly signal: AbortSignal
  /**
   * Does something once: its result, plain JSON, is recorded and answers all later runs. One that throws is run again by the
   * next attempt; a handler that goes on after it meets the same error (by name, message and code) after a wait.
   */
  step<T>(name: string, run: () => Awaitable<T>, options?: StepOptions): Promise<T>
  /** A step that writes to the database: its writes and its result are committed together, and only if this run still counts. */
  tx<T>(name: string, run: (tx: Transaction) => Awaitable<T>, options?: StepOptions): Promise<T>
  /** Waits at least this long; from a second on, without holding a worker. */
  sleep(ms: number): Promise<void>
  sleep(name: string, ms: number): Promise<void>
  /**
   * The first event of this type that came into the workflow after the handler's own, and that no other wait of this execution
   * was given. One that is left behind in a race still takes its event: give it a `timeoutMs` instead.
   */
  waitFor<T extends keyof M & string>(
    type: T,
    options?: WaitOptions & { timeoutMs?: undefined },
  ): Promise<RecordedEvent<Pick<M, T>>>
  /** The same, or nothing if none came in time. */
  waitFor<T extends keyof M & string>(type: T, options: WaitOptions): Promise<RecordedEvent<Pick<M, T>> | undefined>
  /** Publishes an event into a workflow of its own, once. */
  start<T extends keyof M & string>(type: T, data: M[T], options?: StartOptions): Promise<Child>
}

export interface ContextParts {
  readonly execution: Claimed
  readonly handler: Handler
  readonly cutoff: Cutoff
  /** The memory of this run, made when it is needed first. */
  open(): Attempt
  opened(): Attempt | undefined
}

export function handlerContext({ execution, handler, cutoff, open, opened }: ContextParts): HandlerContext<EventMap> {
  const { now, uuid, random } = repeatable(
    execution.id,
    () => opened()?.replay.now ?? execution.queuedAt,
    () => opened()?.replay.turn ?? 0,
  )
  const context = {
    executionId: execution.id,
    correlationId: execution.correlationId,
    attempt: execution.attempt,
    handler: handler.name,
    version: handler.version,
    join: execution.join?.info,
    get signal() {
      return cutoff.signal
    },
    now,
    uuid,
    random,
    step: (name: string, run: () => Awaitable<unknown>, options?: StepOptions) =>
      heeded(step(open(), name, run, options)),
    tx: (name: string, run: (tx: Transaction) => Awaitable<unknown>, options?: StepOptions) =>
      heeded(transactionalStep(open(), name, run, options)),
    sleep: (first: string | number, ms?: number) =>
      heeded(
        typeof first === 'string' ? sleepFor(open(), first, ms as number) : sleepFor(open(), 'sleep', first as number),
      ),
    waitFor: (type: string, options?: WaitOptions) => heeded(waitForSignal(open(), type, options)),
    start: (type: string, data: unknown, options?: StartOptions) => heeded(startChild(open(), type, data, options)),
  }
  return context as unknown as HandlerContext<EventMap>
}

/** A call that nobody waits for must not end the process when it is refused. */
function heeded<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}
