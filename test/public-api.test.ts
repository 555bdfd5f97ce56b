import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const entries: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).exports

test('users can import these names and no others', async () => {
  const names: Record<string, string[]> = {}
  for (const [entry, file] of Object.entries(entries)) {
    if (file.endsWith('.js')) names[entry] = Object.keys(await import(sourceOf(file))).sort()
  }

  const words = (text: string): string[] => text.trim().split(/\s+/).sort()
  expect(names).toEqual({
    '.': words(functions + commonErrors),
    './errors': words(`${errors} isRillflowError`),
    './otel': ['connectOpenTelemetry'],
    './patch': words('append increment insert remove rename set unset'),
    './query': words(queries),
    './testing': [
      ...['NotSettled', 'SpecificationFailed', 'countingIds', 'fakeClock', 'settle', 'specify', 'testStore'],
    ],
  })
})

const functions = `
  and batch between channels compensate complete contains custom deadLetter defineAggregate defineClassAggregate defineCollection
  defineConfig defineDocumentProjection defineEvents defineHandler defineJoin defineProjectedAggregate defineProjection
  defineSchedule defineTableProjection defineUndo
  eq failFast gt gte increment isIn isNull logAndSkip lt lte ne not openStore or restoreBackup
  retryWithBackoff search startsWith transition upcaster
`

const queries = `
  and at avg between compileQuery contains count elemMatch eq exists filterFrom gt gte isIn isNull like lower lt lte max
  min ne not or regex search startsWith sum
`

/** The errors that programs catch, or throw. The whole set is `rillflow/errors`. */
const commonErrors = `
  DocumentConflict DocumentExists DocumentNotFound IdempotencyConflict InvalidEvent isRillflowError NonRetryable
  OutcomeUnknown Overloaded RetryLater RillflowError TimedOut UniqueViolation VersionConflict
`

const errors = `
  Aborted AlreadySettled AuthenticationFailed BackupDamaged BackupExists BackupUnreadable BackupUnsupported BulkRefused CheckpointBeyondHead CheckpointMoved CircuitOpen CollectionNotSynced
  CollectionReadOnly ConnectionLost ConsumerNotFound DatabaseFailed DatabaseMissing DatabaseUnreachable
  DeadLetterConflict DeadLetterNotFound DeadLetterUnwritable DeadlinePassed DocumentConflict DocumentDeleted
  DocumentExists DocumentNotFound DuplicateConsumer DuplicateEventId DuplicateHandler DuplicateSchedule EventGone
  EventUndecodable ExecutionLost ExecutionNotParked ExecutionTimeout FoldFailed FolderLocked FolderNotEmpty FolderNotWritable
  FolderVersionMismatch HandlerNotFound ConsumerTimeout HopsExceeded IdempotencyConflict IdempotencyMismatch
  ImportBypassesInline ImportMismatch InlineProjectionFailed InlineProjectionUnknown InsideTransaction
  InvalidAggregateState InvalidCursor InvalidDecision InvalidDocument InvalidEvent InvalidFilter InvalidName
  InvalidOption InvalidPatch InvalidProjectionValue InvalidQuery InvalidResult InvalidScheduleResult InvalidStepResult
  JoinFailed JoinTimeout LaneNotParked LeaseLost LogRewound EventTypeUnhandled RunnerNotFound NonDeterministic NonRetryable
  NotInTransaction NotOne OutcomeUnknown Overloaded PatchMismatch ProjectionNotSynced RebuildImpossible RebuildRunning RetryLater
  RetryPending RillflowError ScheduleNotFound ScheduleTimeout SchemaDrift SchemaMissing SchemaNewer SchemaOutdated
  SerializationFailed ServerInRecovery ServerUnsupported SessionClosed SessionSaving SnapshotRefused StoreClosed
  StreamArchived StreamNotFound TenancyRequired TenantElsewhere TenantMoving TenantNotFound TenantRequired
  DirectoryMissing DirectoryUnreachable ForceRequired InvalidTenantName MoveHeldUp MoveNotEqual MoveRefused
  MoveTakenOver ServerNotFound ExportDamaged ExportExists ExportNewer ExportUnreadable ImportDiffers IntegerTooLarge NotExportable
  SchemaNotEmpty StreamTombstoned SubscriptionMismatch TimedOut TooManyEmitted
  TransactionClosed TransactionTimeout UniqueViolation UnknownLanguage UpcastFailed UpcasterCycle UpcasterFailed
  VersionConflict ViewsDepend WorkerCrashed WorkflowNotActive
`

function sourceOf(built: string): string {
  return built.replace('./dist/', '../src/').replace(/\.js$/, '.ts')
}
