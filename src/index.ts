/** The public names of rillflow, one by one. */
export type { Clock } from './core/clock.ts'
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
export { ImportBypassesInline, InlineProjectionFailed, InlineProjectionUnknown } from './core/projection-errors.ts'
export type { Transaction, TransactionOptions } from './database/database.ts'
export type { AnyTransaction, ForeignTransaction } from './database/transaction.ts'
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
export type { CheckResult } from './schema/check.ts'
export type { Problem, Step } from './schema/difference.ts'
export type { Progress, SyncOptions } from './schema/migrate.ts'
export type { Plan } from './schema/plan.ts'
export type { MigrateMode, Schema, SchemaState } from './schema/schema.ts'
export { openStore, type Store, type StoreOptions } from './store.ts'
export { type Counter, channels, type Logger } from './telemetry/telemetry.ts'
