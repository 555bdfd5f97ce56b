/** The errors of projections: inline ones, rebuilds, and values that do not fit a read model. */
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
export const ProjectionNotSynced: ErrorKind<'projection_not_synced', { projection: string; missing: string[] }> =
  defineError('projection_not_synced', d =>
    `Projection "${d.projection}" needs what the schema does not have yet: ${d.missing.join(', ')}. Call
store.schema.sync() after registering it, or open the store with { migrate: true }.`.replace('\n', ' '),
  )
export const InvalidProjectionValue: ErrorKind<
  'invalid_projection_value',
  { projection: string; path: string; reason: string }
> = defineError(
  'invalid_projection_value',
  d => `Projection "${d.projection}" made a value that cannot be stored: ${d.path} ${d.reason}. Mend its handler.`,
)
export const ViewsDepend: ErrorKind<'views_depend', { projection: string; table: string; views: string[] }> =
  defineError('views_depend', d =>
    `Table ${d.table} of projection "${d.projection}" cannot be switched: ${d.views.join(', ')} would go on reading the
old one. Drop them, rebuild, and create them again.`.replace('\n', ' '),
  )
export const RebuildImpossible: ErrorKind<'rebuild_impossible', { projection: string; reason: string }> = defineError(
  'rebuild_impossible',
  d => `Projection "${d.projection}" cannot be rebuilt: ${d.reason}.`,
)
export const RebuildRunning: ErrorKind<'rebuild_running', { projection: string }> = defineError(
  'rebuild_running',
  d => `Projection "${d.projection}" is being rebuilt by somebody else. Wait for that rebuild, or stop it first.`,
  { retryable: true },
)
