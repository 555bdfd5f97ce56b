/**
 * The answers of the API by route, for the table of routes and, as types alone, for the browser program.
 *
 *     const events: Answer<'GET /events'> = await get('/events')
 *
 * `Contract` has the values that the calls return. `Answer` has them as JSON: times are ISO text, absent fields are left
 * out, and `next` of a last page is null.
 */
import type { DeadLetter, DeadLetterDetails, DeadLetterGroup } from '../../consumers/dead-letters/dead-letter.ts'
import type { RetryRequest } from '../../consumers/dead-letters/retry.ts'
import type { ConsumerMetrics } from '../../consumers/insight.ts'
import type { RunnerDescription } from '../../consumers/runners/runners.ts'
import type { ConsumerStatus } from '../../consumers/status.ts'
import type { Page } from '../../core/page.ts'
import type { AppendResult } from '../../events/append/send.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { LogState } from '../../events/events.ts'
import type { EventTypeDescription } from '../../events/read/event-types.ts'
import type { EventPage } from '../../events/read/list.ts'
import type { StoredEvent } from '../../events/read/stored.ts'
import type { Categories } from '../../events/streams/categories.ts'
import type { StreamDescription } from '../../events/streams/streams.ts'
import type { Attempt } from '../../workflows/insight/activity.ts'
import type { OpenCounts } from '../../workflows/insight/executions.ts'
import type { HandlerDescription } from '../../workflows/insight/handlers.ts'
import type { WorkerDescription } from '../../workflows/insight/insight.ts'
import type { WorkflowStats } from '../../workflows/insight/stats.ts'
import type { WorkflowTree } from '../../workflows/insight/tree.ts'
import type { WorkflowStatus } from '../../workflows/status.ts'
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
  'GET /events': { answer: EventPage<ShownEvent> }
  'GET /events/types': { answer: Listed<EventTypeDescription> }
  'GET /events/at/:position': { answer: ShownEvent }
  'GET /events/:id/effects': { answer: Page<ShownEvent> }
  'GET /streams/categories': { answer: Categories }
  'GET /streams/:stream/events': { answer: Page<ShownEvent> }
  'POST /streams/:stream/append': { answer: AppendResult }
  'POST /streams/:stream/archive': { answer: Done }
  'POST /streams/:stream/restore': { answer: Done }
  'POST /streams/:stream/tombstone': { answer: Done }
  'GET /streams': { answer: Page<StreamDescription> }
  'GET /streams/:stream': { answer: StreamDescription }
  'GET /events/:id': { answer: EventDetails }
  'GET /consumers': { answer: Page<ConsumerStatus> }
  'GET /consumers/:name': { answer: ConsumerStatus }
  'GET /runners': { answer: Page<RunnerDescription> }
  'GET /workers': { answer: Page<WorkerDescription> }
  'GET /handlers': { answer: Page<HandlerDescription> }
  'GET /workflows': { answer: Page<WorkflowStatus> }
  'GET /workflows/stats': { answer: WorkflowStats }
  'GET /workflows/:id': { answer: WorkflowStatus }
  'GET /workflows/:id/tree': { answer: WorkflowTree }
  'GET /workflows/:id/attempts': { answer: Page<Attempt> }
  'GET /dead-letters': { answer: Page<DeadLetter> }
  'GET /dead-letters/groups': { answer: Page<DeadLetterGroup> }
  'GET /dead-letters/:owner/:event': { answer: DeadLetterDetails }
  'POST /dead-letters/:owner/:event/retry': { answer: RetryRequest }
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
  /** Positions per second since the last reading; undefined after the first. */
  readonly eventsPerSecond: number | undefined
  readonly oldestReadySeconds: number
  readonly workflowsActive: number
  /** Of all handlers, by state. */
  readonly executions: OpenCounts
  readonly executionsPerSecond: number | undefined
  readonly failuresPerSecond: number | undefined
  readonly deadLetters: CappedCount
  readonly runners: { readonly active: number; readonly standby: number; readonly workers: number }
  readonly consumers: readonly ConsumerMetrics[]
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
