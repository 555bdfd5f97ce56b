/**
 * The order of the test files: the slowest first, so that no worker is left alone with one at the end, and one engine after
 * the other, because a worker, and its PGlite, lives only as long as the next file is of its project.
 */
import { statSync } from 'node:fs'
import type { TestSequencer, TestSpecification } from 'vitest/node'

export class SlowestFirst implements TestSequencer {
  shard(files: TestSpecification[]): TestSpecification[] {
    return files
  }

  sort(files: TestSpecification[]): TestSpecification[] {
    const engines = [...new Set(files.map(file => file.project.name))]
    const engineOf = (file: TestSpecification): number => engines.indexOf(file.project.name)
    const sizes = new Map(files.map(file => [file, sizeOf(file.moduleId)]))
    return [...files].sort((a, b) => engineOf(a) - engineOf(b) || sizes.get(b)! - sizes.get(a)!)
  }
}

/** Long files have many tests; those that start processes, or run many seeds, are slow however short they are. */
function sizeOf(path: string): number {
  return statSync(path).size + (/\/test\/(chaos|docs|simulation)\//.test(path) ? 1_000_000 : 0)
}
