/** The errors of projections: tables that are missing, rebuilds, and values that do not fit a read model. */
import { defineError, type ErrorKind } from '../core/errors.ts'

export const ProjectionNotSynced: ErrorKind<'projection_not_synced', { projection: string; missing: string[] }> =
  defineError(
    'projection_not_synced',
    d =>
      `Projection "${d.projection}" needs tables that the schema does not have yet: ${d.missing.join(', ')}. ` +
      'Call store.schema.sync() after registering it, or open the store with { migrate: true }.',
  )

export const InvalidProjectionValue: ErrorKind<
  'invalid_projection_value',
  { projection: string; path: string; reason: string }
> = defineError(
  'invalid_projection_value',
  d => `Projection "${d.projection}" made a value that cannot be stored: ${d.path} ${d.reason}. Fix its handler.`,
)

export const ViewsDepend: ErrorKind<'views_depend', { projection: string; table: string; views: string[] }> =
  defineError(
    'views_depend',
    d =>
      `Table ${d.table} of projection "${d.projection}" cannot be replaced: ${d.views.join(', ')} would still read the ` +
      'old one. Drop them, rebuild, and create them again.',
  )

export const RebuildImpossible: ErrorKind<'rebuild_impossible', { projection: string; reason: string }> = defineError(
  'rebuild_impossible',
  d => `Projection "${d.projection}" cannot be rebuilt: ${d.reason}.`,
)

export const RebuildRunning: ErrorKind<'rebuild_running', { projection: string }> = defineError(
  'rebuild_running',
  d => `Another process is rebuilding projection "${d.projection}". Wait for that rebuild, or stop it first.`,
  { retryable: true },
)
