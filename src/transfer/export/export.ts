/**
 * Exports: a whole store as a folder of text files, and back, on any engine.
 *
 *     export:  one snapshot ─► a cursor per table ─► <output>.unfinished-…/ ─► synced to disk ─► renamed to <output>/
 *     import:  verify ─► one transaction: the migrations that the export had ─► rows ─► indexes ─► sequences ─► the
 *              migrations since then ─► leases freed ─► commit
 *
 *     <output>/manifest.json          the version, and each file with its rows, bytes and SHA-256
 *     <output>/001-events.ndjson      one line per row, as PostgreSQL writes and reads it, in the order of the key
 *
 * Included: every table of the schema, found in the catalogue and not in a list, so that none is forgotten; the shape
 * of each, so that a table which no program declares at present comes back as well; the last number of each sequence.
 * Not included: the table of migrations (the manifest names them, and the import runs them), generated columns, and
 * objects of users in the schema: views, functions, triggers, grants. A table that an import could not make again is
 * refused (`NotExportable`) and never skipped in silence.
 *
 * Guarantees:
 * - An export is one moment of the store: a transaction is in it as a whole or not at all. Under its final name it is
 *   complete.
 * - An import happens as a whole or not at all, into a schema that was absent or had no rows. Positions, ids, versions and
 *   times are kept; the sequences stand at or above those of the source and every checkpoint.
 * - Memory holds two pages, whatever the size of the store.
 * - Processes do not travel with the data. An import treats every runner in the export as stopped in good order: leases
 *   are free, and an execution that was running is ready again, at the same attempt.
 *
 * On a server others read and write during an export; vacuum cannot remove rows that they delete until it ends. An
 * embedded store has one connection, so every other call waits for the end of an export or import; timers and sockets
 * do not.
 *
 * What can fail: an output that exists is refused (`ExportExists`). An export that fails or is aborted leaves nothing; if
 * its process dies, a folder named `….unfinished-…` stays. An import writes nothing if the folder is not an export
 * (`ExportUnreadable`), is incomplete or was changed (`ExportDamaged`), comes from a newer library (`ExportNewer`), or if
 * the schema has rows (`SchemaNotEmpty`). An export of an older library is imported as it was, then migrated.
 *
 * An import trusts the rows and nothing else: types, defaults and indexes in the manifest are SQL, so each is read word by
 * word and refused if no export of this version would write it (`trusted-shape.ts`). The rows are the data of a store: they
 * can hold any document, event and checkpoint that their author likes. `selection.ts` imports some streams and documents of one schema into another.
 */
import { createHash, type Hash } from 'node:crypto'
import { type FileHandle, lstat, mkdir, mkdtemp, open, rename, rm } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { optionNames } from '../../core/options.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import { library } from '../../parts.ts'
import { SchemaMissing } from '../../schema/errors.ts'
import { expected } from '../../schema/expected.ts'
import { readHistory, refuseForeignHistory } from '../../schema/history.ts'
import { readDrawn, readNumbers } from '../../schema/numbers.ts'
import { readShapes, type TableShape } from '../table-shape.ts'
import { maxTransferMs, type StoreLocation } from '../transfer.ts'
import { ExportExists, NotExportable } from './errors.ts'
import {
  digestOf,
  type ExportedFile,
  type ExportedTable,
  type ExportManifest,
  type ExportProgress,
  formatName,
  formatVersion,
  manifestFile,
} from './manifest.ts'
import { readAllRows, writeExactly } from './rows.ts'
import { faultOfShape, indexMark } from './trusted-shape.ts'

