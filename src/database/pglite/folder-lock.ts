/**
 * Keeps a second process out of a data folder: two processes in one folder lose data that both have acknowledged.
 *
 *     lock.7   { pid, host, since, token, … }      the file with the highest number names the holder
 *
 * A process takes the folder by creating the file with the next number, which succeeds for one process only. So a
 * takeover can only replace the lock that was examined, unlike removing or renaming one file called "lock". The file
 * with the highest number is never deleted, only marked as released. A process that was so slow that its number is
 * below the highest removes its file and tries again.
 *
 * A holder is examined by its process where that is visible (same host, boot and process namespace): it is dead if the
 * process does not exist, is a zombie, or started at another time. Elsewhere it is examined by its heartbeat, a rewrite
 * of the file every few seconds, by the clock of the file system. With each heartbeat a holder checks that it still
 * holds the folder; once it does not, it never does again.
 */
import { randomUUID } from 'node:crypto'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { type FileHandle, link, mkdir, open, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join, resolve } from 'node:path'
import { isRillflowError, type RillflowError } from '../../core/errors.ts'
import { openLoop } from '../../core/loop.ts'
import { FolderLocked, FolderNotWritable } from '../errors.ts'

export interface FolderLock {
  /** Why the folder is no longer ours; undefined while it is. */
  lost(): RillflowError | undefined
  /** Where guests reach this process. */
  readonly socket: string
  /** Guests cannot reach this process. */
  withdrawSocket(): void
  release(): Promise<void>
}

export interface FolderLockOptions {
  /** Where guests will reach this process. */
  socket?: string | undefined
  /** Called once, when another process has taken the folder. */
  onLost?: ((error: RillflowError) => void) | undefined
  heartbeatMs?: number | undefined
  /** After how long without a heartbeat a holder whose process is not visible counts as dead. */
  staleMs?: number | undefined
}

const defaults = { heartbeatMs: 5_000, staleMs: 60_000 }

/** The content of a lock file. */
interface Holder {
  readonly pid: number
  readonly host: string
  readonly since: string
  readonly token: string
  /** When the process started, in clock units since the boot. */
  readonly started?: string | undefined
  readonly boot?: string | undefined
  readonly namespace?: string | undefined
  /** Where it serves guests, soon if not yet. */
  readonly socket?: string | undefined
  readonly isReleased?: boolean
}

export async function lockFolder(folder: string, options: FolderLockOptions = {}): Promise<FolderLock> {
  const path = resolve(folder)
  const own = describeSelf(options.socket)
  const draft = join(path, `lock-${own.token}`)
  try {
    await mkdir(path, { recursive: true })
    await writeFile(draft, JSON.stringify(own), { flag: 'wx' })
    try {
      const number = await takeNumber(path, draft, own, options.staleMs ?? defaults.staleMs)
      return keepLock(path, number, own, await open(lockPath(path, number), 'r+'), options)
    } finally {
      await rm(draft, { force: true })
    }
  } catch (error) {
    if (isRillflowError(error)) throw error
    throw new FolderNotWritable({ folder: path, reason: (error as Error).message }, error)
  }
}

/** Returns the number of the lock file that this process has created. */
async function takeNumber(path: string, draft: string, own: Holder, staleMs: number): Promise<number> {
  for (;;) {
    const before = highest(await readdir(path))
    if (before > 0) await refuseIfAlive(path, before, draft, own, staleMs)
    const number = before + 1
    if (!(await createOnce(lockPath(path, number), draft))) continue
    const names = await readdir(path)
    if (highest(names) === number) {
      const past = names.filter(name => numberOf(name) > 0 && numberOf(name) < number)
      await Promise.allSettled(past.map(name => rm(join(path, name))))
      return number
    }
    await rm(lockPath(path, number), { force: true })
  }
}

/** Returns whether this call has created the file. The file appears with its whole content or not at all. */
async function createOnce(path: string, draft: string): Promise<boolean> {
  try {
    await link(draft, path)
    return true
  } catch (error) {
    const code = codeOf(error)
    if (code === 'EEXIST') return false
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK', 'EISDIR'].includes(code)) throw error
  }
  // A file system without hard links. For a moment the file is empty, and is examined by its age.
  try {
    await writeFile(path, await readFile(draft), { flag: 'wx' })
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  }
}

async function refuseIfAlive(path: string, number: number, draft: string, own: Holder, staleMs: number): Promise<void> {
  try {
    const file = lockPath(path, number)
    const [holder, heartbeat, now] = [parseHolder(await readFile(file, 'utf8')), await stat(file), await stat(draft)]
    if (isAlive(holder, own, now.mtimeMs - heartbeat.mtimeMs < staleMs)) throw lockedBy(path, holder)
  } catch (error) {
    // Deleted meanwhile: a file with a higher number has replaced it.
    if (codeOf(error) !== 'ENOENT') throw error
  }
}

