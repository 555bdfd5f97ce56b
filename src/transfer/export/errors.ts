/** The errors of exports and imports: of writing the files, of reading them, and of filling a schema. */
import { defineError, type ErrorKind } from '../../core/errors.ts'

export const ExportExists: ErrorKind<'export_exists', { output: string }> = defineError(
  'export_exists',
  d => `${d.output} exists already, and an export never replaces anything. Give another output, or remove it first.`,
)
export const NotExportable: ErrorKind<'not_exportable', { schema: string; object: string; reason: string }> =
  defineError(
    'not_exportable',
    d =>
      `Schema "${d.schema}" has ${d.object}, which ${d.reason}, so an import could not make it again. Nothing was written. Move it into a schema of its own, then export again.`,
  )
export const ExportUnreadable: ErrorKind<'export_unreadable', { input: string; reason: string }> = defineError(
  'export_unreadable',
  d => `${d.input} is not an export that can be imported here: ${d.reason}. Nothing was written. Check the path.`,
)
export const ExportDamaged: ErrorKind<'export_damaged', { input: string; file: string; reason: string }> = defineError(
  'export_damaged',
  d => `The export ${d.input} is damaged: ${d.file} ${d.reason}. Nothing was written. Import another copy of it.`,
)
export const ExportNewer: ErrorKind<
  'export_newer',
  { input: string; what: 'format' | 'migration'; found: number; known: number }
> = defineError(
  'export_newer',
  d =>
    `The export ${d.input} was written by a newer version of rillflow: it has ${d.what} ${d.found}, and this version knows ${d.what}s up to ${d.known}. Nothing was written. Update rillflow, then import it.`,
)
export const SchemaNotEmpty: ErrorKind<'schema_not_empty', { schema: string; reason: string }> = defineError(
  'schema_not_empty',
  d =>
    `An import needs an empty schema, and "${d.schema}" ${d.reason}. Nothing was written. Import into another schema, or drop this one first.`,
)
export const ImportDiffers: ErrorKind<'import_differs', { schema: string; table: string; near: string }> = defineError(
  'import_differs',
  d =>
    `Table ${d.table} of schema "${d.schema}" differs from its source near ${d.near}, because the source was changed during the import. Stop the writers of that data, drop the schema, then import again.`,
)
