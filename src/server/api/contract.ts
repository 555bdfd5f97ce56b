/**
 * The answers of the API by route, for the table of routes and, as types alone, for the browser program.
 *
 *     const events: Answer<'GET /events'> = await get('/events')
 *
 * `Contract` has the values that the calls return. `Answer` has them as JSON: times are ISO text, absent fields are left
 * out, and `next` of a last page is null.
 */
import type { StoredSnapshot } from '../../aggregates/snapshot.ts'
import type { AuditEntry } from '../../audit/audit.ts'
import type { DeadLetter, DeadLetterDetails } from '../../consumers/dead-letters/dead-letter.ts'
import type { DeadLetterGroup } from '../../consumers/dead-letters/groups.ts'
import type { RetryRequest } from '../../consumers/dead-letters/retry.ts'
import type { DeadLetterStats } from '../../consumers/dead-letters/stats.ts'
import type { ConsumerDescription } from '../../consumers/describe.ts'
import type { ConsumerMetrics } from '../../consumers/insight.ts'
import type { RunnerDescription } from '../../consumers/runners/runners.ts'
import type { ConsumerStatus } from '../../consumers/status.ts'
import type { Page } from '../../core/page.ts'
import type { CollectionDescription } from '../../documents/list-collections.ts'
import type { AppendResult } from '../../events/append/send.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { LogState } from '../../events/events.ts'
import type { EventTypeDescription } from '../../events/read/event-types.ts'
import type { EventPage } from '../../events/read/list.ts'
import type { StoredEvent } from '../../events/read/stored.ts'
import type { Categories } from '../../events/streams/categories.ts'
import type { StreamDescription } from '../../events/streams/streams.ts'
import type { RowPage } from '../../projections/list-rows.ts'
import type { BlamedState, FoldDescription, StateAt, StateStep } from '../../projections/states.ts'
import type { Problem } from '../../schema/difference.ts'
import type { Plan } from '../../schema/plan.ts'
import type { SchemaState } from '../../schema/schema.ts'
import type { GroupStatus } from '../../subscriptions/status.ts'
import type { Placement } from '../../tenants/placement.ts'
import type { TenantStatus } from '../../tenants/status.ts'
import type { TenantHead } from '../../tenants/tenants.ts'
import type { Diagnosis } from '../../upkeep/doctor/doctor.ts'
import type { Explanation } from '../../upkeep/explain/explain.ts'
import type { Activity, Attempt } from '../../workflows/insight/activity.ts'
import type { OpenCounts } from '../../workflows/insight/executions.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import type { WorkerDescription } from '../../workflows/insight/insight.ts'
import type { ExecutionDescription } from '../../workflows/insight/list-executions.ts'
import type { JoinDescription, OpenWait, RecordedStep, UndoDescription } from '../../workflows/insight/open-work.ts'
import type { WorkflowStats } from '../../workflows/insight/stats.ts'
import type { WorkflowTree } from '../../workflows/insight/tree.ts'
import type { ScheduleRun, ScheduleStatus, TriggeredRun } from '../../workflows/schedules/schedules.ts'
import type { WorkflowStatus } from '../../workflows/status.ts'
import type { Lane } from '../../workflows/work/lanes.ts'
import type { Role, RouteKey } from './route.ts'

export interface Contract {
  'GET /': { answer: StoreDescription }
  'POST /session': { answer: SessionDescription }
  'DELETE /session': { answer: Done }
  'GET /openapi.json': { answer: object }
  'GET /live': { answer: Response }
  'GET /overview': { answer: Overview }
  'GET /history': { answer: History }
  'GET /log': { answer: LogState }
  'GET /process': { answer: ProcessDescription }
  'GET /search': { answer: Listed<Found> }

  'GET /events': { answer: EventPage<ShownEvent> }
  'GET /events/types': { answer: Listed<EventTypeDescription> }
  'GET /events/at/:position': { answer: ShownEvent }
  'GET /events/:id': { answer: EventDetails }
  'GET /events/:id/effects': { answer: Page<ShownEvent> }

  'GET /events/:id/why': { answer: Explanation }

  'GET /states': { answer: Listed<FoldDescription> }
  'GET /streams/:stream/states': { answer: StateAt }
  'GET /streams/:stream/states/steps': { answer: Listed<StateStep> }
  'GET /streams/:stream/states/blame': { answer: BlamedState }

