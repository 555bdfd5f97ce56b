/**
 * The manifest of an export: which tables it has, in which files, and how they can be verified.
 *
 *     write:   files ──► manifest ──► digest of the manifest, in the manifest
 *     verify:  manifest ──► its form ──► its digest ──► version and migrations ──► bytes, rows and checksum of each file
 *
 * Verifying reads everything and writes nothing. The files are checked once more while an import reads them, since they
 * may have changed in between. Checksums find accidents, not intent: a manifest is not trusted, so it must have the form
 * that an export writes (`check-manifest.ts`, `trusted-shape.ts`), and its files must be plain files in its folder.
 */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { throwIfAborted } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { canonicalJson } from '../../core/json.ts'
import { library } from '../../parts.ts'
import { checksum, migrationName } from '../../schema/migration.ts'
import type { TableShape } from '../table-shape.ts'
import { faultOfManifest } from './check-manifest.ts'
import { ExportDamaged, ExportNewer, ExportUnreadable } from './errors.ts'

export const formatName = 'rillflow-export'
export const formatVersion = 1
export const manifestFile = 'manifest.json'

export interface ExportManifest {
  readonly format: typeof formatName
  readonly version: number
  readonly createdAt: string
  readonly engine: 'postgres' | 'pglite'
  /** The name of the schema that was exported. */
  readonly schema: string
  /** The migrations that the schema had; the last one is its version. */
  readonly migrations: readonly { readonly id: number; readonly name: string; readonly checksum: string }[]
  readonly tables: readonly ExportedTable[]
  /** The last number drawn from each sequence, 0 if none was. */
  readonly sequences: Readonly<Record<string, number>>
  /** The position of the last event in it, 0 if there is none. */
  readonly position: number
}

export interface ExportedTable extends TableShape {
  /** The file with its rows; null if they were not exported. */
  readonly file: ExportedFile | null
}

export interface ExportedFile {
  readonly name: string
  readonly rows: number
  readonly bytes: number
  readonly sha256: string
}

export interface ExportProgress {
  readonly table: string
  /** Rows of all tables so far. */
  readonly rows: number
  readonly bytes: number
  /** The rows of all tables together; undefined during an export, which does not count them first. */
  readonly totalRows: number | undefined
}

/** The digest that shows whether a manifest was changed. */
export function digestOf(manifest: ExportManifest): string {
  return createHash('sha256').update(canonicalJson(manifest)).digest('hex')
}

export interface VerifyOptions {
  readonly signal?: AbortSignal | undefined
}

/** Returns the manifest of an export that is complete and can be imported by this version; throws otherwise. */
export async function verifyExport(input: string, options: VerifyOptions = {}): Promise<ExportManifest> {
  const manifest = await readManifest(input)
  for (const { file } of manifest.tables) if (file !== null) await verifyFile(input, file, options.signal)
  return manifest
}

async function readManifest(input: string): Promise<ExportManifest> {
  const damaged = (reason: string, cause?: unknown): Error =>
    new ExportDamaged({ input, file: manifestFile, reason }, cause)
  const text = await readManifestText(input)
  let parsed: (ExportManifest & { digest: string }) | null
  try {
    parsed = JSON.parse(text)
  } catch (error) {
    throw damaged('is not JSON', error)
  }
  if (parsed?.format !== formatName)
    throw new ExportUnreadable({ input, reason: `its ${manifestFile} is not that of a ${formatName}` })
  // Before the digest, which a newer format may compute in another way.
  if (parsed.version > formatVersion)
    throw new ExportNewer({ input, what: 'format', found: parsed.version, known: formatVersion })
  const { digest, ...manifest } = parsed
  const fault = faultOfManifest(manifest)
  if (fault !== undefined) throw damaged(fault)
  if (digest !== digestOf(manifest)) throw damaged('was changed after it was written')
  refuseOtherMigrations(input, manifest)
  return manifest
}

