/** Writing an archive: one transaction that reads, one folder that gets its name when it is whole. */

import { createHash, type Hash } from 'node:crypto'
import { type FileHandle, lstat, mkdir, mkdtemp, open, rename, rm } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import type { Executor, Transaction } from '../../database/database.ts'
import { identifier, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import { library } from '../../parts.ts'
import { SchemaMissing } from '../../schema/errors.ts'
import { expected } from '../../schema/expected.ts'
import { readHistory, refuseForeignHistory } from '../../schema/history.ts'
import type { Place } from '../place.ts'
import { ArchiveExists, NotArchivable } from './errors.ts'
import { linesOf, writeExactly } from './lines.ts'
import {
  type ArchivedFile,
  type ArchivedTable,
  type ArchiveProgress,
  digestOf,
  formatName,
  formatVersion,
  longestMs,
  type Manifest,
  manifestFile,
} from './manifest.ts'
import { readShapes } from './tables.ts'

export interface ExportOptions {
  /** The folder to make; nothing may be there. */
  readonly output: string
  /** False leaves out what aggregates can be folded again from their events. Default true. */
  readonly includeSnapshots?: boolean | undefined
  readonly onProgress?: ((progress: ArchiveProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

export async function exportArchive(place: Place, options: ExportOptions): Promise<Manifest> {
  const output = resolve(options.output)
  await refuseExisting(output)
  await mkdir(dirname(output), { recursive: true })
  const folder = await mkdtemp(`${output}.unfinished-`)
  let writing: Promise<Manifest> | undefined
  try {
    const manifest = await place.database.transaction(
      tx => {
        writing = writeArchive(tx, place, folder, options)
        return writing
      },
      { timeoutMs: longestMs, signal: options.signal, isolation: 'repeatable read' },
    )
    await sealArchive(folder, manifest)
    await refuseExisting(output)
    await rename(folder, output)
    await syncFolder(dirname(output))
    return manifest
  } catch (error) {
    // An abort takes the transaction away at once; the files are still being written then.
    await writing?.catch(() => {})
    await rm(folder, { recursive: true, force: true })
    throw error
  }
}

async function refuseExisting(output: string): Promise<void> {
  const found = await lstat(output).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
  if (found !== undefined) throw new ArchiveExists({ output })
}

async function writeArchive(tx: Transaction, place: Place, folder: string, options: ExportOptions): Promise<Manifest> {
  const { schema, database } = place
  await tx.query('set transaction read only')
  await writeExactly(tx)
  const history = await readHistory(tx, schema, library)
  if (!history.hasStore) throw new SchemaMissing({ schema })
  refuseForeignHistory(history, schema, library)
  const shapes = await readShapes(tx, schema)
  const total = { rows: 0, bytes: 0 }
  const tables: ArchivedTable[] = []
  for (const [at, shape] of shapes.entries()) {
    const isLeftOut = shape.name === 'snapshots' && options.includeSnapshots === false
    const fileName = `${String(at + 1).padStart(3, '0')}-${shape.name.replaceAll(/\W/g, '_')}.ndjson`
    const file = isLeftOut ? null : await startFile(folder, fileName)
    if (file !== null) {
      try {
        for await (const lines of linesOf(tx, { database, schema, signal: options.signal }, shape)) {
          await file.add(lines, total)
          options.onProgress?.({ table: shape.name, ...total, totalRows: undefined })
        }
      } finally {
        await file.close()
      }
    }
    tables.push({ ...shape, file: file?.described() ?? null })
  }
  return {
    format: formatName,
    version: formatVersion,
    engine: database.engine,
    schema,
    migrations: await readMigrations(tx, schema),
    tables,
    // Last, so that they are above all that the snapshot has.
    sequences: await readSequences(tx, schema, history.unknown.length === 0),
    ...(await readMoment(tx, schema)),
  }
}

interface WrittenFile {
  add(lines: readonly string[], total: { rows: number; bytes: number }): Promise<void>
  described(): ArchivedFile
  close(): Promise<void>
}

async function startFile(folder: string, name: string): Promise<WrittenFile> {
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
    described: () => ({ name, rows, bytes, sha256: hash.copy().digest('hex') }),
    async close() {
      await handle.sync()
      await handle.close()
    },
  }
}

async function readMigrations(tx: Executor, schema: string): Promise<Manifest['migrations']> {
  return tx.run<Manifest['migrations'][number]>(sql`/* archive.migrations */
    select id, name, checksum
    from ${identifier(schema, 'migrations')}
    order by id`)
}

/** One that no migration has made belongs to something that an archive does not bring back. */
async function readSequences(tx: Executor, schema: string, isKnown: boolean): Promise<Manifest['sequences']> {
  const rows = await tx.run<{ name: string; drawn: number }>(sql`/* archive.sequences */
    select sequencename::text as name, coalesce(last_value, 0) as drawn
    from pg_sequences
    where schemaname = ${schema}::text
    order by sequencename collate "C"`)
  const strange = rows.find(({ name }) => isKnown && !Object.hasOwn(expected.sequences, name))
  if (strange !== undefined)
    throw new NotArchivable({ schema, object: `sequence "${strange.name}"`, reason: 'is not one of the store' })
  return Object.fromEntries(rows.map(({ name, drawn }) => [name, `${drawn}`]))
}

async function readMoment(tx: Executor, schema: string): Promise<Pick<Manifest, 'position' | 'createdAt'>> {
  const [row] = await tx.run<{ position: number; now: Date }>(sql`/* archive.moment */
    select coalesce(max(position), 0) as position, now() as now
    from ${logNames(schema).events}`)
  return { position: `${row!.position}`, createdAt: row!.now.toISOString() }
}

/** The manifest comes last, and with its digest; then all of it is on the disk. */
async function sealArchive(folder: string, manifest: Manifest): Promise<void> {
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
  // Windows does not open folders; names are safe there without it.
  if (process.platform === 'win32') return
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