  'GET /streams': { answer: Page<StreamDescription> }
  'GET /streams/categories': { answer: Categories }
  'GET /streams/:stream': { answer: StreamDescription }
  'GET /streams/:stream/events': { answer: Page<ShownEvent> }
  'GET /streams/:stream/snapshots': { answer: Listed<StoredSnapshot> }
  'POST /streams/:stream/append': { answer: AppendResult }
  'POST /streams/:stream/archive': { answer: Done }
  'POST /streams/:stream/restore': { answer: Done }
  'POST /streams/:stream/tombstone': { answer: Done }

  'GET /consumers': { answer: Page<ConsumerStatus> }
  'GET /consumers/:name': { answer: ConsumerDescription }
  'GET /consumers/:name/wait': { answer: { readonly position: number; readonly waitedMs: number } }
  'POST /consumers/:name/pause': { answer: Done }
  'POST /consumers/:name/resume': { answer: Done }
  'POST /consumers/:name/reset': { answer: Done }
  'DELETE /consumers/:name': { answer: Done }
  'GET /projections/:name/rows': { answer: RowPage }
  'POST /projections/:name/rehearse': { answer: Accepted }
  'POST /projections/:name/rebuild': { answer: Accepted }
  'POST /projections/:name/lifecycle': { answer: Done }

  'GET /subscriptions/:name': { answer: Page<GroupStatus> }
  'POST /subscriptions/:name/:group/limit': { answer: Done }
  'POST /subscriptions/:name/:group/repartition': { answer: Accepted }

  'GET /workflows': { answer: Page<WorkflowStatus> }
  'GET /workflows/stats': { answer: WorkflowStats }
  'POST /workflows/publish': { answer: Published }
  'POST /workflows/cancel': { answer: Accepted }
  'GET /workflows/:id': { answer: WorkflowStatus }
  'GET /workflows/:id/tree': { answer: WorkflowTree }
  'GET /workflows/:id/activity': { answer: Page<Activity> }
  'GET /workflows/:id/attempts': { answer: Page<Attempt> }
  'GET /workflows/:id/steps': { answer: Listed<RecordedStep> }
  'GET /workflows/:id/waits': { answer: Listed<OpenWait> }
  'GET /workflows/:id/joins': { answer: Listed<JoinDescription> }
  'GET /workflows/:id/undos': { answer: Listed<UndoDescription> }
  'GET /workflows/:id/why': { answer: Explanation }
  'GET /workflows/:id/mermaid': { answer: { readonly text: string } }
  'POST /workflows/:id/signal': { answer: Published }
  'POST /workflows/:id/cancel': { answer: WorkflowStatus }
  'GET /executions': { answer: Page<ExecutionDescription> }
  'POST /executions/:id/resume': { answer: Done }
  'GET /attempts': { answer: Page<Attempt> }

  'GET /handlers': { answer: Page<HandlerDescription> }
  'POST /handlers/:name/pause': { answer: Done }
  'POST /handlers/:name/resume': { answer: Done }
  'POST /handlers/:name/retire': { answer: Done }
  'GET /lanes': { answer: Page<Lane> }
  'POST /lanes/unpark': { answer: { readonly unparked: number } }
  'GET /schedules': { answer: Page<ScheduleStatus> }
  'GET /schedules/:name/history': { answer: Page<ScheduleRun> }
  'GET /schedules/:name/next': { answer: Listed<Date> }
  'POST /schedules/:name/pause': { answer: Done }
  'POST /schedules/:name/resume': { answer: Done }
  'POST /schedules/:name/trigger': { answer: TriggeredRun }
  'DELETE /schedules/:name': { answer: Done }

  'GET /dead-letters': { answer: Page<DeadLetter> }
  'GET /dead-letters/groups': { answer: Page<DeadLetterGroup> }
  'GET /dead-letters/stats': { answer: Page<DeadLetterStats> }
  'GET /dead-letters/:owner/:event': { answer: DeadLetterDetails }
  'POST /dead-letters/:owner/:event/retry': { answer: RetryRequest }
  'POST /dead-letters/:owner/:event/resolve': { answer: Done }
  'DELETE /dead-letters/:owner/:event': { answer: Done }
  'POST /dead-letters/retry': { answer: RetryRequest }
  'POST /dead-letters/resolve': { answer: { readonly resolved: number } }