function isAlive(holder: Holder | undefined, own: Holder, isFresh: boolean): boolean {
  if (holder === undefined) return isFresh
  if (holder.isReleased) return false
  // Within another namespace or boot, or on another host of the same name, a process id means another process.
  const isVisible = holder.host === own.host && holder.boot === own.boot && holder.namespace === own.namespace
  if (!isVisible) return isFresh
  if (!processExists(holder.pid)) return false
  const started = startTimeOf(holder.pid)
  return started === undefined || holder.started === undefined ? isFresh : started === holder.started
}

function keepLock(
  path: string,
  number: number,
  own: Holder,
  file: FileHandle,
  { onLost, heartbeatMs = defaults.heartbeatMs }: FolderLockOptions,
): FolderLock {
  let loss: RillflowError | undefined
  let checkedAt = Date.now()
  let isReleased = false

  const check = (): void => {
    if (loss !== undefined || isReleased) return
    loss = findLoss(path, number, own)
    checkedAt = Date.now()
    if (loss !== undefined) onLost?.(loss)
  }
  // Never shorter than before, so nothing of the former content is left.
  const length = JSON.stringify(own).length
  let content = own
  const heartbeat = async (): Promise<undefined> => {
    // Through the open file, so that a late heartbeat can never touch the lock of another process.
    await file.write(JSON.stringify(content).padEnd(length), 0).catch(() => {})
    check()
  }
  const loop = openLoop({ look: heartbeat, pollMs: heartbeatMs, unref: true })
  loop.lookIn(heartbeatMs)

  return {
    lost() {
      // The process may have been suspended, and others may have taken it for dead.
      if (Date.now() - checkedAt > 3 * heartbeatMs) check()
      return loss
    },
    socket: own.socket ?? '',
    withdrawSocket() {
      content = { ...own, socket: undefined }
      loop.lookSoon()
    },
    async release() {
      if (isReleased) return
      isReleased = true
      await loop.stop()
      // Longer than the present content, so nothing of that is left.
      await file.write(JSON.stringify({ ...own, isReleased }), 0).catch(() => {})
      await file.close()
    },
  }
}

/** Where the process that has the folder open serves guests; undefined if it does not, or is on another machine. */
export async function readSocket(folder: string, expected: string): Promise<string | undefined> {
  const path = resolve(folder)
  const own = describeSelf(undefined)
  const number = highest(await readdir(path).catch(() => []))
  const text = await readFile(lockPath(path, number), 'utf8').catch(() => '')
  const holder = parseHolder(text)
  // Just taken, or just released: the caller looks again.
  if (holder === undefined) return expected
  return holder.host === own.host && holder.boot === own.boot ? holder.socket : undefined
}

function findLoss(path: string, number: number, own: Holder): RillflowError | undefined {
  try {
    const top = highest(readdirSync(path))
    const holder = parseHolder(readFileSync(lockPath(path, top), 'utf8'))
    return top === number && holder?.token === own.token ? undefined : lockedBy(path, holder)
  } catch (error) {
    // Another process may have taken the folder, released it and cleaned up, so the data may have changed.
    return codeOf(error) === 'ENOENT' ? lockedBy(path, undefined) : undefined
  }
}

function describeSelf(socket: string | undefined): Holder {
  return {
    pid: process.pid,
    host: hostname(),
    since: new Date().toISOString(),
    token: randomUUID(),
    started: startTimeOf(process.pid),
    boot: tryOrUndefined(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    namespace: tryOrUndefined(() => readlinkSync('/proc/self/ns/pid')),
    socket,
  }
}

function processExists(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return codeOf(error) !== 'ESRCH'
  }
}

/** When a process started; `ended` for a zombie, undefined where the system does not say. */
function startTimeOf(pid: number): string | undefined {
  return tryOrUndefined(() => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name, in parentheses, may contain any character. The state is the field after it, the start the 22nd of all.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return 'ZX'.includes(fields[0] as string) ? 'ended' : fields[19]
  })
}

function parseHolder(text: string): Holder | undefined {
  const holder = tryOrUndefined(() => JSON.parse(text) as Partial<Holder> | null)
  return typeof holder?.pid === 'number' && typeof holder.host === 'string' ? (holder as Holder) : undefined
}

function lockedBy(folder: string, holder: Holder | undefined): RillflowError {
  const { pid = 0, host = 'unknown host', since = 'unknown time' } = holder ?? {}
  return new FolderLocked({ folder, pid, host, since })
}

function lockPath(path: string, number: number): string {
  return join(path, `lock.${number}`)
}

function highest(names: readonly string[]): number {
  return Math.max(0, ...names.map(numberOf))
}

/** The number of a lock file, 0 for any other. */
function numberOf(name: string): number {
  return Number(/^lock\.([1-9]\d{0,14})$/.exec(name)?.[1] ?? 0)
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? ''
}

function tryOrUndefined<T>(fn: () => T): T | undefined {
  try {
    return fn()
  } catch {
    return undefined
  }
}
