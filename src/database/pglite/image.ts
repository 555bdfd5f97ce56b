/**
 * An image of an empty embedded database: the files that `initdb` makes, made once per user and version of the engine.
 *
 *     openPglite, new ──► image in the cache? ──yes──► unpacked into memory or the folder ──► engine starts
 *                               └─no──► made by an engine of its own ──► stored ──┘
 *
 * `initdb` takes 1.1 to 1.4 s of a core, unpacking the image 0.3 to 0.45. There is no schema in it: making one takes
 * 0.07 s, and an image without is the same for every name of a schema and every version of the library.
 *
 * Guarantees:
 * - Nothing depends on it. An image that is missing, damaged or not ours is made again; where there is no folder to
 *   store one, or it cannot be written, databases are made without.
 * - It is read only from a folder that belongs to this user and that no one else can write.
 * - Processes that store it at the same time do not disturb each other: each writes a file of its own and renames it.
 */
import { randomUUID } from 'node:crypto'
import { lstat, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { promisify } from 'node:util'
import { gunzip, gzip } from 'node:zlib'

export interface Images {
  /** The image as a tar file; undefined where none can be stored. */
  take(): Promise<Buffer | undefined>
  /** Removes one from which no engine has started. */
  remove(): Promise<void>
}

/** `make` returns a tar file. Default folder: `rillflow` in the user's cache. */
export function images(make: () => Promise<Buffer>, folder: string | undefined = cacheFolder()): Images {
  return {
    async take() {
      const path = await imagePath(folder)
      if (path === undefined) return undefined
      return (await readImage(path)) ?? storeImage(path, await make())
    },
    async remove() {
      const path = await imagePath(folder)
      if (path !== undefined) await rm(path, { force: true }).catch(() => {})
    },
  }
}

/** Where the image is, or is to be; undefined if the folder cannot be trusted or made. */
async function imagePath(folder: string | undefined): Promise<string | undefined> {
  try {
    if (folder === undefined) return undefined
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return (await isOurs(folder)) ? join(folder, `embedded-${await engineVersion()}.tar.gz`) : undefined
  } catch {
    return undefined
  }
}

async function readImage(path: string): Promise<Buffer | undefined> {
  try {
    if (!(await isOurs(path))) return undefined
    // It carries a checksum, so a damaged one is not unpacked.
    return await promisify(gunzip)(await readFile(path))
  } catch {
    return undefined
  }
}

async function storeImage(path: string, image: Buffer): Promise<Buffer> {
  const draft = `${path}.${randomUUID()}`
  try {
    await writeFile(draft, await promisify(gzip)(image, { level: 1 }), { mode: 0o600, flag: 'wx' })
    await rename(draft, path)
  } catch {
    await rm(draft, { force: true }).catch(() => {})
  }
  return image
}

/** Belongs to this user, and no one else can write it. (Windows has no such numbers; the folder is the user's own there.) */
async function isOurs(path: string): Promise<boolean> {
  const found = await lstat(path)
  if (process.getuid === undefined) return true
  return !found.isSymbolicLink() && found.uid === process.getuid() && (found.mode & 0o022) === 0
}

async function engineVersion(): Promise<string> {
  const entry = createRequire(import.meta.url).resolve('@electric-sql/pglite')
  const { version } = JSON.parse(await readFile(join(dirname(dirname(entry)), 'package.json'), 'utf8'))
  return String(version)
}

/** `rillflow` in the user's cache; undefined where no user is known. */
export function cacheFolder(): string | undefined {
  const { XDG_CACHE_HOME: given, LOCALAPPDATA: local } = process.env
  if (given !== undefined && isAbsolute(given)) return join(given, 'rillflow')
  if (process.platform === 'win32') return local === undefined ? undefined : join(local, 'rillflow', 'cache')
  const home = homedir()
  if (!isAbsolute(home)) return undefined
  return process.platform === 'darwin' ? join(home, 'Library', 'Caches', 'rillflow') : join(home, '.cache', 'rillflow')
}
