/**
 * Workflows: handlers that run because of events, durably, on the same log.
 *
 *     publish ─► [events] ─► dispatch ─► [executions] ─► claim ─► attempt ─► complete ─┐
 *                   ▲                                                                  │ events, joins, lanes, activity
 *                   └──────────────────────────────────────────────────────────────────┘
 *
 * A workflow is all events with one correlation id. An execution is one handler for one event.
 *
 * Guarantees:
 * - Every event that a route wants becomes an execution, whichever process dispatches it and whatever code that has.
 * - Attempts run at least once; their effects in this database count once: the events and the writes of an attempt, its
 *   arrival at a join and its outcome are one transaction, and only under the fence it was claimed with.
 * - An emitted event has an id that follows from the event, the handler and a key: a repeated attempt adds nothing.
 * - An ordered handler runs one at a time, in the order of the log, per workflow or key.
 * - A workflow shows as settled only when nothing of it is open and every event of it was dispatched.
 *
 * What can fail: a handler (its policy decides: retries, then a dead letter), a worker (another takes over when its heartbeat
 * is too old), the database (workers wait). An execution whose code no process has stays, and shows in `handlers.list()`.
 *
 *     dispatch/  events to executions         steps/  recorded steps and waits       cancel/    cancelling, undoing
 *     work/      executions to outcomes       joins/  batches and their joins        schedules/ events because of the time
 *     insight/   activity, status, numbers    dead-letters/  failures for good
 */
import type { Audit } from '../audit/audit.ts'
import type { Consumers } from '../consumers/consumers.ts'
import { handlerPrefix } from '../consumers/dead-letters/owner.ts'
import type { DeadLetterKind } from '../consumers/dead-letters/retry.ts'
import type { Runnable } from '../consumers/runners/runnable.ts'
import type { DefinitionKind } from '../core/definition.ts'
import { checkWhole, describe, refuseUnknownOptions } from '../core/options.ts'
import { type AppendParts, appendIn } from '../events/append/append.ts'
import type { EventMap, EventsAccepted, UntypedEvents } from '../events/definition.ts'
import type { LogWatch } from '../events/order/watch.ts'
import { type CancelAllFilter, type CancelAllOptions, cancelAll } from './cancel/cancel-all.ts'
import { ofHandlers } from './dead-letters/dead-letters.ts'
import { type DispatcherParts, dispatcher } from './dispatch/dispatch.ts'
import { localWorkers } from './dispatch/plain.ts'
import type { EmitLimits } from './emit.ts'
import { DuplicateHandler } from './errors.ts'
import { type Handler, refusal } from './handler.ts'
import { workflowHints } from './hints.ts'
import { type Executions, unpark } from './insight/executions.ts'
import { type Handlers, openHandlers } from './insight/handlers.ts'
import { type Insight, openInsight } from './insight/insight.ts'
import { listExecutions } from './insight/list-executions.ts'
import { type PublishOptions, publish } from './publish.ts'
import { storeRoutes } from './routes.ts'
import type { Schedule } from './schedules/schedule.ts'
import { openScheduler } from './schedules/scheduler.ts'
import { openSchedules, type Schedules } from './schedules/schedules.ts'
import { watchSettled } from './settled.ts'
import { type Rehearsal, rehearse } from './steps/rehearsal.ts'
import { runOne, type WorkedByHand, workerByHand } from './work/by-hand.ts'
import { type Lanes, openLanes } from './work/lanes.ts'
import { startWorker, type WorkerParts } from './work/worker.ts'
import { openWorkflow, type Workflow } from './workflow.ts'

export interface WorkflowOptions {
  /** How far an event may be from the first event of its workflow. Default 50. */
  maxHops?: number | undefined
  /** The most events that one attempt may emit. Default 10 000. */
  maxEmitted?: number | undefined
}

