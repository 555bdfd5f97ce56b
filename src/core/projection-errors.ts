/** The errors of read models: inline projections, and what must not go past them. */
import { defineError, type ErrorKind } from './errors.ts'

export const InlineProjectionUnknown: ErrorKind<
  'inline_projection_unknown',
  { projection: string; version: number; known?: number | undefined }
> = defineError('inline_projection_unknown', d => {
  const here = d.known === undefined ? 'has no code for it' : `has version ${d.known}`
  return `Inline projection "${d.projection}" is active in version ${d.version}, but this process ${here}, so it cannot
append events that it wants. Deploy and register that version here, or make the projection async.`.replace('\n', ' ')
})
export const InlineProjectionFailed: ErrorKind<'inline_projection_failed', { projection: string; reason: string }> =
  defineError('inline_projection_failed', d =>
    `Inline projection "${d.projection}" failed (${d.reason}), so nothing of the append was stored. See error.cause; mend
the projection or the events, or make it async so that its failures do not reject appends.`.replace('\n', ' '),
  )
export const ImportBypassesInline: ErrorKind<'import_bypasses_inline', { projection: string }> = defineError(
  'import_bypasses_inline',
  d =>
    `An import stores events without running inline projections, and "${d.projection}" wants some of these. Make it async
for the time of the import, or append the events instead.`.replace('\n', ' '),
)
