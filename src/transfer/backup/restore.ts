/**
 * Restores a backup into a folder.
 *
 *     manifest ─► every checksum ─► copied to a draft next to the folder ─► opened ─► cut, if asked ─► closed ─► renamed
 *
 * A damaged backup is found before anything is written, and the folder appears complete or not at all. The backup is only
 * read, so it can be restored again.
 */

import { mkdir, readdir, rename, rm, rmdir } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { throwIfAborted } from '../../core/abort.ts'
import { InvalidOption } from '../../core/errors.ts'
import { randomId } from '../../core/host.ts'
import { optionNames, refuseUnknownOptions } from '../../core/options.ts'
import type { Database } from '../../database/database.ts'
import { FolderNotEmpty } from '../../database/errors.ts'
import { sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import { checkPosition } from '../../events/read/log.ts'
import type { BackupProgress } from './backup.ts'
import { type CutOptions, type CutResult, cutLog } from './cut-log.ts'
import { BackupUnreadable } from './errors.ts'
import { type BackupManifest, copyFiles, fileProgress, forEachFile, readManifest, verifyFile } from './files.ts'

export interface RestoreOptions {
  /** The folder that `store.backup()` has made. */
  input: string
  /** The folder of the restored store. It must be empty or absent. */
  folder: string
  /** Cuts the log at this position. Default: all of it stays. */
  toPosition?: number | undefined
  signal?: AbortSignal | undefined
  onProgress?: ((progress: RestoreProgress) => void) | undefined
}

const restoreOptionNames: readonly string[] = optionNames<RestoreOptions>({
  ...{ input: true, folder: true, toPosition: true, signal: true, onProgress: true },
})

export interface RestoreProgress extends Omit<BackupProgress, 'phase'> {
  readonly phase: 'verifying' | 'copying' | 'opening' | 'cutting'
}

export interface RestoreResult {
  readonly folder: string
  /** The schema of the store that made the backup. */
  readonly schema: string
  /** The last position of the log. New events come after the last position of the backup. */
  readonly position: number
  /** The numbers of the cut at `toPosition`. */
  readonly cut: CutResult | undefined
}

/**
 * Restores a backup of an embedded store into an empty folder.
 *
 * @example
 * ```ts
 * const restore = (input: string, folder: string) => restoreBackup({ input, folder })
 * ```
 */
export async function restoreBackup(options: RestoreOptions): Promise<RestoreResult> {
  refuseUnknownOptions('restoreBackup', options, restoreOptionNames)
  const { toPosition, signal, onProgress } = options
  const [input, folder] = [resolve(options.input), resolve(options.folder)]
  await refuseFull(folder)
  const manifest = await readManifest(input)
  if (toPosition !== undefined) checkToPosition(toPosition, manifest.position)
  const { files, folders } = manifest
  const onVerified = fileProgress('verifying', files, onProgress)
  await forEachFile(files, signal, async file => {
    await verifyFile(input, file)
    onVerified(file)
  })
  const draft = `${folder}.${randomId()}.unfinished`
  await mkdir(draft, { recursive: true, mode: 0o700 })
  try {
    for (const each of folders) await mkdir(join(draft, each), { recursive: true, mode: 0o700 })
    await copyFiles(input, draft, files, { signal, onFile: fileProgress('copying', files, onProgress) })
    const totals = { files: files.length, totalFiles: files.length, bytes: 0, totalBytes: 0 }
    onProgress?.({ phase: 'opening', ...totals })
    const cut = await openAndCut(draft, input, manifest, toPosition, {
      signal,
      onProgress: () => onProgress?.({ phase: 'cutting', ...totals }),
    })
    throwIfAborted(signal)
    await refuseFull(folder)
    // Not every system can rename a folder to the name of an empty one.
    await rmdir(folder).catch(() => {})
    await rename(draft, folder)
    return { folder, schema: manifest.schema, position: toPosition ?? manifest.position, cut }
  } catch (error) {
    await rm(draft, { recursive: true, force: true })
    throw error
  }
}

function checkToPosition(toPosition: number, position: number): void {
  checkPosition('toPosition', toPosition)
  if (toPosition > position)
    throw new InvalidOption({
      option: 'toPosition',
      reason: `The option "toPosition" is ${toPosition}, but the backup ends at ${position}. Give a position up to that.`,
    })
}

async function refuseFull(folder: string): Promise<void> {
  const found = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  if (found.length > 0) throw new FolderNotEmpty({ folder })
}

/** Proves that the copy can be opened and has the log that its manifest describes. */
async function openAndCut(
  draft: string,
  input: string,
  manifest: BackupManifest,
  toPosition: number | undefined,
  options: CutOptions,
): Promise<CutResult | undefined> {
  const { openPglite } = await import('../../database/pglite/pglite.ts')
  const database: Database = await openPglite({ folder: draft })
  try {
    const { schema, position } = manifest
    const [row] = await database.run<{ position: number }>(sql`/* backup.restored_position */
      select head as position
      from ${logNames(schema).settle}()`)
    if (row!.position !== position)
      throw new BackupUnreadable({ input, reason: `its log ends at position ${row!.position} instead of ${position}` })
    if (toPosition === undefined || toPosition >= row!.position) return undefined
    return await cutLog({ database, schema }, toPosition, options)
  } finally {
    await database.close(0)
  }
}