export interface ExportOptions {
  /** The folder to make. It must not exist yet. */
  readonly output: string
  /** False leaves out snapshots of aggregates, which can be made again from their events. Default true. */
  readonly includeSnapshots?: boolean | undefined
  readonly onProgress?: ((progress: ExportProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

export const exportOptionNames: readonly string[] = optionNames<ExportOptions>({
  output: true,
  includeSnapshots: true,
  onProgress: true,
  signal: true,
})

export async function exportStore(location: StoreLocation, options: ExportOptions): Promise<ExportManifest> {
  const output = resolve(options.output)
  await refuseExisting(output)
  await mkdir(dirname(output), { recursive: true })
  const folder = await mkdtemp(`${output}.unfinished-`)
  let writing: Promise<ExportManifest> | undefined
  try {
    const manifest = await location.database.transaction(
      tx => {
        writing = writeTables(tx, location, folder, options)
        return writing
      },
      { timeoutMs: maxTransferMs, signal: options.signal, isolation: 'repeatable read' },
    )
    await writeManifest(folder, manifest)
    await refuseExisting(output)
    await rename(folder, output)
    await syncFolder(dirname(output))
    return manifest
  } catch (error) {
    // An abort ends the transaction at once, while the files are still being written.
    await writing?.catch(() => {})
    await rm(folder, { recursive: true, force: true })
    throw error
  }
}

async function refuseExisting(output: string): Promise<void> {
  const found = await lstat(output).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
  if (found !== undefined) throw new ExportExists({ output })
}

async function writeTables(
  tx: Transaction,
  location: StoreLocation,
  folder: string,
  options: ExportOptions,
): Promise<ExportManifest> {
  const { schema, database } = location
  await tx.query('set transaction read only')
  await writeExactly(tx)
  const history = await readHistory(tx, schema, library)
  if (!history.hasStore) throw new SchemaMissing({ schema })
  refuseForeignHistory(history, schema, library)
  const shapes = (await readShapes(tx, schema)).map(shape => importableShape(schema, shape))
  const total = { rows: 0, bytes: 0 }
  const tables: ExportedTable[] = []
  for (const [at, shape] of shapes.entries()) {
    const isLeftOut = shape.name === 'snapshots' && options.includeSnapshots === false
    const fileName = `${String(at + 1).padStart(3, '0')}-${shape.name.replaceAll(/\W/g, '_')}.ndjson`
    const file = isLeftOut ? null : await openFile(folder, fileName)
    if (file !== null) {
      try {
        for await (const lines of readAllRows(tx, { database, schema, signal: options.signal }, shape)) {
          await file.add(lines, total)
          options.onProgress?.({ table: shape.name, ...total, totalRows: undefined })
        }
      } finally {
        await file.close()
      }
    }
    tables.push({ ...shape, file: file?.describe() ?? null })
  }
  return {
    format: formatName,
    version: formatVersion,
    engine: database.engine,
    schema,
    migrations: await readMigrations(tx, schema),
    tables,
    // Last, so that they are above all numbers in the snapshot.
    sequences: await readSequences(tx, schema, history.unknown.length === 0),
    ...(await readMoment(tx, schema)),
  }
}

/** A table that an import would refuse is refused here, while it can still be changed. */
function importableShape(schema: string, shape: TableShape): TableShape {
  // Comments of users are not exported; an import refuses text that it does not know.
  const indexes = shape.indexes.map(each => ({
    ...each,
    comment: each.comment !== null && indexMark.test(each.comment) ? each.comment : null,
  }))
  const known = { ...shape, indexes }
  const fault = faultOfShape(known)
  if (fault === undefined) return known
  throw new NotExportable({ schema, object: `table "${shape.name}"`, reason: fault })
}

interface FileWriter {
  add(lines: readonly string[], total: { rows: number; bytes: number }): Promise<void>
  describe(): ExportedFile
  close(): Promise<void>
}

async function openFile(folder: string, name: string): Promise<FileWriter> {
  const handle: FileHandle = await open(join(folder, name), 'wx')
  const hash: Hash = createHash('sha256')
  let rows = 0
  let bytes = 0
  return {
    async add(lines, total) {
      const text = Buffer.from(`${lines.join('\n')}\n`)
      hash.update(text)
      await handle.writeFile(text)
      rows += lines.length
      bytes += text.length
      total.rows += lines.length
      total.bytes += text.length
    },
    describe: () => ({ name, rows, bytes, sha256: hash.copy().digest('hex') }),
    async close() {
      await handle.sync()
      await handle.close()
    },
  }
}

async function readMigrations(tx: Executor, schema: string): Promise<ExportManifest['migrations']> {
  return tx.run<ExportManifest['migrations'][number]>(sql`/* export.migrations */
    select id, name, checksum
    from ${identifier(schema, 'migrations')}
    order by id`)
}

/** A sequence that no migration has made belongs to an object that an import could not make again. */
async function readSequences(tx: Executor, schema: string, isKnown: boolean): Promise<ExportManifest['sequences']> {
  const drawn = await readDrawn(tx, schema, await readNumbers(tx, schema))
  const unknown = Object.keys(drawn).find(name => isKnown && !Object.hasOwn(expected.sequences, name))
  if (unknown !== undefined)
    throw new NotExportable({ schema, object: `sequence "${unknown}"`, reason: 'does not belong to the store' })
  return drawn
}

async function readMoment(tx: Executor, schema: string): Promise<Pick<ExportManifest, 'position' | 'createdAt'>> {
  const [row] = await tx.run<{ position: number; now: Date }>(sql`/* export.moment */
    select coalesce(max(position), 0) as position, now() as now
    from ${logNames(schema).events}`)
  return { position: row!.position, createdAt: row!.now.toISOString() }
}

/** Written after all other files, with its own digest. Afterwards all of the folder is on the disk. */
async function writeManifest(folder: string, manifest: ExportManifest): Promise<void> {
  const handle = await open(join(folder, manifestFile), 'wx')
  try {
    await handle.writeFile(`${JSON.stringify({ ...manifest, digest: digestOf(manifest) }, null, 2)}\n`)
    await handle.sync()
  } finally {
    await handle.close()
  }
  await syncFolder(folder)
}

async function syncFolder(folder: string): Promise<void> {
  // Windows cannot open folders, and stores their names safely without it.
  if (process.platform === 'win32') return
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
