/**
 * Imports an export into a schema: verified first, then everything in one transaction.
 *
 *     verify ─► prepare the schema ─► per table: make it, drop its indexes, insert its rows, make its indexes
 *            ─► sequences ─► newer migrations ─► free the leases of runners ─► commit
 *
 * The schema is prepared at the version of the export, because its rows are of that version. The migrations since then
 * run afterwards, as they did in every other store.
 */

import { freeAll } from '../../consumers/operator.ts'
import { removeAllRunners } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { throwIfAborted } from '../../core/abort.ts'
import { optionNames } from '../../core/options.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { toRillflowError } from '../../database/sqlstate.ts'
import { logNames } from '../../events/log.ts'
import { library } from '../../parts.ts'
import { type FoundTable, hasRows, readTables } from '../../schema/catalogue.ts'
import { readHistory } from '../../schema/history.ts'
import { lockKey } from '../../schema/migrate.ts'
import { raiseDrawn, readNumbers } from '../../schema/numbers.ts'
import type { Library } from '../../schema/part.ts'
import { makePlan } from '../../schema/plan.ts'
import { releaseWorkers } from '../../workflows/work/rescue.ts'
import { type IndexShape, makeIndexes, makeTable, runDdl, storedColumns, type TableShape } from '../table-shape.ts'
import { maxTransferMs, type StoreLocation } from '../transfer.ts'
import { ExportDamaged, ExportUnreadable, SchemaNotEmpty } from './errors.ts'
import {
  type ExportedFile,
  type ExportedTable,
  type ExportManifest,
  type ExportProgress,
  lineBreak,
  openFileCheck,
  readExportedFile,
  verifyExport,
} from './manifest.ts'
import { insertRows } from './rows.ts'

