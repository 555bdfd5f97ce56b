/** Bringing an archive into a schema: verified first, then all of it in one transaction. */

import { consumerNames } from '../../consumers/schema.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import { library } from '../../parts.ts'
import { type FoundTable, readTables } from '../../schema/catalogue.ts'
import type { Place } from '../place.ts'
import { type IndexShape, storedColumns } from '../table-shape.ts'
import { ArchiveForeign } from './errors.ts'
import { type Loading, loadFile } from './load.ts'
import { type ArchivedTable, type ArchiveProgress, longestMs, type Manifest } from './manifest.ts'
import { filledByMigrations, migrateWithin, prepareSchema } from './prepare.ts'
import { endProcesses } from './processes.ts'
import { makeIndexes, makeTable, runDdl } from './tables.ts'
import { verifyArchive } from './verify.ts'

export interface ImportOptions {
  /** The folder of the archive. */
  readonly input: string
  readonly onProgress?: ((progress: ArchiveProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

export async function importArchive(place: Place, options: ImportOptions): Promise<Manifest> {
  const { input, signal } = options
  const manifest = await verifyArchive(input, { signal })
  await place.database.transaction(tx => loadArchive(tx, place.schema, manifest, options), {
    timeoutMs: longestMs,
    signal,
    isolation: 'read committed',
  })
  return manifest
}

async function loadArchive(
  tx: Transaction,
  schema: string,
  manifest: Manifest,
  { input, signal, onProgress }: ImportOptions,
): Promise<void> {
  // The rows are those of the archive's version; what came since is done to them afterwards, as it was to everybody's.
  const version = Math.max(...manifest.migrations.map(each => each.id))
  // Functions come at the end: they are written for the tables of now.
  const past = { ...library, migrations: library.migrations.filter(each => each.id <= version), functions: [] }
  await prepareSchema(tx, schema, past)
  const found = await readTables(
    tx,
    schema,
    manifest.tables.map(table => table.name),
  )
  refuseOthers(found, manifest, schema, input)
  const totalRows = manifest.tables.reduce((sum, { file }) => sum + (file?.rows ?? 0), 0)
  const total = { rows: 0, bytes: 0 }
  for (const table of manifest.tables) {
    const loading: Loading = {
      ...{ input, schema, signal },
      onRows(rows, bytes) {
        total.rows += rows
        total.bytes += bytes
        onProgress?.({ table: table.name, ...total, totalRows })
      },
    }
    const there = found.get(table.name)
    if (there === undefined) await makeTable(tx, schema, table)
    if (filledByMigrations.includes(table.name))
      await tx.run(sql`/* archive.empty */
        delete from ${identifier(schema, table.name)}`)
    if (table.file === null) continue
    const indexes = there === undefined ? table.indexes : await dropIndexes(tx, schema, there, table.file.rows)
    await loadFile(tx, table, table.file, loading)
    await makeIndexes(tx, schema, { name: table.name, indexes })
  }
  await setSequences(tx, schema, manifest.sequences)
  await migrateWithin(tx, schema, library)
  await endProcesses(tx, schema)
}

/** A table that a migration or a declaration has made here must take the archive's rows. */
function refuseOthers(found: ReadonlyMap<string, FoundTable>, manifest: Manifest, schema: string, input: string): void {
  for (const table of manifest.tables) {
    const there = found.get(table.name)
    const stranger = there === undefined ? undefined : strangerTo(table, there.columns)
    if (stranger === undefined) continue
    const reason = `column "${stranger}" of its table "${table.name}" is not the one that schema "${schema}" has`
    throw new ArchiveForeign({ input, reason })
  }
}

function strangerTo(table: ArchivedTable, there: ArchivedTable['columns']): string | undefined {
  const types = new Map(there.filter(column => !column.generated).map(column => [column.name, column.type]))
  const stored = new Set(storedColumns(table))
  const other = table.columns.find(({ name, type }) => stored.has(name) && types.get(name) !== type)
  return (
    other?.name ?? there.find(column => !column.nullable && column.default === null && !stored.has(column.name))?.name
  )
}

/**
 * Indexes of a table that gets many rows are built when all are there, which takes less time than keeping them up. Gives those
 * to be built.
 */
async function dropIndexes(tx: Executor, schema: string, there: FoundTable, rows: number): Promise<IndexShape[]> {
  if (rows < worthRebuilding) return []
  const indexes = there.indexes.filter(index => index.primaryKey === null)
  for (const { name } of indexes) await runDdl(tx, `drop index ${identifier(schema, name)}`)
  return indexes
}

const worthRebuilding = 1_000

/** Positions never go back: also not behind a checkpoint, whose consumer would then miss what comes next. */
export async function setSequences(
  tx: Executor,
  schema: string,
  sequences: Readonly<Record<string, string>>,
): Promise<void> {
  for (const [name, drawn] of Object.entries(sequences)) {
    const sequence = identifier(schema, name)
    await tx.run(sql`/* archive.set_sequence */
      select setval(${sequence.quoted}::regclass, greatest(${drawn}::bigint, last_value))
      from ${sequence}
      where ${drawn}::bigint > 0`)
  }
  const { events, events_position: position } = logNames(schema)
  await tx.run(sql`/* archive.set_position */
    select setval(${position.quoted}::regclass, needed.position)
    from (
      select greatest(
        (select max(position) from ${events}),
        (select max(checkpoint) from ${consumerNames({ schema }).consumers})) as position) as needed, ${position} as s
    where needed.position > case when s.is_called then s.last_value else 0 end`)
}