  'GET /collections': { answer: Page<CollectionDescription> }
  'POST /collections/:name/query': { answer: Page<ShownDocument> }
  'POST /collections/:name/explain': { answer: { readonly plan: string } }
  'GET /collections/:name/:id': { answer: ShownDocument }
  'GET /collections/:name/:id/history': { answer: Page<ShownDocument> }
  'PUT /collections/:name/:id': { answer: Written }
  'PATCH /collections/:name/:id': { answer: Written }
  'DELETE /collections/:name/:id': { answer: Written }
  'POST /collections/:name/:id/restore': { answer: Written }

  'GET /runners': { answer: Page<RunnerDescription> }
  'GET /workers': { answer: Page<WorkerDescription> }
  'POST /runners/:name/promote': { answer: Done }
  'POST /runners/:name/demote': { answer: Done }
  'POST /runners/:name/pause': { answer: Done }
  'POST /runners/:name/resume': { answer: Done }

  'GET /health/doctor': { answer: Diagnosis }
  'GET /schema': { answer: SchemaDescription }
  'GET /schema/plan': { answer: Plan }
  'POST /schema/sync': { answer: Accepted }
  'POST /upkeep': { answer: Accepted }

  'GET /operations': { answer: Listed<OperationDescription> }
  'DELETE /operations/:id': { answer: Done }
  'GET /audit': { answer: Page<AuditEntry> }

  'GET /tenants': { answer: Page<Placement> }
  'GET /tenants/servers': { answer: Page<string> }
  'GET /tenants/heads': { answer: Listed<TenantHead> }
  'GET /tenants/:tenant/status': { answer: TenantStatus }
  'POST /tenants/:tenant/ensure': { answer: Placement }
  'POST /tenants/:tenant/move': { answer: Accepted }
  'POST /tenants/sync': { answer: Accepted }
  'DELETE /tenants/:tenant': { answer: Done }
}

/** The body of an answer, as a client reads it. */
export type Answer<K extends RouteKey> = Json<Contract[K]['answer']>

/** A value after `JSON.stringify` and `JSON.parse`. */
export type Json<T> = T extends Date
  ? string
  : T extends (...args: never[]) => unknown
    ? never
    : T extends Page<infer Item>
      ? Omit<{ [K in keyof T]: Json<T[K]> }, 'items' | 'next'> & { items: Json<Item>[]; next: string | null }
      : T extends readonly (infer Item)[]
        ? Json<Item>[]
        : T extends object
          ? { [K in keyof T]: Json<T[K]> }
          : T

/** The body of every refusal. */
export interface Refused {
  readonly error: {
    readonly code: string
    readonly message: string
    readonly retryable: boolean
    readonly data: Readonly<Record<string, unknown>>
    /** Where the code is documented. */
    readonly see: string
  }
}

export interface Done {
  readonly done: true
}

/** Work that takes longer than a request: see `GET /operations`. */
export interface Accepted {
  readonly operation: string
}

export interface StoreDescription {
  /** Of the package. */
  readonly version: string
  readonly engine: 'postgres' | 'pglite'
  /** The schema; of a store with tenants, that of the tenant in the path. */
  readonly schema: string | undefined
  readonly hasTenants: boolean
  readonly tenant: string | undefined
  /** The name and the role of the sender of the request. */
  readonly name: string
  readonly role: Role
  /** The process that answers. */
  readonly process: { readonly pid: number; readonly host: string; readonly startedAt: Date }
}

/** The process that answers: nothing here is read from the database. */
export interface ProcessDescription {
  readonly pid: number
  readonly host: string
  readonly node: string
  readonly uptimeSeconds: number
  readonly memoryBytes: number
  /** Of its pool, by state. */
  readonly connections: Readonly<Record<string, number>>
  /** Since the store was opened. */
  readonly counters: Readonly<Record<string, number>>
}

export interface SessionDescription {
  readonly name: string
  readonly role: Role
  readonly expiresAt: Date
}

/** An event as the API shows it. */
export type ShownEvent = RecordedEvent & {
  /** Its data is larger than 64 KiB and left out; `GET /events/:id` has it. */
  readonly isCut?: true | undefined
}

