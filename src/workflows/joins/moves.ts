/** What happens to batches when events are dispatched, and when executions end. */

import { executionId, type NewExecution } from '../dispatch/enqueue.ts'
import type { InlineRun } from '../dispatch/inline.ts'
import type { Plan } from '../dispatch/routing.ts'
import type { Outcome } from '../work/outcome.ts'
import { batchesOf } from './joined.ts'
import type { BatchMoves } from './joins.ts'

/** What these events change in batches: they are not under way any more, what they started is. */
export function dispatchMoves(
  plans: readonly Plan[],
  executions: readonly NewExecution[],
  runs: readonly InlineRun[],
  isRepeated: boolean,
): BatchMoves {
  const started = new Map<number, number>()
  for (const { position } of executions) started.set(position, (started.get(position) ?? 0) + 1)
  const queued = new Set(executions.map(({ id }) => id))
  const members = plans.filter(({ envelope }) => envelope.batches.length > 0)
  return {
    branches: members.flatMap(plan => {
      const { correlationId, position } = plan.event
      const { batches, handler } = plan.envelope
      // What was published was not under way before it came; if nothing comes of it, nothing has ended.
      const change = (started.get(position) ?? 0) - (handler === undefined || isRepeated ? 0 : 1)
      const emits = unmet(plan, queued, runs)
      return change === 0 && emits.length === 0
        ? []
        : [{ correlationId, position, batches, change, isFailed: false, emits }]
    }),
    arrivals: members.flatMap(({ event: { correlationId, position }, envelope: { batches }, routes }) =>
      routes.filter(({ kind }) => kind === 'join').map(route => ({ route, correlationId, position, batches })),
    ),
    emitted: runs.flatMap(({ event: { correlationId, position }, emitted }) =>
      emitted === undefined ? [] : [{ ...emitted, correlationId, position }],
    ),
  }
}

/** What handlers that were run inline for this event, or did not want it, could have emitted and did not. */
function unmet({ event, routes }: Plan, queued: ReadonlySet<string>, runs: readonly InlineRun[]): string[] {
  const declared = routes.filter(({ kind, definition }) => kind === 'inline' && definition.emits !== undefined)
  return declared.flatMap(({ handler, definition }) => {
    const id = executionId(event, handler)
    const types = runs.find(run => run.executionId === id)?.emitted?.types ?? []
    return queued.has(id) ? [] : (definition.emits ?? []).filter(type => !types.includes(type))
  })
}

/** What these outcomes change in batches: what has ended is not under way any more, what it emitted is. */
export function finishMoves(outcomes: readonly Outcome[]): BatchMoves {
  const done = outcomes.filter(({ kind, execution }) => kind === 'done' && execution.undoId === undefined)
  return {
    arrivals: [],
    branches: done.flatMap(({ execution, told, emits, emitted }) => {
      const { correlationId, position } = execution
      const batches = batchesOf(execution)
      if (batches.length === 0) return []
      const move = { correlationId, position, batches, change: -1, isFailed: told === 'failed' }
      return [{ ...move, emits: emits.filter(type => emitted?.types.includes(type) !== true) }]
    }),
    emitted: done.flatMap(({ execution: { correlationId, position }, emitted }) =>
      emitted === undefined ? [] : [{ ...emitted, correlationId, position }],
    ),
  }
}
