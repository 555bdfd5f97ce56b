/**
 * Embedded stores for tests that do not test their creation, and flags for processes that start one only for a short time.
 *
 *     await copyStore(folder)                            a new store, as by `openStore({ folder })`, in tenths of a second
 *     fork(program, { execArgv: shortLived })            half of the CPU time
 */
import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { openStore } from '../../src/store.ts'
import { waitUntil } from './wait.ts'

/** V8 compiles the engine once and does not optimize it, which takes longer than such a process lives (2.4 s of a core, 1.3 s without). */
export const shortLived: readonly string[] = ['--liftoff-only']

/** Making the first one takes seconds, on a busy machine many. */
const deadlineMs = 120_000

export async function copyStore(folder: string): Promise<void> {
  await cp(await original(), folder, { recursive: true })
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
