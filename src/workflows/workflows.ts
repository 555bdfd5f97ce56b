/**
 * Workflows: handlers that run because of events, durably, on the same log.
 *
 *     publish ─► [events] ─► dispatch ─► [executions] ─► claim ─► run ─► finish ─┐
 *                   ▲                                                          │ events emitted, joins, lanes, history
 *                   └──────────────────────────────────────────────────────────┘
 *
 * A workflow is all events with one correlation id. An execution is one handler for one event.
 *
 * Guarantees:
 * - Every event that a route wants becomes an execution, whichever process dispatches it and whatever code that has.
 * - At-least-once runs; effectively once for what is stored with the end of an attempt: what it emits, what it writes, its
 *   arrival at a join and its end are one transaction, and only under the fence it was claimed with.
 * - What is emitted has an id that follows from the event, the handler and a key: a run that is repeated adds nothing.
 * - An ordered handler runs one at a time, in the order of the log, per workflow or key.
 * - A workflow shows as settled only when nothing of it is open and every event of it was dispatched.
 *
 * What can fail: a handler (its policy decides: retries, then a dead letter), a worker (another takes over when its sign of
 * life is too old), the database (waited for). An execution whose code no process has stays, and shows in `handlers()`.
 */
import type { Consumers } from '../consumers/consumers.ts'
import type { DeadLetterKind } from '../consumers/dead-letters/retry.ts'
import type { Awaitable } from '../core/core.ts'

import { InvalidOption } from '../core/errors.ts'
import { deadline } from '../core/lifecycle.ts'
import { checkName } from '../core/name.ts'
import { nearestName } from '../core/nearest.ts'
import { checkWhole } from '../core/whole.ts'
import type { AppendParts } from '../events/append/append.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import { tailLog } from '../events/order/tail.ts'
import type { LogWatch } from '../events/order/watch.ts'
import { type CancelOptions, cancelFlow } from './cancel/cancel.ts'
import { defineUndo, type UndoOptions, type UndoRun } from './cancel/undo.ts'
import { type HandlerLetters, ofHandlers, openHandlerLetters } from './dead-letters/dead-letters.ts'
import { prefix } from './dead-letters/letters.ts'
import { dispatcher } from './dispatch/dispatch.ts'
import type { Taker } from './dispatch/takers.ts'
import type { EmissionOf, HandlerResult } from './emit.ts'
import type { EmitLimits } from './emitted.ts'
import { DuplicateHandler, HandlerNotFound } from './errors.ts'
import type { Flow } from './flow.ts'
import { type AnyHandlerOptions, defineHandler, type Handler, type HandlerOptions, type Run } from './handler.ts'
import { type Insight, openInsight } from './insight/insight.ts'
import { type AnyJoinOptions, defineJoin, type Joins } from './joins/join.ts'
import { type PublishOptions, publish } from './publish.ts'
import { pruneAttempts } from './retention.ts'
import { storeRoutes } from './routes.ts'
import {
  defineSchedule,
  type ScheduleContext,
  type ScheduleOptions,
  type ScheduleResult,
} from './schedules/schedule.ts'
import { openScheduler } from './schedules/scheduler.ts'
import { openSchedules, type Schedules } from './schedules/schedules.ts'
import { watchSettled } from './settled.ts'
import { readStatuses } from './status.ts'
import type { HandlerContext } from './steps/context.ts'
import { resumeExecution } from './steps/resume.ts'
import { type Lanes, openLanes } from './work/lanes.ts'
import type { Seats } from './work/seats.ts'
import { upkeep } from './work/upkeep.ts'
import { checkWorker, openWorker, type Worker, type WorkerOptions } from './work/worker.ts'

export interface WorkflowOptions {
  /** How far an event may be from the one that began it all. Default 50. */
  maxHops?: number | undefined
  /** The most events that one run of a handler may emit. Default 10 000. */
  maxEmitted?: number | undefined
}

