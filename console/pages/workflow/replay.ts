/** A workflow at a moment: the states of its executions after the lines of activity up to then, and the events there were. */

import type { Json } from '../../../src/server/api/contract.ts'
import type { Activity } from '../../../src/workflows/insight/activity.ts'
import type { HandlerNode } from '../../../src/workflows/insight/tree.ts'

/** The state of an execution; `none` before there is one. */
export type ExecutionLookState = HandlerNode['state'] | 'none'

export type Line = Json<Activity>

export interface WorkflowAt {
  /** Whether it is the present, and not a moment of a replay. */
  readonly isNow: boolean
  stateOf(executionId: string): ExecutionLookState | undefined
  hasEvent(event: { readonly at: string }): boolean
}

export const present: WorkflowAt = { isNow: true, stateOf: () => undefined, hasEvent: () => true }

/** After the first `count` lines. */
export function workflowAt(lines: readonly Line[], count: number): WorkflowAt {
  const shown = lines.slice(0, count)
  const states = new Map<string, ExecutionLookState>()
  for (const line of shown) states.set(line.executionId, stateAfter(line))
  const until = Date.parse(shown.at(-1)?.at ?? '') || 0
  return {
    isNow: false,
    stateOf: executionId => states.get(executionId),
    hasEvent: event => Date.parse(event.at) <= until,
  }
}

export function stateAfter({ kind, outcome }: Line): ExecutionLookState {
  switch (kind) {
    case 'started':
      return 'running'
    case 'completed':
      return 'completed'
    case 'failed':
      return outcome === 'retry' || outcome === 'timeout' ? 'delayed' : 'failed'
    case 'suspended':
      return 'suspended'
    case 'parked':
      return 'parked'
    case 'cancelled':
      return 'cancelled'
    case 'skipped':
      return 'skipped'
    default:
      return 'ready'
  }
}
