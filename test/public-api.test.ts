import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const entries: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).exports

test('users can import these names and no others', async () => {
  const names: Record<string, string[]> = {}
  for (const [entry, file] of Object.entries(entries)) {
    if (file.endsWith('.js')) names[entry] = Object.keys(await import(sourceOf(file))).sort()
  }

  expect(names).toEqual({
    '.': [...errors.trim().split(/\s+/), 'channels', 'defineEvents', 'isRillflowError', 'openStore', 'upcaster'],
    './testing': ['countingIds', 'fakeClock', 'temporaryStore'],
  })
})

const errors = `
  Aborted AuthenticationFailed ConnectionLost DatabaseFailed DatabaseMissing DatabaseUnreachable
  DuplicateEventId FolderLocked FolderNotWritable FolderVersionMismatch IdempotencyConflict IdempotencyMismatch
  ImportBypassesInline ImportMismatch InlineProjectionFailed InlineProjectionUnknown InsideTransaction InvalidEvent InvalidName InvalidOption LogRewound OutcomeUnknown Overloaded
  RillflowError SchemaDrift SchemaMissing SchemaNewer SchemaOutdated SerializationFailed ServerInRecovery
  ServerUnsupported StoreClosed StreamArchived StreamNotFound StreamTombstoned TimedOut TransactionClosed
  TransactionTimeout UpcasterCycle UpcasterFailed VersionConflict
`

function sourceOf(built: string): string {
  return built.replace('./dist/', '../src/').replace(/\.js$/, '.ts')
}
