import { defineError, type ErrorKind } from '../core/errors.ts'

/**
 * The stream has another version than the append expected: another writer was faster.
 *
 * @example
 * ```ts
 * const isIt = (error: unknown) => error instanceof VersionConflict // or isRillflowError(error, 'version_conflict')
 * ```
 */
export const VersionConflict: ErrorKind<
  'version_conflict',
  { stream: string; expected: number | 'empty' | 'exists'; actual: number }
> = defineError(
  'version_conflict',
  d =>
    `Stream ${d.stream} is at version ${d.actual}, and the append expected ${d.expected}. Read the stream again, decide again, then append.`,
)

export const IdempotencyMismatch: ErrorKind<'idempotency_mismatch', { key: string }> = defineError(
  'idempotency_mismatch',
  d =>
    `Idempotency key ${JSON.stringify(d.key)} was used before with other content, or for another stream. Use a new key.`,
)

export const IdempotencyConflict: ErrorKind<'idempotency_conflict', { key: string }> = defineError(
  'idempotency_conflict',
  d =>
    `Idempotency key ${JSON.stringify(d.key)} was used before, and onRepeat is 'error'. The first append is stored; nothing was added.`,
)

export const DuplicateEventId: ErrorKind<'duplicate_event_id', { eventIds: string[] }> = defineError(
  'duplicate_event_id',
  d => `Event id ${d.eventIds.join(', ')} is taken by another event. Leave the id out, or make a new one per event.`,
)

export const EventTooLarge: ErrorKind<
  'event_too_large',
  { eventId: string; stream: string; position: number; maxBytes: number }
> = defineError(
  'event_too_large',
  d =>
    `Event ${d.eventId} at position ${d.position} of stream ${d.stream} takes more than the ${d.maxBytes} bytes that are read, so it comes without its data. Read parts of it with SQL (data -> 'field').`,
)

export const StreamArchived: ErrorKind<'stream_archived', { stream: string }> = defineError(
  'stream_archived',
  d => `Stream ${d.stream} is archived. Restore it (store.streams.restore), or append with { allowArchived: true }.`,
)

export const StreamTombstoned: ErrorKind<'stream_tombstoned', { stream: string }> = defineError(
  'stream_tombstoned',
  d => `Stream ${d.stream} was tombstoned and takes no more events. Use another stream.`,
)

export const StreamNotFound: ErrorKind<'stream_not_found', { stream: string; nearest?: string | undefined }> =
  defineError('stream_not_found', d => {
    const hint = d.nearest === undefined ? 'Append to it first, or check the name.' : `Did you mean "${d.nearest}"?`
    return `There is no stream ${d.stream}. ${hint}`
  })
export const UpcasterCycle: ErrorKind<'upcaster_cycle', { path: string[] }> = defineError(
  'upcaster_cycle',
  d => `These upcasters lead back to where they start: ${d.path.join(' → ')}. Remove one of them.`,
)

export const UpcasterFailed: ErrorKind<'upcaster_failed', { type: string; schemaVersion: number; eventId: string }> =
  defineError(
    'upcaster_failed',
    d => `The upcaster of ${d.type} version ${d.schemaVersion} failed on event ${d.eventId}. error.cause says why.`,
  )
export const ImportMismatch: ErrorKind<'import_mismatch', { importName: string; imported: number }> = defineError(
  'import_mismatch',
  d =>
    `Import "${d.importName}" has ${d.imported} events already, and the first ${d.imported} events of this source differ from them. Resume with the same source in the same order, or give the import another name.`,
)

export const LogRewound: ErrorKind<'log_rewound', { cursor: number; head: number; reason: string }> = defineError(
  'log_rewound',
  d =>
    `The log is not the one that was read before (${d.reason}; read up to ${d.cursor}, head is now ${d.head}). The server was restored or a standby that lacks the last writes took over. Start again from a position you trust.`,
)

export const ImportBypassesInline: ErrorKind<'import_bypasses_inline', { projection: string }> = defineError(
  'import_bypasses_inline',
  d =>
    `An import stores events without running inline projections, and "${d.projection}" wants some of these events. Make it async for the time of the import, or append the events instead.`,
)

export const InlineProjectionFailed: ErrorKind<'inline_projection_failed', { projection: string; reason: string }> =
  defineError(
    'inline_projection_failed',
    d =>
      `Inline projection "${d.projection}" failed (${d.reason}), so nothing of the append was stored. See error.cause. Fix the projection or the events, or make it async so that its failures do not reject appends.`,
  )

export const InlineProjectionUnknown: ErrorKind<
  'inline_projection_unknown',
  { projection: string; version: number; known?: number | undefined }
> = defineError('inline_projection_unknown', d => {
  const here = d.known === undefined ? 'has no code for it' : `has version ${d.known}`
  return `Inline projection "${d.projection}" is active in version ${d.version}, but this process ${here}, so it cannot append events that the projection wants. Deploy and register that version here, or make the projection async.`
})