export interface Workflows<M extends EventMap = UntypedEvents> extends Insight {
  /** Publishes an event that begins a workflow, or is part of one. */
  publish<T extends keyof M & string>(type: T, data: M[T], options?: PublishOptions): Promise<Workflow<M>>
  /** The handle of a workflow, by its correlation id. */
  get(correlationId: string): Workflow<M>
  /** Cancels all workflows that match and are not over, with the workflows that they have started. */
  cancelAll(filter: CancelAllFilter, options?: CancelAllOptions): Promise<{ cancelled: number }>
  /** Adds handlers, joins, undos and schedules. They are stored by `sync`, by `publish` and when a runner starts. */
  register(...definitions: readonly WorkflowDefinition<EventsAccepted<M>>[]): void
  /** Stores the definitions that are registered and not stored yet: from now on their events are dispatched to them. */
  sync(): Promise<void>
  /** The handlers that are stored, for operators. */
  readonly handlers: Handlers
  readonly executions: Executions
  /** The lanes of ordered handlers. */
  readonly lanes: Lanes
  /** The schedules that are stored, for operators. */
  readonly schedules: Schedules
}

/** The results of `defineHandler`, `defineJoin`, `defineUndo` and `defineSchedule`. */
export type WorkflowDefinition<M extends EventMap = never> = Handler<M> | Schedule<M>

/** Whether definitions of this kind are those of workflows. */
export function isWorkflowKind(kind: DefinitionKind): boolean {
  return kind === 'handler' || kind === 'join' || kind === 'undo' || kind === 'schedule'
}

export interface WorkflowParts extends AppendParts {
  readonly consumers: Consumers
  readonly watch: LogWatch
  readonly audit: Audit
  /** How often a caller that waits looks without a hint. */
  readonly pollMs: number
  /** Whether calls store the definitions that are not stored yet. If not, only `sync` and a runner do. */
  readonly storesDefinitions: boolean
}

export interface WorkflowRegistry<M extends EventMap> {
  readonly workflows: Workflows<M>
  /** For the runners of the store. */
  readonly runnable: Runnable
  /** Does everything that handlers and schedules can do now, in this process, without a runner. */
  runUntilIdle(signal: AbortSignal): Promise<WorkedByHand>
  /** The effect of the code of this process on each open execution that has recorded calls. Nothing is stored. */
  rehearse(): AsyncIterable<Rehearsal>
  /** The versions of a handler whose code this process has. */
  versionsOf(handler: string): readonly number[]
  /** How the dead letters of handlers are retried. */
  readonly deadLetterKind: DeadLetterKind
  close(): void
}

