/** The public names of rillflow, one by one. */
export {
  type Aggregate,
  type AggregateInstance,
  type AggregateOptions,
  aggregate,
  type ClassCommand,
  type DeciderOptions,
  type ProjectedDefinition,
} from './aggregates/aggregate.ts'
export type { CommitOptions } from './aggregates/commit.ts'
export { type AnyEvent, type Decider, decider } from './aggregates/decider.ts'
export type { LoadedAggregate } from './aggregates/loaded.ts'
export type { FoldingProjection } from './aggregates/projected.ts'
export type { Handled, HandleOptions, LoadOptions, Repository } from './aggregates/repository.ts'
export type { Snapshotter, SnapshotterMetrics, SnapshotterOptions } from './aggregates/snapshotter.ts'
export type { BreakerOptions } from './consumers/breaker.ts'
export type { ConsumerFilter, ConsumerOptions, StartFrom } from './consumers/consumer.ts'
export type { Daemon, DaemonOptions } from './consumers/daemon.ts'
export type { DaemonDescription, Daemons } from './consumers/daemons.ts'
export type { DeadLetterState } from './consumers/dead-letter.ts'
export type { DeadLetterStats, DeadLetters, RetryFilter, RetryRequest } from './consumers/dead-letters.ts'
export type { DeadLetter, DeadLetterDetails, ListDeadLettersOptions } from './consumers/list-dead-letters.ts'
export {
  custom,
  type Decision,
  deadLetter,
  type Failure,
  type FailureEnd,
  type FailurePolicy,
  failFast,
  logAndSkip,
  type PolicyOptions,
  retryWithBackoff,
} from './consumers/policy.ts'
export type { Processor, ProcessorOptions, ProcessorState } from './consumers/processor.ts'
export type { ConsumerStatus, StoredError } from './consumers/status.ts'
export type { Tick, TickOptions } from './consumers/tick.ts'
export type { WaitForOptions } from './consumers/wait-for.ts'
export { FoldFailed, InvalidAggregateState, InvalidDecision, SnapshotRefused } from './core/aggregate-errors.ts'
export type { Clock } from './core/clock.ts'
export {
  CheckpointBeyondHead,
  CircuitOpen,
  ConsumerNotFound,
  DeadLetterConflict,
  DeadLetterNotFound,
  DeadLetterUnwritable,
  DuplicateConsumer,
  HandlerTimeout,
  LeaseLost,
  NodeNotFound,
  NoHandler,
} from './core/consumer-errors.ts'
export {
  BulkRefused,
  CollectionNotSynced,
  CollectionReadOnly,
  DocumentConflict,
  DocumentDeleted,
  DocumentExists,
  DocumentNotFound,
  InvalidDocument,
  InvalidPatch,
  PatchMismatch,
  type RefusedItem,
  UniqueViolation,
  UpcastFailed,
} from './core/document-errors.ts'
export {
  Aborted,
  AuthenticationFailed,
  ConnectionLost,
  DatabaseFailed,
  DatabaseMissing,
  DatabaseUnreachable,
  DuplicateEventId,
  FolderLocked,
  FolderNotWritable,
  FolderVersionMismatch,
  IdempotencyConflict,
  IdempotencyMismatch,
  ImportMismatch,
  InsideTransaction,
  InvalidEvent,
  InvalidName,
  InvalidOption,
  isRillflowError,
  LogRewound,
  OutcomeUnknown,
  Overloaded,
  RillflowError,
  SchemaDrift,
  SchemaMissing,
  SchemaNewer,
  SchemaOutdated,
  SerializationFailed,
  ServerInRecovery,
  ServerUnsupported,
  StoreClosed,
  StreamArchived,
  StreamNotFound,
  StreamTombstoned,
  TimedOut,
  TransactionClosed,
  TransactionTimeout,
  UpcasterCycle,
  UpcasterFailed,
  VersionConflict,
} from './core/errors.ts'
export type { Ids } from './core/id.ts'
export {
  ImportBypassesInline,
  InlineProjectionFailed,
  InlineProjectionUnknown,
  InvalidProjectionValue,
  ProjectionNotSynced,
  RebuildImpossible,
  RebuildRunning,
  ViewsDepend,
} from './core/projection-errors.ts'
export { InvalidCursor, InvalidFilter, InvalidQuery, NotOne, UnknownLanguage } from './core/query-errors.ts'
export { SessionClosed, SessionSaving } from './core/session-errors.ts'
export { AlreadySettled, SubscriptionMismatch, SubscriptionNotFound } from './core/subscription-errors.ts'
export type { Transaction, TransactionOptions } from './database/database.ts'
export type { AnyTransaction, ForeignTransaction } from './database/transaction.ts'
export type { IndexAdvice } from './documents/advisor.ts'
export type { DocumentBatch } from './documents/batch.ts'
export type { BulkOptions, BulkOutcome, ChangedDocument, NewDocument } from './documents/bulk.ts'
export type { CallOptions, CollectionOptions, WriteOptions } from './documents/collection.ts'
export type { Collection, Documents } from './documents/documents.ts'
export type { DocumentVersion, HistoryOptions } from './documents/history.ts'
export type {
  ImportedDocument,
  ImportOptions as DocumentImportOptions,
  ImportProgress as DocumentImportProgress,
} from './documents/import.ts'
export {
  type CollectionColumn,
  type CollectionIndex,
  column,
  type IndexingOptions,
  type IndexOptions as DocumentIndexOptions,
  index,
  type PathsOf,
} from './documents/indexes.ts'
export {
  append,
  increment,
  insert,
  type MergePatch,
  type Operation,
  type Patch,
  remove,
  rename,
  set,
  unset,
} from './documents/patch.ts'
export { type BoundQuery, type CompiledQuery, compileQuery } from './documents/query/compile.ts'
export {
  and,
  between,
  type Condition,
  contains,
  elemMatch,
  eq,
  exists,
  gt,
  gte,
  isIn,
  isNull,
  like,
  lt,
  lte,
  ne,
  not,
  or,
  regex,
  search,
  startsWith,
} from './documents/query/condition.ts'
export { at, type Field, lower, type MetaFields, type Path, type UntypedField } from './documents/query/field.ts'
export { type FilterOptions, filterFrom } from './documents/query/filter.ts'
export {
  type Aggregate as GroupAggregate,
  avg,
  count,
  type GroupQuery,
  max,
  min,
  sum,
} from './documents/query/group.ts'
export type { OrderAs, OrderOptions } from './documents/query/order.ts'
export type { CursorPage, IncludeOptions, Page, Query, Queryable } from './documents/query/query.ts'
export type { ReadOptions as DocumentReadOptions, StoredDocument } from './documents/read.ts'
export type { ExpectedOptions } from './documents/write.ts'
export type { AppendOptions } from './events/append.ts'
export type { AppendBuilder } from './events/builder.ts'
export {
  defineEvents,
  type EventDefinitions,
  type EventMap,
  type EventsOf,
  type NewEvent,
  type RecordedEvent,
  type UntypedEvents,
} from './events/definition.ts'
export type { Events, LogState, StreamAppend } from './events/events.ts'
export type { ImportedEvent, ImportOptions, ImportProgress } from './events/import.ts'
export type { AppendResult } from './events/outcome.ts'
export type { Expected } from './events/prepare.ts'
export type { ReadOptions } from './events/read.ts'
export type { EventFilter, ReadLogOptions } from './events/read-log.ts'
export type { EventSequence } from './events/sequence.ts'
export type { HeldBackBy } from './events/settle.ts'
export type { ListStreamsOptions, StreamDescription, Streams } from './events/streams.ts'
export type { TailOptions } from './events/tail.ts'
export { type Upcaster, type UpcasterStep, upcaster } from './events/upcast.ts'
export type { OnProgress, RebuildOptions, RebuildProgress } from './projections/build.ts'
export {
  type DocumentHandlers,
  type DocumentOptions,
  type DocumentProjection,
  documentProjection,
} from './projections/document.ts'
export { type RowChange, type TableProjectionOptions, tableProjection } from './projections/flat-table.ts'
export { type LiveProjection, liveProjection } from './projections/live.ts'
export {
  type CustomOptions,
  type Lifecycle,
  type Projection,
  type ProjectionContext,
  type ProjectionHandlers,
  type ProjectionOptions,
  projection,
} from './projections/projection.ts'
export type {
  ProjectionDescription,
  ProjectionMetrics,
  Projections,
  RegisterOptions,
} from './projections/projections.ts'
export type { Rebuilt } from './projections/rebuild.ts'
export {
  type ColumnOptions,
  type ColumnType,
  type IndexOptions,
  type TableOptions,
  table,
} from './projections/table.ts'
export type { CheckResult } from './schema/check.ts'
export type { Problem, Step } from './schema/difference.ts'
export type { Progress, SyncOptions } from './schema/migrate.ts'
export type { Plan } from './schema/plan.ts'
export type { MigrateMode, Schema, SchemaState } from './schema/schema.ts'
export type {
  SessionDeleteOptions,
  SessionDocument,
  SessionDocuments,
  SessionLoadOptions,
  SessionPutOptions,
} from './sessions/documents.ts'
export type { Handle, HandledCommand, HandledSession, HandleSessionOptions } from './sessions/handle.ts'
export type { SavedDocument } from './sessions/save.ts'
export type { Saved, SaveOptions, Session, SessionOptions } from './sessions/session.ts'
export { openStore, type Store, type StoreOptions } from './store.ts'
export type { Administration, SubscriptionSummary } from './subscriptions/administration.ts'
export type { RunningSubscription, Subscription } from './subscriptions/consume.ts'
export type { Delivery, NackOptions } from './subscriptions/delivery.ts'
export type { CallbackOptions, CreateOptions, SubscribeOptions } from './subscriptions/plan.ts'
export type { RepartitionOptions } from './subscriptions/repartition.ts'
export type { GroupStatus, PartitionStatus } from './subscriptions/status.ts'
export type { Subscribe, Subscriptions } from './subscriptions/subscriptions.ts'
export { type Counter, channels, type Logger } from './telemetry/telemetry.ts'
