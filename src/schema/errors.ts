import { defineError, type ErrorKind } from '../core/errors.ts'

export const SchemaMissing: ErrorKind<'schema_missing', { schema: string }> = defineError(
  'schema_missing',
  d => `The database has no schema "${d.schema}" with a store in it. Open it once with { migrate: true } to make one.`,
)

export const SchemaOutdated: ErrorKind<'schema_outdated', { schema: string; pending: string[] }> = defineError(
  'schema_outdated',
  d =>
    `Schema "${d.schema}" lacks ${d.pending.join(', ')}. Open the store once with { migrate: true }, or open it with { migrate: 'manual' } and call store.schema.sync().`,
)

export const SchemaNewer: ErrorKind<'schema_newer', { schema: string; found: number; known: number }> = defineError(
  'schema_newer',
  d =>
    `Schema "${d.schema}" is at migration ${d.found}, and this version of rillflow knows migrations up to ${d.known}. Update rillflow in this program.`,
)

export const SchemaDrift: ErrorKind<'schema_drift', { schema: string; problems: string[] }> = defineError(
  'schema_drift',
  d =>
    `Schema "${d.schema}" differs from the one that its migrations made: ${d.problems.join('; ')}. Undo the manual change.`,
)

export const SequenceBehind: ErrorKind<
  'sequence_behind',
  { schema: string; sequence: string; drawn: number; used: number; statement: string }
> = defineError(
  'sequence_behind',
  d =>
    `The sequence ${d.sequence} of schema "${d.schema}" is at ${d.drawn}, but ${d.used} is in use: its rows were copied without it, as logical replication does. Its events would look missing, and appends would fail. Stop all writers, then run: ${d.statement}`,
)

export const NumbersUnsafe: ErrorKind<'numbers_unsafe', { schema: string }> = defineError(
  'numbers_unsafe',
  d =>
    `Schema "${d.schema}" announces its positions, and this database has Citus, where readers would skip events of such a schema. Export the store, import it into a new schema of this database (rillflow export, rillflow import), which then has counters.`,
)

export const TenancyNeeded: ErrorKind<'tenancy_needed', { schema: string }> = defineError(
  'tenancy_needed',
  d =>
    `The database belongs to a Citus cluster, which places each schema as a whole on one node, so a store without tenants in schema "${d.schema}" would use one node of it. Open the store with { tenancy: 'schema' }, or use a PostgreSQL without Citus.`,
)
