/**
 * Embedded stores for tests that do not test their creation, and flags for processes that start one only for a short time.
 *
 *     await copyStore(folder)                            a new store, as by `openStore({ folder })`, in tenths of a second
 *     await copyImage(cache)                             the same for programs with a cache folder of their own
 *     fork(program, { execArgv: shortLived })            half of the CPU time
 */
import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { cacheFolder } from '../../src/database/pglite/image.ts'
import { openStore } from '../../src/store.ts'
import { waitUntil } from './wait.ts'

/** V8 compiles the engine once and does not optimize it, which takes longer than such a process lives (2.4 s of a core, 1.3 s without). */
export const shortLived: readonly string[] = ['--liftoff-only']

/** Making the first one takes seconds, on a busy machine many. */
const deadlineMs = 120_000

export async function copyStore(folder: string): Promise<void> {
  await cp(await original(), folder, { recursive: true })
}

/** What the programs of a test would make themselves, in 3 s of a core: the engine's image, if the user's cache has one. */
export async function copyImage(cache: string): Promise<void> {
  const own = cacheFolder()
  if (own === undefined) return
  const names = (await readdir(own).catch(() => [])).filter(name => name.endsWith('.tar.gz'))
  await mkdir(join(cache, 'rillflow'), { recursive: true, mode: 0o700 })
  for (const name of names) await cp(join(own, name), join(cache, 'rillflow', name))
}

/** Made by the first process of the run that needs it. */
async function original(): Promise<string> {
  const place = process.env.RILLFLOW_TEST_PROGRAMS!
  const whole = join(place, 'store')
  const isFirst = await mkdir(join(place, 'making-store')).then(
    () => true,
    () => false,
  )
  if (isFirst) {
    const folder = await mkdtemp(join(place, 'unfinished-'))
    await (await openStore({ folder })).close()
    await rename(folder, whole)
  }
  await waitUntil(() => existsSync(whole), { what: 'the first embedded store of the run', deadlineMs })
  return whole
}
