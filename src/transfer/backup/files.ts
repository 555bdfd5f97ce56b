/**
 * The files of a backup: listed, copied, verified, and described in its manifest.
 *
 * A file is copied by sharing its blocks where the file system can do that. The manifest has a checksum of each file and
 * of itself, so that a restore finds damage before it writes anything.
 */
import { createHash } from 'node:crypto'
import { constants, createReadStream } from 'node:fs'
import { copyFile, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { throwIfAborted } from '../../core/abort.ts'
import { canonicalJson } from '../../core/json.ts'
import { pgliteMajor } from '../../database/pglite/folder.ts'
import type { BackupProgress } from './backup.ts'
import { BackupDamaged, BackupUnreadable } from './errors.ts'

export interface BackupManifest {
  readonly format: 'rillflow-backup'
  readonly formatVersion: 1
  readonly kind: 'folder'
  /** The major version of PostgreSQL that can read the files. */
  readonly postgres: string
  readonly createdAt: string
  /** The schema of the store that made the backup. A folder may hold other schemas, which are in the backup as well. */
  readonly schema: string
  /** The last position of that store's log: every event up to it is in the backup. */
  readonly position: number
  /** Also the empty ones, without which PostgreSQL does not start. */
  readonly folders: readonly string[]
  readonly files: readonly BackupFile[]
}

export interface FolderFile {
  /** Inside the folder, with `/`. */
  readonly path: string
  readonly bytes: number
}

export interface BackupFile extends FolderFile {
  readonly sha256: string
}

const manifestFile = 'manifest.json'

export async function writeManifest(folder: string, manifest: BackupManifest): Promise<void> {
  const sealed = { ...manifest, sha256: sha256OfManifest(manifest) }
  await writeFile(join(folder, manifestFile), `${JSON.stringify(sealed, undefined, 2)}\n`, { flag: 'wx' })
}

/** Refuses a manifest that this library did not write, or cannot read. */
export async function readManifest(input: string): Promise<BackupManifest> {
  const refuse = (reason: string, cause?: unknown): never => {
    throw new BackupUnreadable({ input, reason }, cause)
  }
  const text = await readFile(join(input, manifestFile), 'utf8').catch(error =>
    refuse(`it has no ${manifestFile}`, error),
  )
  const { sha256, ...manifest } = parseManifest(text, input)
  if (manifest.format !== 'rillflow-backup' || manifest.kind !== 'folder')
    refuse(`its ${manifestFile} is not that of a backup`)
  if (manifest.formatVersion !== 1)
    refuse(`its format has version ${String(manifest.formatVersion)}, and this library knows version 1`)
  if (sha256OfManifest(manifest) !== sha256)
    throw new BackupDamaged({ input, file: manifestFile, reason: 'was changed after it was written' })
  if (manifest.postgres !== pgliteMajor)
    refuse(`it was made by PostgreSQL ${manifest.postgres}, and the embedded one is version ${pgliteMajor}`)
  const paths = [...manifest.folders, ...manifest.files.map(file => file.path)]
  const outside = paths.find(path => path.split(/[/\\]/).some(part => part === '..' || part === ''))
  if (outside !== undefined) refuse(`the path "${outside}" in its manifest leads out of it`)
  return manifest
}

function parseManifest(text: string, input: string): BackupManifest & { readonly sha256: string } {
  try {
    const manifest = JSON.parse(text) as BackupManifest & { sha256: string }
    if (typeof manifest === 'object' && manifest !== null) return manifest
  } catch (error) {
    throw new BackupDamaged({ input, file: manifestFile, reason: 'is not JSON' }, error)
  }
  throw new BackupDamaged({ input, file: manifestFile, reason: 'is not an object' })
}

/** The checksum of the manifest itself, which contains those of all files. */
function sha256OfManifest(manifest: BackupManifest): string {
  return createHash('sha256').update(canonicalJson(manifest)).digest('hex')
}

/** Compares one file with its entry in the manifest. */
export async function verifyFile(input: string, file: BackupFile): Promise<void> {
  const damaged = (reason: string, cause?: unknown): never => {
    throw new BackupDamaged({ input, file: file.path, reason }, cause)
  }
  const path = join(input, file.path)
  const found = await stat(path).catch(error => damaged('is missing', error))
  if (found.size !== file.bytes) damaged(`has ${found.size} bytes instead of ${file.bytes}`)
  const sha256 = await sha256OfFile(path).catch(error => damaged('cannot be read', error))
  if (sha256 !== file.sha256) damaged('was changed after it was written')
}

export async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}

/** All files in a folder by path, and all folders in it, because PostgreSQL needs the empty ones too. */
export async function listFiles(folder: string): Promise<{ files: FolderFile[]; folders: string[] }> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const pathOf = (entry: (typeof entries)[number]): string =>
    relative(folder, join(entry.parentPath, entry.name)).split(sep).join('/')
  const files = entries.filter(entry => entry.isFile()).map(pathOf)
  const folders = entries.filter(entry => entry.isDirectory()).map(pathOf)
  const sized = files.sort().map(async path => ({ path, bytes: (await stat(join(folder, path))).size }))
  return { files: await Promise.all(sized), folders: folders.sort() }
}

export interface CopyFilesOptions {
  signal?: AbortSignal | undefined
  onFile?: ((file: FolderFile) => void) | undefined
}

/** Copies these files with the folders they are in. None of them may exist yet. */
export async function copyFiles(
  from: string,
  to: string,
  files: readonly FolderFile[],
  { signal, onFile }: CopyFilesOptions,
): Promise<void> {
  await forEachFile(files, signal, async file => {
    const target = join(to, file.path)
    await mkdir(dirname(target), { recursive: true, mode: 0o700 })
    await copyFile(join(from, file.path), target, constants.COPYFILE_FICLONE | constants.COPYFILE_EXCL)
    onFile?.(file)
  })
}

const filesAtOnce = 16

/** Several at once: most files are small, and a busy event loop makes each of them wait at every step. */
export async function forEachFile<F>(
  files: readonly F[],
  signal: AbortSignal | undefined,
  work: (file: F) => Promise<void>,
): Promise<void> {
  let next = 0
  let hasFailed = false
  const workThrough = async (): Promise<void> => {
    try {
      while (next < files.length && !hasFailed) {
        throwIfAborted(signal)
        await work(files[next++]!)
      }
    } catch (error) {
      hasFailed = true
      throw error
    }
  }
  // All have ended before the caller cleans up after a failure.
  const ends = await Promise.allSettled(Array.from({ length: filesAtOnce }, workThrough))
  for (const end of ends) if (end.status === 'rejected') throw end.reason
}

/** Reports the progress, file by file. */
export function fileProgress<P extends string>(
  phase: P,
  all: readonly FolderFile[],
  onProgress: ((progress: Omit<BackupProgress, 'phase'> & { readonly phase: P }) => void) | undefined,
): (file: FolderFile) => void {
  const totals = { totalFiles: all.length, totalBytes: totalBytes(all) }
  let files = 0
  let bytes = 0
  return file => {
    files++
    bytes += file.bytes
    onProgress?.({ phase, files, bytes, ...totals })
  }
}

export function totalBytes(files: readonly FolderFile[]): number {
  return files.reduce((sum, file) => sum + file.bytes, 0)
}
