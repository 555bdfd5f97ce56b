/** The last line of a page: what it cost the database. */
import type { Reading } from '../api/reading.ts'
import { plural, rate } from './format.ts'

export function Cost({ of }: { of: readonly Reading<unknown>[] }) {
  const costs = of.flatMap(({ cost }) => (cost === undefined ? [] : [cost]))
  if (costs.length === 0) return null
  const statements = costs.reduce((sum, cost) => sum + cost.statements, 0)
  const ms = costs.reduce((sum, cost) => sum + cost.ms, 0)
  return (
    <p class="cost">
      This page cost {plural(statements, 'statement')} · {rate(ms)} ms
    </p>
  )
}
