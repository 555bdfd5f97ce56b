/** The context of a handler: its second argument, with steps, waits, child workflows and values that repeat. */
import { createHash } from 'node:crypto'
import type { Cutoff } from '../../core/abort.ts'
import type { AsJson } from '../../core/as-json.ts'
import type { Awaitable } from '../../core/core.ts'
import { derivedId } from '../../core/id.ts'
import type { Transaction } from '../../database/database.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../../events/definition.ts'
import { type Emission, type EmitOptions, emit } from '../emit.ts'
import type { Handler } from '../handler.ts'
import type { Claimed } from '../work/claim.ts'
import { type Child, type StartOptions, startChild } from './children.ts'
import type { HandlerRun } from './handler-run.ts'
import { type StepOptions, step, transactionalStep } from './steps.ts'
import { sleepFor, sleepUntil, type WaitOptions, waitForEvent } from './waits.ts'

/**
 * A handler that waits runs again from its top when the wait is over, as does one that is retried: its steps then answer from
 * memory. So everything that may differ from run to run belongs into steps, and the time, ids and chance come from here.
 */
export interface HandlerContext<M extends EventMap = UntypedEvents, E extends keyof M & string = keyof M & string>
  extends Repeatable {
  /** An event to be emitted: return it, alone, in a list or in a batch. */
  emit<T extends E>(type: T, data: M[T], options?: EmitOptions): Emission<T>
  /** The same in every run and unique: an idempotency key for the services that the handler calls. */
  readonly executionId: string
  readonly correlationId: string
  readonly handler: string
  readonly version: number
  /** The number of this attempt, from 1; runs after a wait belong to the same attempt. */
  readonly attempt: number
  /** Aborts when the run is over: its time is over, it was cancelled or taken over, or the worker stops. */
  readonly signal: AbortSignal
  /** Runs `work` once: its result, plain JSON, is recorded and answers all later runs. A step that throws runs again in
   * the next attempt; a handler that catches the error gets the same one (by name, message and code) after a wait.
   */
  step<T, Data = unknown>(name: string, run: () => Awaitable<T>, options?: StepOptions<Data>): Promise<AsJson<T>>
  /** A step that writes to the database: its writes and its result are committed together, and only if this run still counts. */
  tx<T, Data = unknown>(
    name: string,
    run: (tx: Transaction) => Awaitable<T>,
    options?: StepOptions<Data>,
  ): Promise<AsJson<T>>
  /** Waits at least this long; from a second on, without holding a worker. */
  sleep(ms: number): Promise<void>
  sleep(name: string, ms: number): Promise<void>
  /** Waits until this time; one that has passed ends at once. */
  sleepUntil(at: Date): Promise<void>
  sleepUntil(name: string, at: Date): Promise<void>
  /**
   * The first event of this type in the workflow that no other wait of this handler was given, also if it came before the
   * event that the handler runs for. A wait that lost a race still takes its event: give it a `timeoutMs` instead.
   */
  waitForEvent<T extends keyof M & string>(
    type: T,
    options?: WaitOptions & { timeoutMs?: undefined },
  ): Promise<RecordedEvent<Pick<M, T>>>
  /** The same, or nothing if none came in time. */
  waitForEvent<T extends keyof M & string>(
    type: T,
    options: WaitOptions,
  ): Promise<RecordedEvent<Pick<M, T>> | undefined>
  /** Publishes an event into a workflow of its own, once. */
  start<T extends keyof M & string>(type: T, data: M[T], options?: StartOptions): Promise<Child>
}

export interface ContextParts {
  readonly execution: Claimed
  readonly handler: Handler
  readonly cutoff: Cutoff
  /** The run with its memory, made when it is needed first. */
  open(): HandlerRun
  opened(): HandlerRun | undefined
}

export function handlerContext({ execution, handler, cutoff, open, opened }: ContextParts): HandlerContext {
  const { now, uuid, random } = repeatable(
    execution.id,
    () => opened()?.replay.now ?? execution.queuedAt,
    () => opened()?.replay.turn ?? 0,
  )
  const context = {
    emit,
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
      handled(step(open(), name, run, options)),
    tx: (name: string, run: (tx: Transaction) => Awaitable<unknown>, options?: StepOptions) =>
      handled(transactionalStep(open(), name, run, options)),
    sleep: (first: string | number, ms?: number) =>
      handled(
        typeof first === 'string' ? sleepFor(open(), first, ms as number) : sleepFor(open(), 'sleep', first as number),
      ),
    sleepUntil: (first: string | Date, at?: Date) =>
      handled(
        typeof first === 'string' ? sleepUntil(open(), first, at as Date) : sleepUntil(open(), 'sleepUntil', first),
      ),
    waitForEvent: (type: string, options?: WaitOptions) => handled(waitForEvent(open(), type, options)),
    start: (type: string, data: unknown, options?: StartOptions) => handled(startChild(open(), type, data, options)),
  }
  return context as unknown as HandlerContext
}

/** A call that the handler does not await must not end the process when it is rejected. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}

/** Values that are the same in every run of one execution. */
export interface Repeatable {
  /** The time at which the last step or wait ended, or the execution began: the same whenever the handler is run again. */
  now(): Date
  uuid(): string
  /** From 0 up to, but not including, 1. */
  random(): number
}

/**
 * Drawn values are numbered anew after each end that is delivered to the handler (`turn`). So values that a step draws, and
 * does not draw when it answers from memory, do not change those after it.
 */
export function repeatable(executionId: string, now: () => Date, turn: () => number = () => 0): Repeatable {
  let drawnIn = 0
  let drawn = 0
  const next = (what: string): string => {
    if (turn() !== drawnIn) drawn = 0
    drawnIn = turn()
    return `${executionId} ${what} ${drawnIn}.${++drawn}`
  }
  return {
    now: () => new Date(now()),
    uuid: () => derivedId(now(), next('uuid')),
    random: () => createHash('sha256').update(next('random')).digest().readUIntBE(0, 6) / 2 ** 48,
  }
}
