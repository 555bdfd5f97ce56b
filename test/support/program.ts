/**
 * Programs of the tests that run in their own process, compiled once per run: through a loader, each start would take a
 * second of a core.
 *
 *     const child = forkProgram(new URL('worker-program.ts', import.meta.url))      one of `PROGRAMS`
 */
import { type ChildProcess, execFile, fork } from 'node:child_process'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { TestProject } from 'vitest/node'
import { shortLived } from './embedded.ts'

const PROGRAMS = [
  'test/chaos/appending-process.ts',
  'test/chaos/consumers/rebuilder-program.ts',
  'test/chaos/consumers/worker-program.ts',
  'test/chaos/workflows/worker-program.ts',
  'test/cli/one-process.ts',
  'test/docs/one-cluster.ts',
  'test/support/folder-process.ts',
]

export function forkProgram(program: string | URL): ChildProcess {
  return fork(compiledOf(program), { execArgv: [...shortLived] })
}

/** The compiled file of a program, which must be one of `PROGRAMS`. */
export function compiledOf(program: string | URL): string {
  const path = relative(root, fileURLToPath(program)).replace(/\.ts$/, '.js')
  return join(process.env.RILLFLOW_TEST_PROGRAMS!, path)
}

/** Before the run, for all projects together. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Inside the package, so that they find its dependencies.
  const folder = join(root, '.test-results', `programs-${process.pid}`)
  const run = project.vitest as { [compiled]?: Promise<void> }
  run[compiled] ??= compile(folder)
  await run[compiled]
  // Not provided to the project, because some programs start themselves: they would have to load the test runner.
  process.env.RILLFLOW_TEST_PROGRAMS = folder
  return () => rm(folder, { recursive: true, force: true })
}

async function compile(folder: string): Promise<void> {
  const compilerOptions = { noEmit: false, noCheck: true, rootDir: '../..', outDir: '.' }
  const files = PROGRAMS.map(path => join(root, path))
  await mkdir(folder, { recursive: true })
  const config = JSON.stringify({ extends: '../../tsconfig.json', compilerOptions, include: [], files })
  await writeFile(join(folder, 'tsconfig.json'), config)
  await promisify(execFile)(process.execPath, [join(root, 'node_modules', 'typescript', 'bin', 'tsc'), '-p', folder])
}

const root = fileURLToPath(new URL('../..', import.meta.url))
const compiled: unique symbol = Symbol.for('rillflow.test.programs') as never
