/** How often in a row executions were broken off here because a database was away: the next try of each waits longer. */
import type { Outcome } from './outcome.ts'

const mostKept = 1_000

export interface Interruptions {
  of(executionId: string): number
  note(executionId: string, outcome: Pick<Outcome, 'detail'>): void
}

export function countInterruptions(): Interruptions {
  const counts = new Map<string, number>()
  return {
    of: id => counts.get(id) ?? 0,
    note(id, { detail }) {
      const count = counts.get(id) ?? 0
      counts.delete(id)
      if (detail !== 'interrupted') return
      counts.set(id, count + 1)
      // Others may have gone on with the oldest.
      if (counts.size > mostKept) counts.delete(counts.keys().next().value!)
    },
  }
}
