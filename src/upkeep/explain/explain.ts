/**
 * Explains why an event is not processed yet, or why a workflow is not settled: one verdict for each consumer and handler
 * that could want the event, each with what would mend it.
 *
 *     event ─► settled? ─► each consumer: filter, checkpoint, pause, failure, holder ─► verdict        (consumers.ts)
 *                       └► each handler: route, dispatcher, execution, activity, dead letter ─► verdict (handlers.ts)
 *
 * The cost is bounded by the number of consumers and handlers, and by the open executions of one workflow.
 */

import type { ConsumerAdministration } from '../../consumers/administration.ts'
import type { Consumer } from '../../consumers/consumer.ts'
import type { DeadLetters } from '../../consumers/dead-letters/dead-letters.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import type { Events } from '../../events/events.ts'
import type { WorkflowStatus } from '../../workflows/status.ts'
import type { Workflows } from '../../workflows/workflows.ts'
import { consumerVerdicts } from './consumers.ts'
import { executionVerdicts, handlerVerdicts } from './handlers.ts'

/** The event by its id, or the workflow by its correlation id. */
export type ExplainTarget = string | { readonly workflow: string }

export interface Explanation {
  /** The event; undefined for a workflow. */
  readonly event: RecordedEvent | undefined
  /** The workflow that was asked for. */
  readonly workflow: WorkflowStatus | undefined
  /** Whether nothing is left to do for it. */
  readonly isDone: boolean
  /** Those that need something first, then those that wait, then those that are done. */
  readonly verdicts: readonly Verdict[]
}

export interface Verdict {
  /** The consumer or handler; undefined for the log itself. */
  readonly name: string | undefined
  readonly kind: 'log' | Consumer['kind'] | 'handler'
  /** `blocked`: nothing happens until someone acts. `waiting`: it comes by itself. `none`: it does not want it. */
  readonly state: 'blocked' | 'waiting' | 'done' | 'none'
  /** A word for the reason: `paused`, `notRunning`, `retrying`, … */
  readonly reason: string
  /** In whole sentences. */
  readonly message: string
  /** A line of the command line that would mend it. */
  readonly fix: string | undefined
  readonly executionId?: string | undefined
}

export interface ExplainParts {
  readonly events: Events
  readonly consumers: ConsumerAdministration
  readonly workflows: Workflows
  readonly deadLetters: DeadLetters
  /** The consumers whose code this process has. */
  registered(): readonly Consumer[]
}

/** Undefined if the log has no such event. */
export async function explain(parts: ExplainParts, target: ExplainTarget): Promise<Explanation | undefined> {
  if (typeof target !== 'string') {
    refuseUnknownOptions('store.explain', target, ['workflow'])
    return explainWorkflow(parts, target.workflow)
  }
  const event = await parts.events.get(target)
  if (event === undefined) return undefined
  const { settled, heldBackBy } = await parts.events.settled()
  const verdicts: Verdict[] = []
  if (event.position > settled) {
    const [holder] = heldBackBy
    const open = holder?.pid === undefined ? `prepared transaction ${holder?.gid}` : `backend ${holder.pid}`
    verdicts.push({
      ...{ name: undefined, kind: 'log', state: 'waiting', reason: 'notSettled' },
      message: `The log is settled up to ${settled}: ${open} has appended and has not committed yet.`,
      fix: undefined,
    })
  }
  verdicts.push(...(await consumerVerdicts(parts, event)), ...(await handlerVerdicts(parts, event)))
  return { event, workflow: undefined, ...sorted(verdicts) }
}

async function explainWorkflow(parts: ExplainParts, correlationId: string): Promise<Explanation> {
  const workflow = await parts.workflows.get(correlationId).status()
  const verdicts = workflow.isSettled && workflow.deadLetters === 0 ? [] : await executionVerdicts(parts, correlationId)
  return { event: undefined, workflow, ...sorted(verdicts), isDone: workflow.isSettled }
}

const order: Readonly<Record<Verdict['state'], number>> = { blocked: 0, waiting: 1, done: 2, none: 3 }

function sorted(verdicts: readonly Verdict[]): Pick<Explanation, 'isDone' | 'verdicts'> {
  return {
    isDone: verdicts.every(({ state }) => state === 'done' || state === 'none'),
    verdicts: verdicts.toSorted((a, b) => order[a.state] - order[b.state]),
  }
}