function refuseOtherMigrations(input: string, manifest: ExportManifest): void {
  const found = Math.max(...manifest.migrations.map(each => each.id))
  const known = Math.max(...library.migrations.map(each => each.id))
  if (found > known) throw new ExportNewer({ input, what: 'migration', found, known })
  if (manifest.migrations.length === 0) throw new ExportUnreadable({ input, reason: 'it has no migrations' })
  const changed = manifest.migrations.find(
    each => !library.migrations.some(ours => ours.id === each.id && checksum(ours) === each.checksum),
  )
  if (changed === undefined) return
  throw new ExportUnreadable({ input, reason: `its ${migrationName(changed)} differs from the one of this library` })
}

async function verifyFile(input: string, file: ExportedFile, signal: AbortSignal | undefined): Promise<void> {
  const check = openFileCheck(input, file)
  for await (const chunk of readExportedFile(input, file)) {
    throwIfAborted(signal)
    check.add(chunk)
  }
  check.end()
}

/** The manifest of many thousand tables has a few megabytes. */
const maxManifestBytes = 64 * 1024 * 1024

async function readManifestText(input: string): Promise<string> {
  const file = await openPlainFile(input, manifestFile).catch((error: unknown) => {
    if (!isMissing((error as Error).cause)) throw error
    throw new ExportUnreadable({ input, reason: `it has no ${manifestFile}` }, error)
  })
  try {
    if (file.size > maxManifestBytes)
      throw new ExportDamaged({ input, file: manifestFile, reason: `has ${file.size} bytes, more than a manifest has` })
    return await file.handle.readFile('utf8')
  } finally {
    await file.handle.close()
  }
}

/** The bytes of one file of an export. */
export async function* readExportedFile(input: string, file: ExportedFile): AsyncGenerator<Buffer, void, undefined> {
  const damaged = (reason: string, cause?: unknown): Error =>
    new ExportDamaged({ input, file: file.name, reason }, cause)
  const { handle, size } = await openPlainFile(input, file.name)
  try {
    // Before it is read: a file may have no end.
    if (size !== file.bytes) throw damaged(`has ${size} bytes instead of ${file.bytes}`)
    yield* handle.createReadStream({ highWaterMark: 256 * 1024, autoClose: false, end: file.bytes })
  } catch (error) {
    throw isRillflowError(error) ? error : damaged('cannot be read', error)
  } finally {
    await handle.close()
  }
}

/** Refuses links, which may lead out of the folder, and pipes and devices, which may have no end. */
async function openPlainFile(input: string, name: string): Promise<{ handle: FileHandle; size: number }> {
  const damaged = (reason: string, cause?: unknown): Error => new ExportDamaged({ input, file: name, reason }, cause)
  // Windows has neither flag, nor pipes among its files.
  const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants as Partial<typeof constants> & { O_RDONLY: number }
  const handle = await open(join(resolve(input), name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ELOOP' || code === 'EMLINK') throw damaged('is a link', error)
    throw damaged(isMissing(error) ? 'is missing' : 'cannot be read', error)
  })
  const found = await handle.stat()
  if (found.isFile()) return { handle, size: found.size }
  await handle.close()
  throw damaged('is not a plain file')
}

function isMissing(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code
  return code === 'ENOENT' || code === 'ENOTDIR'
}

/** Compares the bytes of a file, as they are read, with its entry in the manifest. */
export function openFileCheck(input: string, file: ExportedFile): { add(chunk: Buffer): void; end(): void } {
  const hash = createHash('sha256')
  let bytes = 0
  let rows = 0
  return {
    add(chunk) {
      hash.update(chunk)
      bytes += chunk.length
      for (let at = chunk.indexOf(lineBreak); at >= 0; at = chunk.indexOf(lineBreak, at + 1)) rows++
    },
    end() {
      const reason = differenceOf({ bytes, rows, sha256: hash.digest('hex') }, file)
      if (reason !== undefined) throw new ExportDamaged({ input, file: file.name, reason })
    },
  }
}

function differenceOf(found: Omit<ExportedFile, 'name'>, expected: ExportedFile): string | undefined {
  if (found.bytes !== expected.bytes) return `has ${found.bytes} bytes instead of ${expected.bytes}`
  if (found.rows !== expected.rows) return `has ${found.rows} rows instead of ${expected.rows}`
  return found.sha256 === expected.sha256 ? undefined : 'was changed after it was written'
}

/** Ends each row of a file, as a byte. */
export const lineBreak = 10
