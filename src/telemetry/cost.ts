/** The cost of a piece of work for the database: its statements, and the time they were waited for. */
import { AsyncLocalStorage } from 'node:async_hooks'

export interface Cost {
  statements: number
  ms: number
}

const costs = new AsyncLocalStorage<Cost>()

/** Statements that `work` sends are added to `cost`, also those it sends after it has returned. */
export function countCost<T>(cost: Cost, work: () => T): T {
  return costs.run(cost, work)
}

export function addStatement(durationMs: number): void {
  const cost = costs.getStore()
  if (cost === undefined) return
  cost.statements++
  cost.ms += durationMs
}
