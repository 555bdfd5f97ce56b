/**
 * Embedded stores of tests that are about something else than making one, and processes that start one only to end again.
 *
 *     await copyStore(folder)                            as `openStore({ folder })` leaves a new one behind: in tenths of a second
 *     fork(program, { execArgv: shortLived })            half of the time of a core
 */
import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { openStore } from '../../src/store.ts'
import { waitUntil } from './wait.ts'

/** V8 compiles the engine once, and never better: that takes longer than such a process lives (2.4 s of a core, 1.3 s without). */
export const shortLived: readonly string[] = ['--liftoff-only']

/** Making the first one takes seconds, on a busy machine many. */
const deadlineMs = 120_000

export async function copyStore(folder: string): Promise<void> {
  await cp(await original(), folder, { recursive: true })
}

/** Made by whichever process of the run wants it first. */
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
