/**
 * Backups: a copy of an embedded store's folder, made while the store is open.
 *
 *     backup:   hold the connection ─► checkpoint ─► read the position ─► copy ─► release ─► checksums ─► manifest ─► rename
 *     restore:  manifest ─► every checksum ─► copy to a draft ─► open it ─► cut it, if asked ─► close it ─► rename
 *
 *     <output>/manifest.json     the version of PostgreSQL, the last position, each file with its bytes and SHA-256
 *     <output>/data/…            the files of the data folder
 *
 * Guarantees:
 * - A backup has every event that was acknowledged before it was asked for. An embedded store has one connection, so the
 *   holder of that connection is alone with the files; writers wait only while they are copied.
 * - A copy is made under another name and renamed at the end, so a folder with the requested name is complete.
 * - A damaged backup is refused before anything is written (`BackupDamaged`). A restore only reads the backup, so it can be
 *   restored again.
 * - Positions never go back: a log that was cut continues above the highest position it ever had.
 *
 * What can fail: an output that exists (`BackupExists`); a store without a folder (`BackupUnsupported`); a folder that is
 * not a backup, or is of another version of PostgreSQL (`BackupUnreadable`). A failure removes the unfinished copy; if
 * the process dies, it stays, under a name that ends in `.unfinished`.
 *
 * The lock of a store's folder lies next to the data and is not part of a backup.
 */

import { mkdir, rename, rm, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { elapsedMs, randomId } from '../../core/host.ts'
import { pgliteMajor } from '../../database/pglite/folder.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { BackupExists, BackupUnsupported } from './errors.ts'
import {
  type BackupManifest,
  copyFiles,
  type FolderFile,
  fileProgress,
  forEachFile,
  listFiles,
  sha256OfFile,
  totalBytes,
  writeManifest,
} from './files.ts'

export interface BackupOptions {
  /** The folder to make. It must not exist yet. */
  output: string
  signal?: AbortSignal | undefined
  onProgress?: ((progress: BackupProgress) => void) | undefined
}

export interface BackupProgress {
  /** Writers wait while it is copying. */
  readonly phase: 'copying' | 'verifying'
  readonly files: number
  readonly totalFiles: number
  readonly bytes: number
  readonly totalBytes: number
}

export interface BackupResult {
  readonly output: string
  /** Every event up to this position is in the backup. */
  readonly position: number
  readonly files: number
  readonly bytes: number
  /** How long writers had to wait. */
  readonly pausedMs: number
}

export async function backUp(log: Log, { output, signal, onProgress }: BackupOptions): Promise<BackupResult> {
  const { database, schema, names, clock } = log
  if (database.files === undefined)
    throw new BackupUnsupported({ place: database.engine === 'postgres' ? 'server' : 'memory' })
  const path = resolve(output)
  await refuseExisting(path)
  const draft = `${path}.${randomId()}.unfinished`
  await mkdir(join(draft, 'data'), { recursive: true, mode: 0o700 })
  try {
    const { position, folders, pausedMs } = await database.files.hold(async held => {
      const startedAt = elapsedMs()
      const [row] = await held.run<{ position: number }>(sql`/* backup.position */
        select head as position
        from ${names.settle}()`)
      const { files, folders } = await listFiles(held.folder)
      const wanted = files.filter(file => !ofProcess.has(file.path))
      for (const folder of folders) await mkdir(join(draft, 'data', folder), { recursive: true, mode: 0o700 })
      const onFile = fileProgress('copying', wanted, onProgress)
      await copyFiles(held.folder, join(draft, 'data'), wanted, { signal, onFile })
      return { position: row!.position, folders, pausedMs: elapsedMs() - startedAt }
    }, signal)
    const { files } = await listFiles(draft)
    const manifest: BackupManifest = {
      format: 'rillflow-backup',
      formatVersion: 1,
      kind: 'folder',
      postgres: pgliteMajor,
      createdAt: clock.now().toISOString(),
      schema,
      position,
      folders: folders.map(folder => `data/${folder}`),
      files: await withChecksums(draft, files, { signal, onFile: fileProgress('verifying', files, onProgress) }),
    }
    await writeManifest(draft, manifest)
    await refuseExisting(path)
    await rename(draft, path)
    return { output: path, position, files: files.length, bytes: totalBytes(files), pausedMs }
  } catch (error) {
    await rm(draft, { recursive: true, force: true })
    throw error
  }
}

/** Files that belong to the process that has the folder open. */
const ofProcess: ReadonlySet<string> = new Set(['postmaster.pid', 'postmaster.opts'])

async function refuseExisting(output: string): Promise<void> {
  const exists = await stat(output).then(
    () => true,
    () => false,
  )
  if (exists) throw new BackupExists({ output })
}

async function withChecksums(
  folder: string,
  files: readonly FolderFile[],
  { signal, onFile }: { signal: AbortSignal | undefined; onFile: (file: FolderFile) => void },
): Promise<BackupManifest['files']> {
  const sums = new Map<string, string>()
  await forEachFile(files, signal, async file => {
    sums.set(file.path, await sha256OfFile(join(folder, file.path)))
    onFile(file)
  })
  return files.map(file => ({ ...file, sha256: sums.get(file.path)! }))
}
