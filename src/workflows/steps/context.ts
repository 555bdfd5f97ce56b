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
import { type StepCall, type StepOptions, step, transactionalStep, type UndoOptions } from './steps.ts'
import { sleepFor, sleepUntil, type WaitOptions, waitForEvent } from './waits.ts'

/**
 * A handler that waits runs again from its top when the wait is over, as does one that is retried: its steps then answer from
 * memory. So everything that may differ from run to run belongs into steps, and the time, ids and chance come from here.
 *
 * @example
 * ```ts
 * const charge = (cents: number, { step }: HandlerContext) => step('charge', () => `receipt for ${cents}`)
 * ```
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
  step<T, Data = unknown>(
    name: string,
    run: (call: StepCall) => Awaitable<T>,
    options?: StepOptions<Data>,
  ): Promise<AsJson<T>>
  /** A step that writes to the database: its writes and its result are committed together, and only if this run still counts. */
  tx<T, Data = unknown>(
    name: string,
    run: (tx: Transaction) => Awaitable<T>,
    options?: UndoOptions<Data>,
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
  /** The same, if it was made. */
  readonly opened: HandlerRun | undefined
}

/** Its functions are made when they are asked for: most handlers use one or two of them, if any. */
export function handlerContext(parts: ContextParts): HandlerContext {
  return new Context(parts) as unknown as HandlerContext
}

class Context {
  readonly #parts: ContextParts
  #repeatable: Repeatable | undefined

  constructor(parts: ContextParts) {
    this.#parts = parts
  }

  get emit() {
    return emit
  }

  get executionId() {
    return this.#parts.execution.id
  }

  get correlationId() {
    return this.#parts.execution.correlationId
  }

  get attempt() {
    return this.#parts.execution.attempt
  }

  get handler() {
    return this.#parts.handler.name
  }

  get version() {
    return this.#parts.handler.version
  }

  get join() {
    return this.#parts.execution.join?.info
  }

  get signal() {
    return this.#parts.cutoff.signal
  }

  get now() {
    return this.#repeats().now
  }

  get uuid() {
    return this.#repeats().uuid
  }

  get random() {
    return this.#repeats().random
  }

  get step() {
    return (name: string, run: (call: StepCall) => Awaitable<unknown>, options?: StepOptions) =>
      handled(step(this.#parts.open(), name, run, options))
  }

  get tx() {
    return (name: string, run: (tx: Transaction) => Awaitable<unknown>, options?: UndoOptions) =>
      handled(transactionalStep(this.#parts.open(), name, run, options))
  }

  get sleep() {
    return (first: string | number, ms?: number) =>
      handled(
        typeof first === 'string'
          ? sleepFor(this.#parts.open(), first, ms as number)
          : sleepFor(this.#parts.open(), 'sleep', first),
      )
  }

  get sleepUntil() {
    return (first: string | Date, at?: Date) =>
      handled(
        typeof first === 'string'
          ? sleepUntil(this.#parts.open(), first, at as Date)
          : sleepUntil(this.#parts.open(), 'sleepUntil', first),
      )
  }

  get waitForEvent() {
    return (type: string, options?: WaitOptions) => handled(waitForEvent(this.#parts.open(), type, options))
  }

  get start() {
    return (type: string, data: unknown, options?: StartOptions) =>
      handled(startChild(this.#parts.open(), type, data, options))
  }

  #repeats(): Repeatable {
    const { execution } = this.#parts
    this.#repeatable ??= repeatable(
      execution.id,
      () => this.#parts.opened?.replay.now ?? execution.queuedAt,
      () => this.#parts.opened?.replay.turn ?? 0,
      // Not the time of the run: a process that dies before anything is stored leaves the next one another time.
      () => execution.event?.createdAt ?? execution.queuedAt,
    )
    return this.#repeatable
  }
}

/** A call that the handler does not await must not end the process when it is rejected. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}

/** Values that are the same in every run of one execution. */
export interface Repeatable {
  /**
   * The time at which the last step or wait ended, or the execution began: the same whenever the handler is run again. A
   * quick execution whose process died before anything of it was stored has not begun.
   */
  now(): Date
  uuid(): string
  /** From 0 up to, but not including, 1. */
  random(): number
}

/**
 * Drawn values are numbered anew after each end that is delivered to the handler (`turn`). So values that a step draws, and
 * does not draw when it answers from memory, do not change those after it.
 */
export function repeatable(
  executionId: string,
  now: () => Date,
  turn: () => number = () => 0,
  idsAt: () => Date = now,
): Repeatable {
  let drawnIn = 0
  let drawn = 0
  const next = (what: string): string => {
    if (turn() !== drawnIn) drawn = 0
    drawnIn = turn()
    return `${executionId} ${what} ${drawnIn}.${++drawn}`
  }
  return {
    now: () => new Date(now()),
    uuid: () => derivedId(idsAt(), next('uuid')),
    random: () => createHash('sha256').update(next('random')).digest().readUIntBE(0, 6) / 2 ** 48,
  }
}
