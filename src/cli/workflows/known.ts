/** One workflow by its id on the line, in full; an id that nothing is known of is an error. */
import type { Store } from '../../store.ts'
import type { WorkflowStatus } from '../../workflows/status.ts'
import { ago } from '../output/amount.ts'
import { paintState } from '../output/consumer.ts'
import type { Style } from '../output/output.ts'
import { fields } from '../output/table.ts'
import { NothingFound } from '../usage.ts'

export const workflowArgument = {
  name: 'workflow',
  summary: 'Its correlation id',
} as const

export async function knownStatus(store: Store, workflow: string): Promise<WorkflowStatus> {
  const status = await store.workflows.flow(workflow).status()
  if (
    status.startedAt === undefined &&
    (await store.events.readAll({ correlationId: workflow, limit: 1 }).toArray()).length === 0
  )
    throw new NothingFound({ what: 'workflow', given: workflow, hint: 'rillflow workflows list' })
  return status
}

export function statusInFull(style: Style, status: WorkflowStatus): string {
  return fields(style, {
    workflow: style.colour.cyan(status.correlationId),
    state: paintState(status.state, style.colour)(status.state),
    pending: status.pending,
    'dead letters': status.deadLetters,
    'last event': status.lastType,
    parent: status.parent,
    reason: status.reason,
    started: ago(status.startedAt, style.now),
    updated: ago(status.updatedAt, style.now),
  })
}