/** One event in full. */
export type EventDetails = ShownEvent & {
  /** With `?raw=1`: its JSON as it is stored, with exact numbers. */
  readonly stored?: StoredEvent | undefined
}

/** A list that is always whole. */
export interface Listed<T> {
  readonly items: readonly T[]
}

export type HistoryRange = '5m' | '1h' | '24h'

/** Figures over time, as far as this process knows them. */
export interface History {
  readonly range: HistoryRange
  readonly everyMs: number
  readonly isOfProcess: true
  readonly series: readonly Series[]
}

export interface Series {
  /** A name of `Figures`, or `lagSeconds:<consumer>`. */
  readonly name: string
  /** The time in milliseconds, and the value; the oldest first. */
  readonly points: readonly (readonly [at: number, value: number])[]
}

/** The figures of the first page, and what needs a person. They are read once for all viewers. */
export interface Overview extends Figures {
  readonly needs: readonly Need[]
  /** Attempts of handlers that failed, the newest first. */
  readonly failures: readonly Attempt[]
}

export interface Figures {
  readonly at: Date
  /** The last settled position. */
  readonly position: number
  /** The highest position drawn; above `position` while a transaction that has appended is open. */
  readonly head: number
  /** Positions per second since the last reading; undefined after the first. */
  readonly eventsPerSecond: number | undefined
  readonly oldestReadySeconds: number
  readonly workflowsActive: number
  /** Of all handlers, by state. */
  readonly executions: OpenCounts
  readonly executionsPerSecond: number | undefined
  readonly failuresPerSecond: number | undefined
  /** Of the handlers that this process runs; undefined if it has run none lately. */
  readonly handlerTimes: HandlerTimes | undefined
  readonly deadLetters: CappedCount & { readonly ofHandlers: readonly OfHandler[] }
  readonly runners: { readonly active: number; readonly standby: number; readonly workers: number }
  readonly consumers: readonly ConsumerMetrics[]
}

/** Those that have open ones, the most first. */
export interface OfHandler {
  readonly handler: string
  readonly count: number
}

/** Of the last half minute. */
export interface HandlerTimes {
  /** From when an execution was ready until it was run. */
  readonly queuedP95Ms: number
  readonly ranP50Ms: number
  readonly ranP95Ms: number
}

/** If it is capped, there may be more. */
export interface CappedCount {
  readonly count: number
  readonly isCapped: boolean
}

export interface Need {
  readonly kind: 'deadLetters' | 'consumerStopped' | 'consumerBehind' | 'consumerPaused' | 'notRunning' | 'heldBack'
  readonly level: 'warning' | 'error'
  /** The consumer or handler. */
  readonly name: string | undefined
  readonly message: string
}

/** Something that a search has found, with the page that shows it. */
export interface Found {
  readonly kind:
    | 'event'
    | 'stream'
    | 'workflow'
    | 'execution'
    | 'consumer'
    | 'handler'
    | 'schedule'
    | 'collection'
    | 'tenant'
  readonly name: string
  /** The path of its page in the console, below the base. */
  readonly path: string
}

export interface Published {
  readonly correlationId: string
}

/** A document as the API shows it. Of a deletion in a history, the data is null. */
export interface ShownDocument {
  readonly id: string
  readonly version: number
  readonly data: unknown
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly createdBy?: string | undefined
  readonly updatedBy?: string | undefined
  readonly deletedAt?: Date | undefined
}

export interface Written {
  readonly id: string
  /** The version it has now; undefined if it was deleted. */
  readonly version: number | undefined
}

export interface SchemaDescription extends SchemaState {
  readonly schema: string
  readonly isHealthy: boolean
  readonly problems: readonly Problem[]
}

export interface OperationDescription {
  readonly id: string
  readonly kind: 'rebuild' | 'rehearse' | 'repartition' | 'sync' | 'upkeep' | 'move' | 'syncTenants' | 'cancelAll'
  readonly target: string
  readonly state: 'running' | 'done' | 'failed' | 'cancelled'
  readonly startedBy: string
  readonly startedAt: Date
  readonly endedAt?: Date | undefined
  readonly phase?: string | undefined
  readonly done?: number | undefined
  readonly total?: number | undefined
  readonly perSecond?: number | undefined
  readonly etaMs?: number | undefined
  readonly result?: unknown
  readonly error?: { readonly code: string; readonly message: string } | undefined
}
