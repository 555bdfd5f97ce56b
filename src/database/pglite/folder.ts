/**
 * The folder of an embedded store: `data` is PostgreSQL's own, beside it stand the lock and, while `data` is being
 * made for the first time, a mark that says so.
 */
import { access, constants, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { InvalidOption, isRillflowError, type RillflowError } from '../../core/errors.ts'
import { FolderNotWritable, FolderVersionMismatch } from '../errors.ts'
import { type FolderLock, lockFolder } from './folder-lock.ts'

/** The major version of PostgreSQL that PGlite is; it reads no folder of another one. */
export const pgliteMajor = '18'

export interface Folder {
  readonly dataDir: string
  readonly lock: FolderLock
  /** Whether there is no data in it yet. */
  readonly isNew: boolean
  /** Removes what an engine that did not start has left in a new one. */
  clear(): Promise<void>
  /** To be called when the engine has opened `data`. */
  opened(): Promise<void>
}

export async function openFolder(folder: string, onLost: (error: RillflowError) => void): Promise<Folder> {
  const path = resolve(folder)
  const dataDir = join(path, 'data')
  const mark = join(path, 'unfinished')
  const lock = await lockFolder(path, { onLost })
  try {
    // Whoever made it was interrupted: there is no store in it yet, and no engine could open it.
    if ((await readIfThere(mark)) !== undefined) await rm(dataDir, { recursive: true, force: true })
    const found = await readIfThere(join(dataDir, 'PG_VERSION'))
    if (found === undefined) {
      await refuseForeign(path, dataDir)
      await writeFile(mark, '')
    } else if (found !== pgliteMajor) throw new FolderVersionMismatch({ folder: path, found, expected: pgliteMajor })
    await mkdir(dataDir, { recursive: true, mode: 0o700 })
    await access(dataDir, constants.W_OK)
    const clear = async (): Promise<void> => {
      await rm(dataDir, { recursive: true, force: true })
      await mkdir(dataDir, { mode: 0o700 })
    }
    return { dataDir, lock, isNew: found === undefined, clear, opened: () => rm(mark, { force: true }) }
  } catch (error) {
    await lock.release()
    if (isRillflowError(error)) throw error
    throw new FolderNotWritable({ folder: path, reason: (error as Error).message }, error)
  }
}

/** Somebody's own files: with the mark beside them, whoever opens it after an interruption would remove them. */
async function refuseForeign(folder: string, dataDir: string): Promise<void> {
  const names = await readdir(dataDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  if (names.length === 0) return
  const reason = `${folder} has a folder "data" that is no store of ours; give one that is empty, or not there yet`
  throw new InvalidOption({ option: 'folder', reason })
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
