import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const entries: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).exports

test('users can import these names and no others', async () => {
  const names: Record<string, string[]> = {}
  for (const [entry, file] of Object.entries(entries)) {
    if (file.endsWith('.js')) names[entry] = Object.keys(await import(sourceOf(file))).sort()
  }

  const words = [...errors.trim().split(/\s+/), ...functions.trim().split(/\s+/)]
  expect(names).toEqual({
    '.': words.sort(),
    './otel': ['connectOpenTelemetry'],
    './testing': [
      ...['NotSettled', 'SpecificationFailed', 'countingIds', 'fakeClock', 'settle', 'specify', 'testStore'],
    ],
  })
})

const functions = `
  aggregate and append at avg batch between channels column compileQuery complete contains count custom deadLetter decider
  defineCollection defineConfig defineEvents documentProjection elemMatch emit eq exists failFast filterFrom gt gte increment index insert isIn isNull
  isRillflowError like liveProjection logAndSkip lower lt lte max min ne not openStore or projection regex remove
  rename restoreBackup retryWithBackoff search set startsWith sum table tableProjection transition unset upcaster
`

const errors = `
  Aborted AlreadySettled AuthenticationFailed BackupDamaged BackupExists BackupUnreadable BackupUnsupported BulkRefused CheckpointBeyondHead CircuitOpen CollectionNotSynced
  CollectionReadOnly ConnectionLost ConsumerNotFound DatabaseFailed DatabaseMissing DatabaseUnreachable
  DeadLetterConflict DeadLetterNotFound DeadLetterUnwritable DeadlinePassed DocumentConflict DocumentDeleted
  DocumentExists DocumentNotFound DuplicateConsumer DuplicateEventId DuplicateHandler DuplicateSchedule EventGone
  EventUndecodable ExecutionLost ExecutionNotParked ExecutionTimeout FoldFailed FolderLocked FolderNotEmpty FolderNotWritable
  FolderVersionMismatch HandlerNotFound HandlerTimeout HopsExceeded IdempotencyConflict IdempotencyMismatch
  ImportBypassesInline ImportMismatch InlineProjectionFailed InlineProjectionUnknown InsideTransaction
  InvalidAggregateState InvalidCursor InvalidDecision InvalidDocument InvalidEvent InvalidFilter InvalidName
  InvalidOption InvalidPatch InvalidProjectionValue InvalidQuery InvalidResult InvalidScheduleResult InvalidStepResult
  JoinFailed JoinTimeout LaneNotParked LeaseLost LogRewound NoHandler NodeNotFound NonDeterministic NonRetryable
  NotOne OutcomeUnknown Overloaded PatchMismatch ProjectionNotSynced RebuildImpossible RebuildRunning RetryLater
  RetryPending RillflowError ScheduleNotFound ScheduleTimeout SchemaDrift SchemaMissing SchemaNewer SchemaOutdated
  SerializationFailed ServerInRecovery ServerUnsupported SessionClosed SessionSaving SnapshotRefused StoreClosed
  StreamArchived StreamNotFound TenancyRequired TenantElsewhere TenantMoving TenantNotFound TenantRequired
  DirectoryMissing DirectoryUnreachable ForceRequired InvalidTenantName MoveHeldUp MoveNotEqual MoveRefused
  MoveTakenOver ServerNotFound ArchiveDamaged ArchiveExists ArchiveForeign ArchiveNewer ImportDiffers NotArchivable
  SchemaNotEmpty StreamTombstoned SubscriptionMismatch SubscriptionNotFound TimedOut TooManyEmitted
  TransactionClosed TransactionTimeout UniqueViolation UnknownLanguage UpcastFailed UpcasterCycle UpcasterFailed
  VersionConflict ViewsDepend WorkerCrashed WorkflowNotActive
`

function sourceOf(built: string): string {
  return built.replace('./dist/', '../src/').replace(/\.js$/, '.ts')
}
