/**
 * Crumbs as a sequence diagram of Mermaid: the request, the collections, the log, and each consumer and handler is a
 * lifeline; what is done runs from who does it to what it is done to.
 */

import type { Crumb } from './breadcrumbs.ts'
import { mermaidLabel } from './mermaid.ts'

const log = { id: 'events', label: 'events' }
const request = { id: 'request', label: 'request' }

interface Lifeline {
  readonly id: string
  readonly label: string
}

export function drawCrumbs(crumbs: readonly Crumb[], isWhole: boolean): string {
  const lifelines = new Map<string, Lifeline>([[request.id, request]])
  const named = (crumb: Crumb): Lifeline => {
    const label = labelOf(crumb)
    const known = [...lifelines.values()].find(each => each.label === label)
    return known ?? { id: `p${lifelines.size}`, label }
  }
  const show = (lifeline: Lifeline): string => {
    lifelines.set(lifeline.id, lifeline)
    return lifeline.id
  }
  /** Who does what is done inside of this crumb. */
  const actorOf = (crumb: Crumb | undefined): Lifeline => {
    if (crumb === undefined) return request
    if (isActor(crumb)) return named(crumb)
    return actorOf(crumb.from === undefined ? undefined : crumbs[crumb.from])
  }
  const messages = crumbs.flatMap(crumb => {
    const cause = crumb.from === undefined ? undefined : crumbs[crumb.from]
    const isCaused = isActor(crumb)
    const from = show(isCaused ? log : actorOf(cause))
    const to = show(isCaused || crumb.kind === 'document' ? named(crumb) : log)
    const arrow = crumb.error === undefined ? (isCaused ? '-->>' : '->>') : '-x'
    // The append within a save says nothing that the save has not said.
    if (crumb.kind === 'append' && cause?.kind === 'save') return []
    return [`  ${from}${arrow}${to}: ${mermaidLabel(messageOf(crumb))}`]
  })
  const participants = [...lifelines.values()].map(({ id, label }) => `  participant ${id} as ${mermaidLabel(label)}`)
  const more = isWhole ? [] : ['  Note over request: more was done than is shown']
  return `${['sequenceDiagram', ...participants, ...messages, ...more].join('\n')}\n`
}

/** Runs because of events. */
function isActor({ kind }: Crumb): boolean {
  return kind === 'projection' || kind === 'consumer' || kind === 'subscription' || kind === 'handler'
}

function labelOf({ kind, name }: Crumb): string {
  return kind === 'document' ? `documents ${name}` : `${kind} ${name}`
}

function messageOf({ kind, name, what, durationMs, error }: Crumb): string {
  const took =
    durationMs === undefined ? '' : ` (${durationMs < 10 ? durationMs.toFixed(1) : Math.round(durationMs)} ms)`
  const failed = error === undefined ? '' : ', failed'
  if (kind === 'append' || kind === 'save') return `${kind} ${what}${name === '' ? '' : ` to ${name}`}${failed}${took}`
  if (kind === 'schedule') return `schedule ${name}: ${what}${failed}${took}`
  return kind === 'emit' ? `emit ${what}${failed}` : `${what}${failed}${took}`
}
