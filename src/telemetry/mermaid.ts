/**
 * Mermaid diagrams: labels that are safe in any of them, and the breadcrumbs of a trace as a sequence diagram. The
 * request, each collection, the log, and each consumer and handler has a lifeline; an arrow leads from the actor to its
 * target.
 */
import type { Crumb } from './breadcrumbs.ts'

const maxLabelLength = 100

/** Names can contain anything: characters that could end the label, or mean something in it, are written as numbers. */
export function mermaidLabel(text: string): string {
  const short = text.length > maxLabelLength ? `${text.slice(0, maxLabelLength - 1)}…` : text
  return short.replaceAll(/[^\p{L}\p{N} _.,:()/…-]/gu, character => `#${character.codePointAt(0)};`)
}

interface Lifeline {
  readonly id: string
  readonly label: string
}

const log: Lifeline = { id: 'events', label: 'events' }
const request: Lifeline = { id: 'request', label: 'request' }

export function drawCrumbs(crumbs: readonly Crumb[], isWhole: boolean): string {
  const lifelines = new Map<string, Lifeline>([[request.id, request]])
  const lifelineOf = (crumb: Crumb): Lifeline => {
    const label = labelOf(crumb)
    const known = [...lifelines.values()].find(each => each.label === label)
    return known ?? { id: `p${lifelines.size}`, label }
  }
  const show = (lifeline: Lifeline): string => {
    lifelines.set(lifeline.id, lifeline)
    return lifeline.id
  }
  /** The lifeline that acts within this crumb. */
  const actorOf = (crumb: Crumb | undefined): Lifeline => {
    if (crumb === undefined) return request
    if (isActor(crumb)) return lifelineOf(crumb)
    return actorOf(crumb.from === undefined ? undefined : crumbs[crumb.from])
  }
  const messages = crumbs.flatMap(crumb => {
    const cause = crumb.from === undefined ? undefined : crumbs[crumb.from]
    const isCaused = isActor(crumb)
    const from = show(isCaused ? log : actorOf(cause))
    const to = show(isCaused || crumb.kind === 'document' ? lifelineOf(crumb) : log)
    const arrow = crumb.error === undefined ? (isCaused ? '-->>' : '->>') : '-x'
    // The append within a save would only repeat the save.
    if (crumb.kind === 'append' && cause?.kind === 'save') return []
    return [`  ${from}${arrow}${to}: ${mermaidLabel(messageOf(crumb))}`]
  })
  const participants = [...lifelines.values()].map(({ id, label }) => `  participant ${id} as ${mermaidLabel(label)}`)
  const more = isWhole ? [] : ['  Note over request: not everything is shown']
  return `${['sequenceDiagram', ...participants, ...messages, ...more].join('\n')}\n`
}

/** Whether it runs because of events. */
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