export interface StoreImportOptions {
  /** The folder that an export has made. */
  readonly input: string
  readonly onProgress?: ((progress: ExportProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

export const importOptionNames: readonly string[] = optionNames<StoreImportOptions>({
  input: true,
  onProgress: true,
  signal: true,
})

export async function importStore(location: StoreLocation, options: StoreImportOptions): Promise<ExportManifest> {
  const { input, signal } = options
  const manifest = await verifyExport(input, { signal })
  await location.database.transaction(tx => loadExport(tx, location.schema, manifest, options), {
    timeoutMs: maxTransferMs,
    signal,
    isolation: 'read committed',
  })
  return manifest
}

async function loadExport(
  tx: Transaction,
  schema: string,
  manifest: ExportManifest,
  { input, signal, onProgress }: StoreImportOptions,
): Promise<void> {
  const version = Math.max(...manifest.migrations.map(each => each.id))
  // In the text of a manifest a backslash is a character as any other.
  await tx.run(sql`/* export.strings */
    select set_config('standard_conforming_strings', 'on', true)`)
  // Functions are made at the end: they are written for the newest tables.
  const past = { ...library, migrations: library.migrations.filter(each => each.id <= version), functions: [] }
  await prepareSchema(tx, schema, past)
  const found = await readTables(
    tx,
    schema,
    manifest.tables.map(table => table.name),
  )
  refuseOtherColumns(found, manifest, schema, input)
  const totalRows = manifest.tables.reduce((sum, { file }) => sum + (file?.rows ?? 0), 0)
  const total = { rows: 0, bytes: 0 }
  for (const table of manifest.tables) {
    const existing = found.get(table.name)
    if (existing === undefined) await makeTable(tx, schema, table)
    if (filledByMigrations.includes(table.name))
      await tx.run(sql`/* export.empty */
        delete from ${identifier(schema, table.name)}`)
    if (table.file === null) continue
    const indexes = existing === undefined ? table.indexes : await dropIndexes(tx, schema, existing, table.file.rows)
    const onRows = (rows: number, bytes: number): void => {
      total.rows += rows
      total.bytes += bytes
      onProgress?.({ table: table.name, ...total, totalRows })
    }
    await loadFile(tx, table, table.file, { input, schema, signal, onRows })
    await makeIndexes(tx, schema, { name: table.name, indexes })
  }
  await setSequences(tx, schema, manifest.sequences)
  await migrateWithin(tx, schema, library)
  await freeLeases(tx, schema)
}

/**
 * Leaves the schema with exactly these objects of the library and without rows, and locks it against other writers until
 * the end of the transaction.
 */
export async function prepareSchema(tx: Transaction, schema: string, objects: Library): Promise<void> {
  await tx.run(sql`/* export.lock */
    select pg_advisory_xact_lock(${lockKey(schema)}::bigint)`)
  const tables = await tx.run<{ name: string }>(sql`/* export.occupied */
    select c.relname::text as name
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = ${schema}::text
      and c.relkind in ('r', 'p', 'f', 'v', 'm')
    order by c.relkind, c.relname collate "C"`)
  const names = tables.map(({ name }) => name)
  if (names.length > 0) await refuseRows(tx, schema, objects, names)
  await migrateWithin(tx, schema, objects)
}

/** Makes the missing ones of these objects, as a part of the transaction. */
async function migrateWithin(tx: Transaction, schema: string, objects: Library): Promise<void> {
  const { steps } = await makePlan(tx, { schema, library: objects, tables: [] })
  for (const step of steps)
    await tx.query(step.sql).catch(error => {
      throw toRillflowError(error, step.object)
    })
}

/** The tables into which the migrations themselves insert rows. */
const filledByMigrations: readonly string[] = ['migrations', 'inline_changes', 'counters']

async function refuseRows(tx: Transaction, schema: string, objects: Library, names: readonly string[]): Promise<void> {
  const refuse = (reason: string): never => {
    throw new SchemaNotEmpty({ schema, reason })
  }
  const history = await readHistory(tx, schema, objects)
  if (!history.hasStore) refuse(`has a table "${names[0]}"`)
  if (history.pending.length > 0 || history.changed.length > 0 || history.unknown.length > 0)
    refuse('has a store of another version')
  // Other writers wait for the end of the import, then see its rows.
  const quoted = names.map(name => identifier(schema, name).quoted)
  await tx.query(`lock table ${quoted.join(', ')} in exclusive mode`).catch(error => {
    throw toRillflowError(error, 'export.lock_tables')
  })
  for (const name of names)
    if (!filledByMigrations.includes(name) && (await hasRows(tx, schema, name))) refuse(`has rows in table "${name}"`)
}

/** A table that migrations or declarations have made here must be able to hold the rows of the export. */
function refuseOtherColumns(
  found: ReadonlyMap<string, FoundTable>,
  manifest: ExportManifest,
  schema: string,
  input: string,
): void {
  for (const table of manifest.tables) {
    const existing = found.get(table.name)
    const column = existing === undefined ? undefined : differingColumn(table, existing.columns)
    if (column === undefined) continue
    const reason = `column "${column}" of its table "${table.name}" differs from the one in schema "${schema}"`
    throw new ExportUnreadable({ input, reason })
  }
}

function differingColumn(table: ExportedTable, existing: ExportedTable['columns']): string | undefined {
  const types = new Map(existing.filter(column => !column.generated).map(column => [column.name, column.type]))
  const stored = new Set(storedColumns(table))
  const ofOtherType = table.columns.find(({ name, type }) => stored.has(name) && types.get(name) !== type)
  if (ofOtherType !== undefined) return ofOtherType.name
  return existing.find(column => !column.nullable && column.default === null && !stored.has(column.name))?.name
}

/**
 * Drops the indexes of a table that gets many rows, because building them afterwards is quicker than maintaining them.
 * Returns the indexes to build.
 */
async function dropIndexes(tx: Executor, schema: string, existing: FoundTable, rows: number): Promise<IndexShape[]> {
  if (rows < minRowsToRebuild) return []
  const indexes = existing.indexes.filter(index => index.primaryKey === null)
  for (const { name } of indexes) await runDdl(tx, `drop index ${identifier(schema, name)}`)
  return indexes
}

const minRowsToRebuild = 1_000

interface LoadOptions {
  readonly input: string
  readonly schema: string
  readonly signal: AbortSignal | undefined
  onRows(rows: number, bytes: number): void
}

/** The largest row that PostgreSQL can be sent as text, and JavaScript can hold as one. */
const maxLineBytes = 256 * 1024 * 1024

/** Inserts all rows of a file. The next lines are read while the database inserts these. */
async function loadFile(tx: Executor, table: TableShape, file: ExportedFile, options: LoadOptions): Promise<void> {
  const { input, schema, signal, onRows } = options
  const check = openFileCheck(input, file)
  let rest: Buffer = Buffer.alloc(0)
  let inserting: Promise<unknown> = Promise.resolve()
  for await (const chunk of readExportedFile(input, file)) {
    throwIfAborted(signal)
    check.add(chunk)
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const end = rest.lastIndexOf(lineBreak) + 1
    if (rest.length - end > maxLineBytes)
      throw new ExportDamaged({ input, file: file.name, reason: `has a line of more than ${maxLineBytes} bytes` })
    if (end === 0) continue
    const lines = rest.subarray(0, end)
    rest = rest.subarray(end)
    const { text, rows } = toJsonArray(lines)
    await inserting
    inserting = tx.run(insertRows(schema, table, text))
    inserting.catch(() => {})
    onRows(rows, lines.length)
  }
  await inserting
  check.end()
}

/** Lines as one JSON array. In JSON a line break is never part of a value, so each one here ends a row. */
function toJsonArray(lines: Buffer): { text: string; rows: number } {
  const list = Buffer.from(lines)
  let rows = 0
  for (let at = list.indexOf(lineBreak); at >= 0; at = list.indexOf(lineBreak, at + 1)) {
    list[at] = comma
    rows++
  }
  return { text: `[${list.toString('utf8', 0, list.length - 1)}]`, rows }
}

const comma = 44

/** Positions never go back, and not below a checkpoint either: its consumer would miss the events that come next. */
export async function setSequences(
  tx: Executor,
  schema: string,
  sequences: Readonly<Record<string, number>>,
): Promise<void> {
  const numbers = await readNumbers(tx, schema)
  for (const [name, drawn] of Object.entries(sequences)) await raiseDrawn(tx, schema, numbers, name, drawn)
  const [needed] = await tx.run<{ position: number }>(sql`/* export.highest_position */
    select greatest(
      (select max(position) from ${logNames(schema).events}),
      (select max(checkpoint) from ${consumerNames({ schema }).consumers}), 0) as position`)
  await raiseDrawn(tx, schema, numbers, 'events_position', needed!.position)
}

/**
 * Ends the runners that the source had, as if each had stopped in good order. An execution that was running is ready
 * again, and its attempt is not counted, because no failure was seen.
 */
async function freeLeases(tx: Transaction, schema: string): Promise<void> {
  await releaseWorkers({ schema }, tx)
  await removeAllRunners({ schema }, tx)
  await freeAll({ schema }, tx)
}