export function openWorkflows<M extends EventMap>(
  parts: WorkflowParts,
  options: WorkflowOptions = {},
): WorkflowRegistry<M> {
  const { log, wake, consumers } = parts
  const hints = workflowHints(wake)
  const code = openCode()
  const progress = { reached: 0 }
  const settledWatch = watchSettled(log, hints, progress)
  const dispatcherParts: DispatcherParts = {
    ...{ log, hints, limits: limitsOf(options), codeOf: code.get },
    append: (append, tx) => appendIn(parts, append, tx),
    workers: localWorkers(),
    ...{ progress, settledWatch },
  }
  const insight = openInsight({ log, hints, settledWatch, pollMs: parts.pollMs })
  const scheduler = openScheduler(dispatcherParts)
  const handleParts = { ...parts, hints, insight, settledWatch }
  let routes = new Map<Handler, number>()
  let syncing: Promise<unknown> = Promise.resolve()
  let isDispatched = false
  const storedListeners = new Set<() => void>()
  consumers.reserve(handlerPrefix)

  const register = (definition: WorkflowDefinition): void => {
    if (!isWorkflowKind(definition?.kind))
      throw refusal(
        'A store',
        'definition',
        `cannot register ${describe(definition)} for its workflows. Make it with defineHandler, defineJoin, defineUndo or defineSchedule.`,
      )
    if (definition.kind === 'schedule') scheduler.add(definition)
    else {
      code.add(definition)
      if (!isDispatched) consumers.register(dispatcher(dispatcherParts))
      isDispatched = true
    }
  }

  /** One after the other: definitions that are registered meanwhile are stored by the next call. */
  const sync = async (): Promise<void> => {
    const next = syncing
      .catch(() => {})
      .then(async () => {
        const missing = code.all().filter(handler => !routes.has(handler))
        if (missing.length > 0) routes = new Map([...routes, ...(await storeRoutes(log, missing))])
        await scheduler.register()
        if (missing.length > 0) for (const listener of storedListeners) listener()
      })
    syncing = next
    await next
  }

  const syncIfStored = parts.storesDefinitions ? sync : async () => {}

  const workerParts: WorkerParts = {
    ...dispatcherParts,
    consumers,
    scheduler,
    async register(isWanted) {
      await sync()
      return new Map([...routes].filter(([handler]) => isWanted(handler.name)).map(([handler, id]) => [id, handler]))
    },
    onStored(listener) {
      storedListeners.add(listener)
      return () => storedListeners.delete(listener)
    },
  }

  const workflows: Workflows = {
    ...insight.all,
    async publish(type, data, given = {}) {
      if (given.tx === undefined) await syncIfStored()
      const { correlationId, position } = await publish(parts, type, data, given)
      return openWorkflow(handleParts, correlationId, position)
    },
    get: correlationId => openWorkflow(handleParts, correlationId),
    cancelAll(filter, options = {}) {
      const { signal: _, onProgress: __, ...recorded } = options
      return parts.audit.record({ action: 'workflows.cancelAll', parameters: { ...filter, ...recorded } }, () =>
        cancelAll(log, hints, filter, options),
      )
    },
    register(...definitions) {
      for (const definition of definitions) register(definition)
    },
    sync,
    handlers: openHandlers(log, hints, code.names),
    executions: {
      list: async (options = {}) => listExecutions(log, options),
      async run(executionId, options = {}) {
        refuseUnknownOptions('store.workflows.executions.run', options, ['signal'])
        const { signal = new AbortController().signal } = options
        const { correlationId, attempt } = await runOne(workerParts, executionId, signal)
        const { items } = await insight.all.attempts({ correlationId, executionId, limit: 1 })
        return items[0]?.attempt === attempt ? items[0] : undefined
      },
      resume: executionId => unpark(log, hints, executionId, { rejects: false }),
      reject: executionId => unpark(log, hints, executionId, { rejects: true }),
    },
    lanes: openLanes(log, hints),
    schedules: openSchedules(log, hints, scheduler, syncIfStored),
  }

  const runnable: Runnable = {
    kinds: ['handlers', 'schedules'],
    names: kind => (kind === 'handlers' ? code.names() : scheduler.all()),
    start: context => startWorker(workerParts, context),
  }

  return {
    workflows: workflows as unknown as Workflows<M>,
    runnable,
    runUntilIdle: workerByHand(workerParts),
    rehearse: () => rehearse(dispatcherParts, code.get),
    versionsOf: handler => code.all().flatMap(({ name, version }) => (name === handler ? version : [])),
    deadLetterKind: ofHandlers(log),
    close: insight.close,
  }
}

function limitsOf({ maxHops = 50, maxEmitted = 10_000 }: WorkflowOptions): EmitLimits {
  checkWhole('workflows.maxHops', maxHops, 1)
  checkWhole('workflows.maxEmitted', maxEmitted, 1)
  return { maxHops, maxEmitted }
}

/** The handlers whose code this store has, by name and version. */
interface Code {
  add(handler: Handler): void
  get(name: string, version: number): Handler | undefined
  all(): Handler[]
  names(): string[]
}

function openCode(): Code {
  const handlers = new Map<string, Handler>()
  const keyOf = (name: string, version: number): string => `${version} ${name}`
  const names = (): string[] => [...new Set([...handlers.values()].map(({ name }) => name))]
  return {
    add(handler) {
      const key = keyOf(handler.name, handler.version)
      if (handlers.has(key)) throw new DuplicateHandler({ handler: handler.name, version: handler.version })
      handlers.set(key, handler)
    },
    get: (name, version) => handlers.get(keyOf(name, version)),
    all: () => [...handlers.values()],
    names,
  }
}
