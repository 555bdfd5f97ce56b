/** The folder in which the processes of a run record their statements, and whether the run is of all tests. */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  interface ProvidedContext {
    /** Every test on every engine, so that every statement is recorded. */
    isWholeRun: boolean
  }
}

/** Before the run, once per project; the processes of tests inherit the environment. */
export default function setup(project: TestProject): () => void {
  const folder = join(root, '.test-results', `statements-${process.pid}`)
  mkdirSync(folder, { recursive: true })
  process.env.RILLFLOW_TEST_STATEMENTS = folder
  const { filenamePattern } = project.vitest as { filenamePattern?: readonly string[] | undefined }
  const { project: projects, testNamePattern } = project.vitest.config
  const narrowing = [filenamePattern, projects, testNamePattern?.source, process.env.RILLFLOW_TEST_ENGINES]
  project.provide('isWholeRun', !narrowing.some(given => given !== undefined && given.length > 0))
  return () => rmSync(folder, { recursive: true, force: true })
}

const root = fileURLToPath(new URL('../..', import.meta.url))
