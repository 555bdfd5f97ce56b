/** The routing of events: the handlers of each, the executions that follow, and the counts of its workflow. */
import { byBytes } from '../../events/append/send.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import { type Envelope, envelopeOf } from '../envelope.ts'
import { type Route, routesFor } from '../routes.ts'
import { laneOf } from '../work/lanes.ts'
import { executionId, type NewExecution } from './enqueue.ts'

/** One event and the routes it takes. */
export interface Routing {
  readonly event: RecordedEvent
  readonly envelope: Envelope
  readonly routes: readonly Route[]
  /** Whether the event is as it was stored, because an upcaster failed. */
  readonly isFaulty: boolean
}

export function routingOf(event: RecordedEvent, routes: readonly Route[], isFaulty: boolean): Routing {
  const envelope = envelopeOf(event)
  return { event, envelope, routes: routesFor(routes, event, envelope), isFaulty }
}

/** The executions to be queued for an event: one per route, without joins and those in `done`. */
export function executionsOf({ event, routes }: Routing, done: ReadonlySet<string> = none): NewExecution[] {
  return routes.flatMap(route => {
    const id = executionId(event, route.handler)
    if (route.kind === 'join' || done.has(id)) return []
    const { correlationId, position } = event
    const { ordered, keyed } = route.definition
    const lane = ordered && !keyed ? laneOf(route.handler, correlationId) : undefined
    return [{ id, position, route: route.id, correlationId, lane, isUnkeyed: keyed }]
  })
}

const none: ReadonlySet<string> = new Set()

/** The events of one workflow in a page. */
export interface WorkflowEvents {
  readonly id: string
  readonly first: RecordedEvent
  last: RecordedEvent
  count: number
  /** Whether a handler wants one of them. */
  isWanted: boolean
  readonly parent: string | undefined
}

/** By workflow, in the order in which workflows are locked everywhere. */
export function byWorkflow(routings: readonly Routing[]): WorkflowEvents[] {
  const workflows = new Map<string, WorkflowEvents>()
  for (const { event, envelope, routes } of routings) {
    const id = event.correlationId
    const known = workflows.get(id)
    const isWanted = routes.some(({ isRetired }) => !isRetired)
    if (known === undefined)
      workflows.set(id, { id, first: event, last: event, count: 1, isWanted, parent: envelope.parent })
    else {
      known.last = event
      known.count++
      known.isWanted ||= isWanted
    }
  }
  return [...workflows.values()].sort((a, b) => byBytes(a.id, b.id))
}
