/** What is to be done about events: where each goes, and what that makes of the workflow it is part of. */

import { byBytes } from '../../events/append/send.ts'
import type { RecordedEvent } from '../../events/definition.ts'
import { type Envelope, envelopeOf } from '../envelope.ts'
import { type Route, routesFor } from '../routes.ts'
import { laneOf } from '../work/lanes.ts'
import { executionId, type NewExecution } from './enqueue.ts'

/** One event and where it goes. */
export interface Plan {
  readonly event: RecordedEvent
  readonly envelope: Envelope
  readonly routes: readonly Route[]
  /** Whether it is as it was stored, because it could not be given its shape. */
  readonly isFaulty: boolean
}

export function planOf(event: RecordedEvent, routes: readonly Route[], isFaulty: boolean): Plan {
  const envelope = envelopeOf(event)
  return { event, envelope, routes: routesFor(routes, event, envelope), isFaulty }
}

export function executionsOf({ event, routes }: Plan, done: ReadonlySet<string>): NewExecution[] {
  return routes.flatMap(route => {
    const id = executionId(event, route.handler)
    if (route.kind === 'join' || done.has(id)) return []
    const { correlationId, position } = event
    const isLaned = route.definition.ordered && !route.definition.keyed
    const lane = isLaned ? laneOf(route.handler, correlationId) : undefined
    return [{ id, position, route: route.id, correlationId, lane, isUnkeyed: route.definition.keyed }]
  })
}

/** What a page has of one workflow. */
export interface FlowEvents {
  readonly id: string
  readonly first: RecordedEvent
  last: RecordedEvent
  count: number
  /** Whether a handler wants some of it. */
  isWanted: boolean
  readonly parent: string | undefined
}

/** In the order in which everybody locks workflows. */
export function byWorkflow(plans: readonly Plan[]): FlowEvents[] {
  const flows = new Map<string, FlowEvents>()
  for (const { event, envelope, routes } of plans) {
    const id = event.correlationId
    const known = flows.get(id)
    const isWanted = routes.some(({ isRetired }) => !isRetired)
    if (known === undefined)
      flows.set(id, { id, first: event, last: event, count: 1, isWanted, parent: envelope.parent })
    else {
      known.last = event
      known.count++
      known.isWanted ||= isWanted
    }
  }
  return [...flows.values()].sort((a, b) => byBytes(a.id, b.id))
}
