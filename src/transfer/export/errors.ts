/** The errors of archives: of writing one, reading one, and of filling a schema from one or from another schema. */
import { defineError, type ErrorKind } from '../../core/errors.ts'

export const ArchiveExists: ErrorKind<'archive_exists', { output: string }> = defineError(
  'archive_exists',
  d => `There is something at ${d.output} already, and an archive replaces nothing. Give another output, or remove it.`,
)
export const NotArchivable: ErrorKind<'not_archivable', { schema: string; object: string; reason: string }> =
  defineError('not_archivable', d =>
    `Schema "${d.schema}" has ${d.object}, which ${d.reason}, so an archive could not bring it back. Nothing was
written: move it into a schema of your own.`.replace('\n', ' '),
  )
export const ArchiveForeign: ErrorKind<'archive_foreign', { input: string; reason: string }> = defineError(
  'archive_foreign',
  d => `${d.input} is no archive that can be imported here: ${d.reason}. Nothing was written. Check the path.`,
)
export const ArchiveDamaged: ErrorKind<'archive_damaged', { input: string; file: string; reason: string }> =
  defineError(
    'archive_damaged',
    d => `The archive ${d.input} is damaged: ${d.file} ${d.reason}. Nothing was written. Take another copy of it.`,
  )
export const ArchiveNewer: ErrorKind<
  'archive_newer',
  { input: string; what: 'format' | 'migration'; found: number; known: number }
> = defineError('archive_newer', d =>
  `The archive ${d.input} is of ${d.what} ${d.found}, this library knows up to ${d.known}. Nothing was written. Update
rillflow here, then import it.`.replace('\n', ' '),
)
export const SchemaNotEmpty: ErrorKind<'schema_not_empty', { schema: string; reason: string }> = defineError(
  'schema_not_empty',
  d =>
    `An import goes into an empty schema only, and "${d.schema}" ${d.reason}. Nothing was written: import into another
schema, or drop this one first.`.replace('\n', ' '),
)
export const ImportDiffers: ErrorKind<'import_differs', { schema: string; table: string; near: string }> = defineError(
  'import_differs',
  d =>
    `What was imported into table ${d.table} of schema "${d.schema}" is not what its source has now, near ${d.near}: it was
changed meanwhile. Stop who writes what is moved, drop the schema, and import again.`.replace('\n', ' '),
)
