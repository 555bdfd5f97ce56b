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
    './testing': [
      ...['NotSettled', 'SpecificationFailed', 'countingIds', 'fakeClock', 'settle', 'specify', 'temporaryStore'],
    ],
  })
})

const functions = `
  aggregate decider
  and append at avg between channels column compileQuery contains count custom deadLetter defineEvents
  documentProjection elemMatch eq exists failFast filterFrom gt gte increment index insert isIn isNull isRillflowError
  like liveProjection logAndSkip lower lt lte max min ne not openStore or projection regex remove rename
  retryWithBackoff search set startsWith sum table tableProjection unset upcaster
`

const errors = `
  BulkRefused CollectionNotSynced CollectionReadOnly DocumentConflict DocumentDeleted DocumentExists DocumentNotFound
  InvalidCursor InvalidDocument InvalidFilter InvalidPatch InvalidQuery NotOne PatchMismatch UniqueViolation
  UnknownLanguage UpcastFailed
  Aborted AlreadySettled AuthenticationFailed CheckpointBeyondHead CircuitOpen ConnectionLost ConsumerNotFound
  DatabaseFailed DatabaseMissing DatabaseUnreachable DeadLetterConflict DeadLetterNotFound DeadLetterUnwritable
  DuplicateConsumer DuplicateEventId FoldFailed FolderLocked FolderNotWritable FolderVersionMismatch HandlerTimeout
  IdempotencyConflict IdempotencyMismatch ImportBypassesInline ImportMismatch InlineProjectionFailed
  InlineProjectionUnknown InsideTransaction InvalidAggregateState InvalidDecision InvalidEvent InvalidName InvalidOption InvalidProjectionValue LeaseLost
  LogRewound NoHandler NodeNotFound OutcomeUnknown Overloaded ProjectionNotSynced RebuildImpossible RebuildRunning
  RillflowError SchemaDrift SchemaMissing SchemaNewer SchemaOutdated SerializationFailed ServerInRecovery SessionClosed SessionSaving
  ServerUnsupported SnapshotRefused StoreClosed StreamArchived StreamNotFound StreamTombstoned SubscriptionMismatch
  SubscriptionNotFound TimedOut TransactionClosed TransactionTimeout UpcasterCycle UpcasterFailed VersionConflict
  ViewsDepend
`

function sourceOf(built: string): string {
  return built.replace('./dist/', '../src/').replace(/\.js$/, '.ts')
}
