/** The object that each file in `benches/` exports as `bench`. */
import type { Report } from './report.ts'

export interface Bench {
  /** One line that says what is measured. */
  readonly about: string
  run(context: BenchContext): Promise<void>
}

export interface BenchContext {
  /** Fewer rounds and less data: takes less than two minutes. */
  readonly quick: boolean
  /** Only this part of a bench that has several. */
  readonly only?: string | undefined
  readonly report: Report
}
