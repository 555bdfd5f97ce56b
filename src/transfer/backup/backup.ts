/**
 * A copy of an embedded store while it runs.
 *
 *     hold the line ─► checkpoint ─► read the position ─► copy ─► let go ─► checksums ─► manifest ─► rename
 *
 * There is one connection, so whoever holds its line is alone with the files: what was acknowledged before is in them, and
 * writers wait only for the copy. All of it is made under another name and renamed at the end: what has the name that was
 * asked for is whole. The lock of the folder is beside the data and not part of it.
 */
import { randomUUID } from 'node:crypto'
import { mkdir, rename, rm, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { pgliteMajor } from '../../database/pglite/folder.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { copyFiles, type FoundFile, forEachFile, listFiles } from './copy-files.ts'
import { BackupExists, BackupUnsupported } from './errors.ts'
import { type BackupManifest, checksum, writeManifest } from './files.ts'

export interface BackupOptions {
  /** The folder to make. It must not be there yet. */
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

export interface Backup {
  readonly output: string
  /** Every event up to this position is in it. */
  readonly position: number
  readonly files: number
  readonly bytes: number
  /** For how long writers had to wait. */
  readonly heldMs: number
}

export async function backUp(log: Log, { output, signal, onProgress }: BackupOptions): Promise<Backup> {
  const { database, schema, names, clock } = log
  if (database.files === undefined)
    throw new BackupUnsupported({ place: database.engine === 'postgres' ? 'server' : 'memory' })
  const path = resolve(output)
  await refuseExisting(path)
  const draft = `${path}.${randomUUID()}.unfinished`
  await mkdir(join(draft, 'data'), { recursive: true, mode: 0o700 })
  try {
    const copied = await database.files.hold(async held => {
      const startedAt = performance.now()
      const [row] = await held.run<{ position: number }>(sql`/* upkeep.backup_position */
        select case when is_called then last_value else last_value - 1 end as position
        from ${names.events_position}`)
      const { files, folders } = await listFiles(held.folder)
      const wanted = files.filter(file => !leftOut.has(file.path))
      for (const folder of folders) await mkdir(join(draft, 'data', folder), { recursive: true, mode: 0o700 })
      const onFile = counted('copying', wanted, onProgress)
      await copyFiles(held.folder, join(draft, 'data'), wanted, { signal, onFile })
      return { position: row!.position, folders, heldMs: performance.now() - startedAt }
    }, signal)
    const { position, heldMs } = copied
    const { files } = await listFiles(draft)
    const onFile = counted('verifying', files, onProgress)
    const sums = new Map<string, string>()
    await forEachFile(files, signal, async file => {
      sums.set(file.path, await checksum(join(draft, file.path)))
      onFile(file)
    })
    const manifest: BackupManifest = {
      ...{ format: 'rillflow-backup', formatVersion: 1, kind: 'folder' },
      ...{ postgres: pgliteMajor, createdAt: clock.now().toISOString(), schema, position: position.toString() },
      folders: copied.folders.map(folder => `data/${folder}`),
      files: files.map(file => ({ ...file, sha256: sums.get(file.path)! })),
    }
    await writeManifest(draft, manifest)
    await refuseExisting(path)
    await rename(draft, path)
    return { output: path, position, files: files.length, bytes: total(files), heldMs }
  } catch (error) {
    await rm(draft, { recursive: true, force: true })
    throw error
  }
}

/** What belongs to the process that has the folder open. */
const leftOut: ReadonlySet<string> = new Set(['postmaster.pid', 'postmaster.opts'])

async function refuseExisting(output: string): Promise<void> {
  const isThere = await stat(output).then(
    () => true,
    () => false,
  )
  if (isThere) throw new BackupExists({ output })
}

/** Tells how far it has come, file by file. */
export function counted<P extends string>(
  phase: P,
  all: readonly FoundFile[],
  onProgress: ((progress: Omit<BackupProgress, 'phase'> & { readonly phase: P }) => void) | undefined,
): (file: FoundFile) => void {
  const totals = { totalFiles: all.length, totalBytes: total(all) }
  let files = 0
  let bytes = 0
  return file => {
    files++
    bytes += file.bytes
    onProgress?.({ phase, files, bytes, ...totals })
  }
}

function total(files: readonly FoundFile[]): number {
  return files.reduce((sum, file) => sum + file.bytes, 0)
}
