/**
 * The folder of an embedded store.
 *
 *     <folder>/data          PostgreSQL's own files
 *     <folder>/lock.7        which process has the folder open (`folder-lock.ts`)
 *     <folder>/socket        where that process serves others (`hub.ts`)
 *     <folder>/unfinished    only while `data` is being made for the first time
 */
import { access, constants, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { InvalidOption, isRillflowError, type RillflowError } from '../../core/errors.ts'
import { FolderNotWritable, FolderVersionMismatch } from '../errors.ts'
import { type FolderLock, lockFolder } from './folder-lock.ts'

/** The major version of PostgreSQL that PGlite is. It cannot read a folder of another one. */
export const pgliteMajor = '18'

export interface Folder {
  readonly dataDir: string
  readonly lock: FolderLock
  /** Whether there is no data in it yet. */
  readonly isNew: boolean
  /** Removes the files that an engine which did not start has left in a new folder. */
  clear(): Promise<void>
  /** To be called after the engine has opened `data`. */
  opened(): Promise<void>
}

export async function openFolder(
  folder: string,
  socketOf: (folder: string) => string,
  onLost: (error: RillflowError) => void,
): Promise<Folder> {
  const path = resolve(folder)
  const dataDir = join(path, 'data')
  const mark = join(path, 'unfinished')
  const lock = await lockFolder(path, { onLost, socket: socketOf(path) })
  try {
    // The process that made it was interrupted: there is no store in it yet, and no engine could open it.
    if ((await readIfExists(mark)) !== undefined) await rm(dataDir, { recursive: true, force: true })
    const found = await readIfExists(join(dataDir, 'PG_VERSION'))
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

/** Refuses a folder with other files: with the mark next to them, an opening after an interruption would delete them. */
async function refuseForeign(folder: string, dataDir: string): Promise<void> {
  const names = await readdir(dataDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  if (names.length === 0) return
  const reason = `The folder ${folder} has a folder "data" that is not a store. Give a folder that is empty or does not exist.`
  throw new InvalidOption({ option: 'folder', reason })
}

async function readIfExists(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
