/** The errors of projections: inline ones, rebuilds, and values that do not fit a read model. */
import { defineError, type ErrorKind } from '../core/errors.ts'

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
