/** The numbers of a schema in tests: sequences, or rows of `counters`. */
import { hasCounters } from './engines.ts'

type Query = (text: string) => Promise<unknown>

/** The next number drawn from a source is the one after this. */
export async function drawTo(query: Query, source: string, value: number): Promise<void> {
  await query(
    hasCounters
      ? `update ~counters set value = ${value} where name = '${source}'`
      : `select setval('~${source}', ${value})`,
  )
}

/** An expression for the next number of the activity of workflows. */
export const nextActivity: string = hasCounters
  ? '(~workflow_draw(p_count => 1))[1]'
  : `nextval('~workflow_activity_position')`
