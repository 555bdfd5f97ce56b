/** Ends a run with `N passed, N failed`, alone on the last line, for programs that read nothing else. */
import { mkdirSync, writeFileSync } from 'node:fs'
import type { Reporter, TestModule, Vitest } from 'vitest/node'

const FILE = '.test-results/summary.txt'

export default class SummaryReporter implements Reporter {
  #watching = false
  #line = ''

  onInit(vitest: Vitest): void {
    this.#watching = vitest.config.watch
    // Other reporters and the set-up's teardown print after a run ends; an exit handler prints last.
    process.once('exit', () => {
      if (this.#line && !this.#watching) process.stdout.write(`${this.#line}\n`)
    })
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const count = { passed: 0, failed: unhandledErrors.length, skipped: 0, pending: 0 }
    for (const module of modules) {
      for (const test of module.children.allTests()) count[test.result().state]++
      // A file or suite that could not even be loaded has no tests to fail.
      const broken = [module, ...module.children.allSuites()].filter(each => each.errors().length > 0)
      count.failed += broken.length
    }
    // A test without a result was cut off by whatever ended the run.
    this.#line = `${count.passed} passed, ${count.failed + count.pending} failed`
    if (count.skipped > 0) this.#line += `, ${count.skipped} skipped`
    if (this.#watching) process.stdout.write(`${this.#line}\n`)
    mkdirSync('.test-results', { recursive: true })
    writeFileSync(FILE, `${this.#line}\n`)
  }
}
