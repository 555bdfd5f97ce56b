/**
 * Programs of the tests that run in their own process, built once per run: through a loader, each start would take a second
 * of a core.
 *
 *     const child = forkProgram(new URL('worker-program.ts', import.meta.url))      one of `PROGRAMS`
 */
import { type ChildProcess, fork } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { TestProject } from 'vitest/node'
import { shortLived } from './embedded.ts'

const PROGRAMS = [
  'test/chaos/appending-process.ts',
  'test/chaos/consumers/rebuilder-program.ts',
  'test/chaos/consumers/worker-program.ts',
  'test/chaos/workflows/worker-program.ts',
  'test/cli/one-process.ts',
  'test/docs/one-cluster.ts',
  'test/documents/reading-program.ts',
  'test/events/reading-program.ts',
  'test/support/folder-process.ts',
]

export function forkProgram(program: string | URL): ChildProcess {
  return fork(builtFileOf(program), { execArgv: [...shortLived] })
}

/** The built file of a program, which must be one of `PROGRAMS`. */
export function builtFileOf(program: string | URL): string {
  const path = relative(root, fileURLToPath(program)).replace(/\.ts$/, '.js')
  return join(process.env.RILLFLOW_TEST_PROGRAMS!, path)
}

/** Before the run, for all projects together. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Inside the package, so that they find its dependencies.
  const folder = join(root, '.test-results', `programs-${process.pid}`)
  const run = project.vitest as { [built]?: Promise<void> }
  run[built] ??= buildPrograms(folder)
  await run[built]
  // Not provided to the project, because some programs start themselves: they would have to load the test runner.
  process.env.RILLFLOW_TEST_PROGRAMS = folder
  return () => rm(folder, { recursive: true, force: true })
}

/** Few files instead of 400: that takes two thirds off the start of a process (0.25 s of a core, 0.09 s so). */
async function buildPrograms(folder: string): Promise<void> {
  const { build } = await import('esbuild')
  await build({
    ...{ absWorkingDir: root, entryPoints: PROGRAMS, outdir: folder, outbase: '.', chunkNames: 'chunks/[name]-[hash]' },
    ...{ bundle: true, splitting: true, format: 'esm', platform: 'node', target: 'node20', packages: 'external' },
    logLevel: 'warning',
  })
}

const root = fileURLToPath(new URL('../..', import.meta.url))
const built: unique symbol = Symbol.for('rillflow.test.programs') as never
