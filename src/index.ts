/** The public names of rillflow, one by one. */
export {
  type Aggregate,
  type AggregateInstance,
  defineAggregate,
  defineClassAggregate,
} from './aggregates/aggregate.ts'
export type { LoadedAggregate } from './aggregates/loaded.ts'
export { defineProjectedAggregate } from './aggregates/projected.ts'
export type { CommitOptions, Handled, HandleOptions, LoadOptions, Repository } from './aggregates/repository.ts'
export type { Snapshotter, SnapshotterMetrics } from './aggregates/snapshotter.ts'
export { type Config, defineConfig } from './config.ts'
export type { ConsumerAdministration, GroupOption } from './consumers/administration.ts'
export type { ConsumerFilter, ConsumerOptions, From } from './consumers/consumer.ts'
export type {
  DeadLetter,
  DeadLetterDetails,
  DeadLetterError,
  DeadLetterFilter,
  DeadLetterGroup,
  DeadLetterStats,
  GroupDeadLettersOptions,
  ListDeadLettersOptions,
} from './consumers/dead-letters/dead-letter.ts'
export type { DeadLetters } from './consumers/dead-letters/dead-letters.ts'
export type { DeadLetterOwner } from './consumers/dead-letters/owner.ts'
export type { RetryFilter, RetryRequest } from './consumers/dead-letters/retry.ts'
export type { DeadLetterState } from './consumers/dead-letters/row.ts'
export { defineProcessor, type Processor, type ProcessorContext } from './consumers/processor.ts'
export type { BreakerOptions } from './consumers/run/breaker.ts'
export type { Failure, FailureEnd, FailureOptions } from './consumers/run/policy.ts'
export type { RunOptions, RunResult } from './consumers/run/run.ts'
export type { RunnableKind } from './consumers/runners/runnable.ts'
export type { Runner, RunnerOptions } from './consumers/runners/runner.ts'
export type { RunnerDescription, Runners } from './consumers/runners/runners.ts'
export type { ConsumerStatus, ListConsumersOptions, StoredError } from './consumers/status.ts'
export type { WaitForOptions } from './consumers/wait-for.ts'
export type { Clock } from './core/clock.ts'
export type { Ids } from './core/id.ts'
export type { Page, PageOptions } from './core/page.ts'
export type { Transaction, TransactionOptions } from './database/database.ts'
export type { AnyTransaction, ForeignTransaction } from './database/transaction.ts'
export type { IndexAdvice } from './documents/advisor.ts'
export type { DocumentBatch } from './documents/batch.ts'
export type { BulkOptions, BulkOutcome, ChangedDocument, NewDocument } from './documents/bulk.ts'
export {
  type CallOptions,
  type Collection,
  type CollectionOptions,
  defineCollection,
  type WriteOptions,
} from './documents/collection.ts'
export type { Documents, ReadDocuments } from './documents/documents.ts'
export type { DocumentVersion, HistoryOptions } from './documents/history.ts'
export type {
  ImportedDocument,
  ImportOptions as DocumentImportOptions,
  ImportProgress as DocumentImportProgress,
} from './documents/import.ts'
export type {
  CollectionColumn,
  CollectionIndex,
  IndexingOptions,
  PathsOf,
} from './documents/indexes.ts'
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
export type { ReadOptions as DocumentReadOptions, StoredDocument } from './documents/read.ts'
export type { ExpectedOptions } from './documents/write.ts'
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
export type { AppendBuilder } from './events/append/builder.ts'
export type { AppendResult } from './events/append/outcome.ts'
export type { Expected } from './events/append/prepare.ts'
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
export type { Events, LogState, StreamAppend } from './events/events.ts'
export type { ImportedEvent, ImportOptions, ImportProgress } from './events/import/import.ts'
export type { HeldBackBy } from './events/order/order.ts'
export type { TailOptions } from './events/order/tail.ts'
export type { EventFilter, ReadLogOptions } from './events/read/log.ts'
export type { ReadOptions } from './events/read/read.ts'
export type { EventSequence } from './events/read/sequence.ts'
export { defineUpcaster, type Upcaster } from './events/read/upcast.ts'
export type { ListStreamsOptions, StreamDescription, Streams } from './events/streams/streams.ts'
export { type DocumentProjection, defineDocumentProjection } from './projections/document-projection.ts'
export { defineProjection, type Lifecycle, type Projection, type ProjectionContext } from './projections/projection.ts'
export type {
  Projections,
  SwitchOptions,
} from './projections/projections.ts'
export type { OnProgress, RebuildOptions, RebuildProgress } from './projections/rebuild/build.ts'
export type { Rebuilt } from './projections/rebuild/rebuild.ts'
export { defineTableProjection, type RowChange, type TableProjection } from './projections/table-projection.ts'
export type { CheckResult } from './schema/check.ts'
export type { Problem, Step } from './schema/difference.ts'
export type { Progress, SyncOptions } from './schema/migrate.ts'
export type { Plan } from './schema/plan.ts'
export type { MigrateMode, Schema, SchemaState } from './schema/schema.ts'
export type { ServerOptions, StoreServer } from './server/server.ts'
export type {
  SessionDeleteOptions,
  SessionDocument,
  SessionDocuments,
  SessionLoadOptions,
  SessionPutOptions,
} from './sessions/documents.ts'
export type { Decided, Handle, HandledSession, HandleSessionOptions } from './sessions/handle.ts'
export type { SavedDocument } from './sessions/save.ts'
export type {
  Saved,
  SaveOptions,
  Session,
  SessionOptions,
  SessionPublished,
  SessionPublishOptions,
} from './sessions/session.ts'
export { openStore, type Store, type StoreOptions, type TenantedStore } from './store.ts'
export type { Delivery, NackOptions } from './subscriptions/delivery.ts'
export type { SubscriptionIteration } from './subscriptions/iterate.ts'
export type { CreateOptions, SubscribeOptions } from './subscriptions/options.ts'
export type { RepartitionOptions } from './subscriptions/repartition.ts'
export type { GroupStatus, PartitionStatus } from './subscriptions/status.ts'
export { defineSubscription, type Subscription } from './subscriptions/subscription.ts'
export type { Subscribe, Subscriptions } from './subscriptions/subscriptions.ts'
export type { Crumb, CrumbKind, Trace, TraceOptions } from './telemetry/breadcrumbs.ts'
export type { Counter } from './telemetry/metrics.ts'
export type { Span, SpanCause, SpanEnd, SpanEvent, SpanName } from './telemetry/span.ts'
export { channels, type Logger } from './telemetry/telemetry.ts'
export type { MovedTenant, MoveTenantOptions } from './tenants/move-tenant.ts'
export type { Placement } from './tenants/placement.ts'
export type { TenantStatus } from './tenants/status.ts'
export type { DirectoryTenancy, Tenancy } from './tenants/tenancy.ts'
export type {
  EnsureOptions,
  ImportFromOptions,
  ImportTenantOptions,
  RunningTenants,
  SyncedTenant,
  SyncTenantsOptions,
  Tenants,
  TenantsProgress,
  TenantsStartOptions,
} from './tenants/tenants.ts'
export type { BackupOptions, BackupProgress, BackupResult } from './transfer/backup/backup.ts'
export type { CutResult } from './transfer/backup/cut-log.ts'
export {
  type RestoreOptions,
  type RestoreProgress,
  type RestoreResult,
  restoreBackup,
} from './transfer/backup/restore.ts'
export type { SelectedDocument, SelectedStream } from './transfer/export/copy-selection.ts'
export type { ExportOptions } from './transfer/export/export.ts'
export type { StoreImportOptions as ArchiveImportOptions } from './transfer/export/import.ts'
export type { ExportedFile, ExportedTable, ExportManifest, ExportProgress } from './transfer/export/manifest.ts'
export type { Selection, SelectionOptions, SelectionProgress } from './transfer/export/selection.ts'
export type { CopiedRows, MoveProgress, MoveResult } from './transfer/move/move.ts'
export type { Diagnosis, DoctorOptions, Finding } from './upkeep/doctor/doctor.ts'
export type { RetentionOptions } from './upkeep/retention.ts'
export type { UpkeepKind, UpkeepOptions, UpkeepProgress, UpkeepReport } from './upkeep/upkeep.ts'
export type { CancelOptions } from './workflows/cancel/cancel.ts'
export { defineUndo, type Undo, type UndoneStep, type UndoOptions, type UndoRequest } from './workflows/cancel/undo.ts'
export type { DeadLetterReason } from './workflows/dead-letters/record.ts'
export type { InlineContext } from './workflows/dispatch/inline.ts'
export {
  type AttemptResult,
  type Batch,
  type BatchOptions,
  batch,
  type Compensation,
  type Completion,
  compensate,
  complete,
  type Emission,
  type Emit,
  type EmitOptions,
  type HandlerResult,
} from './workflows/emit.ts'
export {
  defineHandler,
  type Handler,
  type HandlerFailure,
  type HandlerKind,
  type HandlerOptions,
  type RateLimit,
  type TerminalFailure,
} from './workflows/handler.ts'
export type { Activity, ActivityKind, Attempt, AttemptsOptions } from './workflows/insight/activity.ts'
export type { ExecutionState, Executions, OpenCounts } from './workflows/insight/executions.ts'
export type { HandlerDescription, Handlers } from './workflows/insight/handlers.ts'
export type { Insight, WorkerDescription, WorkflowInsight } from './workflows/insight/insight.ts'
export type { ListWorkflowsOptions } from './workflows/insight/list.ts'
export type { WorkflowStats } from './workflows/insight/stats.ts'
export type { EventNode, HandlerNode, TreeNode, TreeOptions, WorkflowTree } from './workflows/insight/tree.ts'
export type { WatchWorkflowOptions, WatchWorkflowsOptions } from './workflows/insight/watch.ts'
export {
  defineJoin,
  type JoinContext,
  type JoinInfo,
  type JoinOptions,
  type JoinPolicy,
} from './workflows/joins/join.ts'
export type { PublishOptions } from './workflows/publish.ts'
export type { ScheduleOutcome } from './workflows/schedules/run.ts'
export {
  defineSchedule,
  type Schedule,
  type ScheduleContext,
  type ScheduleOptions,
  type ScheduleResult,
  type StoredSchedule,
} from './workflows/schedules/schedule.ts'
export type {
  ScheduleHistoryOptions,
  ScheduleRun,
  ScheduleStatus,
  Schedules,
  TriggeredRun,
} from './workflows/schedules/schedules.ts'
export type { Missed } from './workflows/schedules/times.ts'
export type { WorkflowFailure, WorkflowState, WorkflowStatus } from './workflows/status.ts'
export type { Child, ChildStatus, StartOptions } from './workflows/steps/children.ts'
export type { HandlerContext } from './workflows/steps/context.ts'
export type { StepOptions } from './workflows/steps/steps.ts'
export type { WaitOptions } from './workflows/steps/waits.ts'
export { type Transition, transition } from './workflows/transition.ts'
export type { Lane, Lanes, ListLanesOptions } from './workflows/work/lanes.ts'
export type { Workflow } from './workflows/workflow.ts'
export type { WorkflowDefinition, WorkflowOptions, Workflows } from './workflows/workflows.ts'