export interface Workflows<M extends EventMap = UntypedEvents> extends Insight, Joins<M>, Lanes {
  /** Runs a handler for each event of a type, of several, or of all (`'*'`). */
  on<E extends keyof M & string = keyof M & string>(
    types: '*',
    options: HandlerOptions<M, keyof M & string, E>,
    run: (event: RecordedEvent<M>, ctx: HandlerContext<M>) => Awaitable<HandlerResult<EmissionOf<Pick<M, NoInfer<E>>>>>,
  ): void
  on<T extends keyof M & string, E extends keyof M & string = keyof M & string>(
    types: T | readonly T[],
    options: HandlerOptions<M, T, E>,
    run: (
      event: RecordedEvent<Pick<M, T>>,
      ctx: HandlerContext<M>,
    ) => Awaitable<HandlerResult<EmissionOf<Pick<M, NoInfer<E>>>>>,
  ): void
  /** Runs `run` when it is time, and publishes what it returns; each due time once, whatever the number of processes. */
  schedule(
    name: string,
    options: ScheduleOptions,
    run: (ctx: ScheduleContext) => Awaitable<ScheduleResult<EmissionOf<M>>>,
  ): void
  /** The schedules that are stored: their state, and what operators do with them. */
  readonly schedules: Schedules
  /** Code that undoes what a step has done, which names it in its options; run when the workflow is compensated. */
  undo<Data = unknown>(name: string, options: UndoOptions, run: UndoRun<Data, HandlerContext<M>>): void
  /** Stores the handlers and schedules registered so far; `publish` and a worker's start do so too. */
  register(): Promise<void>
  /** The names of the handlers whose code this store has; those of all processes are in `handlers()`. */
  registered(): string[]
  /** A worker that runs the handlers registered here, once it is started. */
  worker(options?: WorkerOptions): Worker
  /** Publishes an event that begins a workflow, or is part of one. */
  publish<T extends keyof M & string>(type: T, data: M[T], options?: PublishOptions): Promise<Flow<M>>
  /** A workflow by its correlation id. */
  flow(correlationId: string): Flow<M>
  /** Lets an execution go on that was parked because its code did not fit what it remembers. */
  resume(executionId: string): Promise<void>
  /** What handlers have failed on for good. */
  readonly deadLetters: HandlerLetters
  /** Deletes the trace of settled workflows that is older, as `retention.attemptsMs` does by itself. Returns how many rows went. */
  prune(options: { olderThanMs: number; signal?: AbortSignal | undefined }): Promise<number>
}

export interface WorkflowParts extends AppendParts {
  readonly consumers: Consumers
  readonly watch: LogWatch
  /** How often whoever waits looks without a hint. */
  readonly pollMs: number
  /** Called when a worker has started; the function returned, when it has stopped. */
  readonly tend: () => () => void
}

export interface WorkflowRegistry<M extends EventMap> {
  readonly workflows: Workflows<M>
  /** A worker that shares its seats with those of other stores. */
  worker(options: WorkerOptions, seats?: Seats): Worker
  /** How the dead letters of handlers are retried. */
  readonly deadLetterKind: DeadLetterKind
  stopAll(): Promise<void>
}

