/**
 * `rillflow`: opening a store, the definitions, and the names that almost every program needs. At most 140.
 *
 * All conditions are in `rillflow/query`, all operations of patches in `rillflow/patch`, all errors in `rillflow/errors`.
 * A type is here if programs write it down: in the parameters of their own functions, or in what these return.
 */
export {
  type Aggregate,
  type AggregateInstance,
  defineAggregate,
  defineClassAggregate,
} from './aggregates/aggregate.ts'
export { defineProjectedAggregate } from './aggregates/projected.ts'
export type { Handled, HandleOptions, Repository } from './aggregates/repository.ts'
export type { Saved } from './aggregates/saved.ts'
export { type Config, defineConfig } from './config.ts'
export type { From } from './consumers/consumer.ts'
export type { DeadLetter } from './consumers/dead-letters/dead-letter.ts'
export type { DeadLetterGroup } from './consumers/dead-letters/groups.ts'
export { defineProcessor, type Processor, type ProcessorContext } from './consumers/processor.ts'
export type { Failure, FailureEnd, FailureOptions } from './consumers/run/policy.ts'
export type { Runner, RunnerOptions } from './consumers/runners/runner.ts'
export type { RunnerDescription } from './consumers/runners/runners.ts'
export type { ConsumerStatus } from './consumers/status.ts'
export type { Clock } from './core/clock.ts'
export type { Ids } from './core/id.ts'
export type { Page, PageOptions } from './core/page.ts'
export type { Transaction } from './database/database.ts'
export type { AnyTransaction, ForeignTransaction } from './database/transaction.ts'
export { type Collection, defineCollection } from './documents/collection.ts'
export type { Documents, ReadDocuments } from './documents/documents.ts'
export type { DocumentVersion } from './documents/history.ts'
export { increment } from './documents/patch/patch.ts'
export {
  and,
  between,
  contains,
  eq,
  gt,
  gte,
  isIn,
  isNull,
  lt,
  lte,
  ne,
  not,
  or,
  search,
  startsWith,
} from './documents/query/condition.ts'
export type { Query, Rows } from './documents/query/query.ts'
export type { StoredDocument } from './documents/read.ts'
export {
  DocumentConflict,
  DocumentExists,
  DocumentNotFound,
  IdempotencyConflict,
  InvalidEvent,
  isRillflowError,
  NonRetryable,
  OutcomeUnknown,
  Overloaded,
  RetryLater,
  RillflowError,
  TimedOut,
  UniqueViolation,
  VersionConflict,
} from './errors.ts'
export type { AppendOptions } from './events/append/append.ts'
export type { Expected } from './events/append/prepare.ts'
export type { AppendResult } from './events/append/send.ts'
export {
  defineEvents,
  type EventDefinitions,
  type EventMap,
  type EventsIn,
  type EventsOf,
  type NewEvent,
  type RecordedEvent,
  type UntypedEvents,
} from './events/definition.ts'
export type { ImportedEvent } from './events/import/import.ts'
export type { EventFilter } from './events/read/log.ts'
export type { EventSequence } from './events/read/sequence.ts'
export { defineUpcaster, type Upcaster } from './events/read/upcast.ts'
export type { StreamDescription } from './events/streams/streams.ts'
export { type DocumentProjection, defineDocumentProjection } from './projections/document-projection.ts'
export { defineProjection, type Projection, type ProjectionContext } from './projections/projection.ts'
export { defineTableProjection, type TableProjection } from './projections/table-projection.ts'
export type { Decided, HandledSession } from './sessions/handle.ts'
export type { Session } from './sessions/session.ts'
export { openStore, type Store, type StoreOptions, type TenantedStore } from './store.ts'
export type { Delivery } from './subscriptions/delivery.ts'
export { defineSubscription, type Subscription } from './subscriptions/subscription.ts'
export type { Trace } from './telemetry/breadcrumbs.ts'
export type { Span } from './telemetry/span.ts'
export { channels, type Logger } from './telemetry/telemetry.ts'
export type { Placement } from './tenants/placement.ts'
export type { Tenancy } from './tenants/tenancy.ts'
export { restoreBackup } from './transfer/backup/restore.ts'
export type { RetentionOptions } from './upkeep/retention.ts'
export { defineUndo, type Undo } from './workflows/cancel/undo.ts'
export type { InlineContext } from './workflows/dispatch/inline.ts'
export {
  batch,
  compensate,
  complete,
  type Emission,
  type Emit,
  type EmitOptions,
  type HandlerResult,
} from './workflows/emit.ts'
export { defineHandler, type Handler, type HandlerFailure, type TerminalFailure } from './workflows/handler.ts'
export type { Activity } from './workflows/insight/activity.ts'
export { defineJoin, type JoinContext } from './workflows/joins/join.ts'
export type { PublishOptions } from './workflows/publish.ts'
export { defineSchedule, type Schedule, type ScheduleContext } from './workflows/schedules/schedule.ts'
export type { WorkflowState, WorkflowStatus } from './workflows/status.ts'
export type { HandlerContext } from './workflows/steps/context.ts'
export { transition } from './workflows/transition.ts'
export type { Workflow } from './workflows/workflow.ts'
