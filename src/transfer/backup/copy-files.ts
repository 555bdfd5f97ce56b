/** Copying a folder, file by file: blocks are shared with the original where the file system can do that. */
import { constants } from 'node:fs'
import { copyFile, mkdir, readdir, stat } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { throwIfAborted } from '../../core/lifecycle.ts'

export interface FoundFile {
  /** Inside the folder, with `/`. */
  readonly path: string
  readonly bytes: number
}

export interface CopyOptions {
  signal?: AbortSignal | undefined
  onFile?: ((file: FoundFile) => void) | undefined
}

/** All files in a folder, by path; and its folders, since PostgreSQL needs the empty ones too. */
export async function listFiles(folder: string): Promise<{ files: FoundFile[]; folders: string[] }> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const pathOf = (entry: (typeof entries)[number]): string =>
    relative(folder, join(entry.parentPath, entry.name)).split(sep).join('/')
  const files = entries.filter(entry => entry.isFile()).map(pathOf)
  const folders = entries.filter(entry => entry.isDirectory()).map(pathOf)
  const sized = files.sort().map(async path => ({ path, bytes: (await stat(join(folder, path))).size }))
  return { files: await Promise.all(sized), folders: folders.sort() }
}

/** Copies these files, with the folders they are in. None may be there yet. */
export async function copyFiles(
  from: string,
  to: string,
  files: readonly FoundFile[],
  { signal, onFile }: CopyOptions,
): Promise<void> {
  await forEachFile(files, signal, async file => {
    const target = join(to, file.path)
    await mkdir(dirname(target), { recursive: true, mode: 0o700 })
    await copyFile(join(from, file.path), target, constants.COPYFILE_FICLONE | constants.COPYFILE_EXCL)
    onFile?.(file)
  })
}

const atOnce = 16

/** Several at once: most files are small, and an event loop that is busy lets each of them wait at every step. */
export async function forEachFile<F>(
  files: readonly F[],
  signal: AbortSignal | undefined,
  work: (file: F) => Promise<void>,
): Promise<void> {
  let next = 0
  let hasFailed = false
  const lane = async (): Promise<void> => {
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
  // All have ended before anything is cleaned up behind them.
  const ends = await Promise.allSettled(Array.from({ length: atOnce }, lane))
  for (const end of ends) if (end.status === 'rejected') throw end.reason
}