export function openWorkflows<M extends EventMap>(
  parts: WorkflowParts,
  options: WorkflowOptions = {},
): WorkflowRegistry<M> {
  const { log, wake, consumers } = parts
  const limits = limitsOf(options)
  consumers.reserve(prefix)
  const handlers = new Map<string, Handler>()
  const keyOf = (name: string, version: number): string => `${version} ${name}`
  const dispatchParts = {
    ...parts,
    limits,
    codeOf: (name: string, version: number) => handlers.get(keyOf(name, version)),
    progress: { reached: 0 },
    takers: new Set<Taker>(),
  }
  const settledWatch = watchSettled(log, wake, dispatchParts.progress)
  const insight = openInsight({ log, wake, settledWatch, pollMs: parts.pollMs })
  const scheduler = openScheduler({ ...parts, limits })
  const open = new Set<() => Promise<void>>()
  let routes = new Map<Handler, number>()
  let registering: Promise<unknown> = Promise.resolve()
  let isHosted = false

  const add = (handler: Handler): void => {
    const key = keyOf(handler.name, handler.version)
    if (handlers.has(key)) throw new DuplicateHandler({ handler: handler.name, version: handler.version })
    handlers.set(key, handler)
    if (!isHosted) consumers.register(dispatcher(dispatchParts))
    isHosted = true
  }

  /** One after the other: what is registered meanwhile is stored by the next. */
  const register = async (): Promise<void> => {
    const next = registering
      .catch(() => {})
      .then(async () => {
        const missing = [...handlers.values()].filter(handler => !routes.has(handler))
        if (missing.length > 0) routes = new Map([...routes, ...(await storeRoutes(log, missing))])
        await scheduler.register()
      })
    registering = next
    await next
  }

  const chosen = async (names: readonly string[] | undefined): Promise<Map<number, Handler>> => {
    await register()
    for (const name of names ?? [])
      if (![...handlers.values()].some(handler => handler.name === name)) throw unknownHandler(name)
    const wanted = [...routes].filter(([handler]) => names === undefined || names.includes(handler.name))
    return new Map(wanted.map(([handler, id]) => [id, handler]))
  }

  const unknownHandler = (handler: string): InstanceType<typeof HandlerNotFound> => {
    const nearest = nearestName(
      handler,
      [...handlers.values()].map(each => each.name),
    )
    return new HandlerNotFound({ handler, nearest })
  }

  const workerParts = {
    ...{ ...dispatchParts, consumers, register: chosen },
    upkeep: upkeep(dispatchParts, scheduler),
  }

  const worker = (given: WorkerOptions, seats?: Seats): Worker =>
    openWorker(workerParts, checkWorker(given), open, seats)

  /** `position`: that of its newest event, as far as is known here. */
  const flow = (correlationId: string, position?: number): Flow<EventMap> => {
    checkName('Correlation id', correlationId)
    const self: Flow<EventMap> = {
      ...insight.of(correlationId),
      correlationId,
      status: async () => (await readStatuses(log, [correlationId]))[0]!,
      settled: given => settledWatch.settled(correlationId, given, position),
      cancel: (first?: string | CancelOptions, second?: CancelOptions) =>
        cancelFlow(parts, correlationId, first, second),
      async signal(type, data, given = {}) {
        await publish(parts, type, data, { ...given, correlationId })
        return self
      },
      async waitFor(type, { timeoutMs = 30_000, signal } = {}) {
        const what = `An event ${type} in workflow ${correlationId}`
        const limit = deadline(signal, timeoutMs, { what, clock: log.clock })
        try {
          const source = tailLog(log, parts.watch, {
            ...{ after: 'start', correlationId, types: [type], signal: limit.signal },
          })
          for await (const event of { [Symbol.asyncIterator]: () => source }) return event as never
          throw new InvalidOption({ option: 'type', reason: 'the log has ended' })
        } finally {
          limit.dispose()
        }
      },
    }
    return self
  }

  const workflows: Workflows<EventMap> = {
    ...insight.all,
    on(types: string | readonly string[], given: unknown, run: unknown) {
      const list = types === '*' ? undefined : typeof types === 'string' ? [types] : types
      add(defineHandler(list, given as AnyHandlerOptions, run as Run))
    },
    join(types: string | readonly string[], given: unknown, run: unknown) {
      add(defineJoin(types, given as AnyJoinOptions, run as Run))
    },
    schedule(name, given, run) {
      scheduler.add(defineSchedule(name, given, run))
    },
    schedules: openSchedules(parts, scheduler, register),
    undo: (name, given, run) => add(defineUndo(name, given, run as UndoRun<never, never>)),
    register,
    registered: () => [...new Set([...handlers.values()].map(handler => handler.name))],
    worker: (given = {}) => worker(given),
    async publish(type, data, given = {}) {
      if (given.tx === undefined) await register()
      const { correlationId, position } = await publish(parts, type, data, given)
      return flow(correlationId, position)
    },
    flow: correlationId => flow(correlationId),
    resume: executionId => resumeExecution(parts, executionId),
    deadLetters: openHandlerLetters(log, () => wake.changed()),
    ...openLanes(log, () => wake.worked()),
    async prune({ olderThanMs, signal }) {
      checkWhole('olderThanMs', olderThanMs, 0, Number.MAX_SAFE_INTEGER)
      return pruneAttempts(log, { olderThanMs, signal })
    },
  }

  return {
    workflows: workflows as unknown as Workflows<M>,
    worker,
    deadLetterKind: ofHandlers(log),
    async stopAll() {
      insight.close()
      await Promise.all([...open].map(stop => stop()))
    },
  }
}

function limitsOf({ maxHops = 50, maxEmitted = 10_000 }: WorkflowOptions): EmitLimits {
  checkWhole('workflows.maxHops', maxHops, 1)
  checkWhole('workflows.maxEmitted', maxEmitted, 1)
  return { maxHops, maxEmitted }
}
