/** What a file in `benches/` exports as `bench`. */
import type { Report } from './report.ts'

export interface Bench {
  /** One line: what is compared with what. */
  readonly about: string
  run(context: BenchContext): Promise<void>
}

export interface BenchContext {
  /** Fewer rounds and smaller data: done within two minutes. */
  readonly quick: boolean
  readonly report: Report
}
