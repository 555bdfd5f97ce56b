/** The effects of an event: handlers, the events these emitted, and so on; alike ones together. */
import type { Json } from '../../src/server/api/contract.ts'
import type { EventNode, HandlerNode, TreeNode } from '../../src/workflows/insight/tree.ts'
import { pageUrl } from '../api/place.ts'
import { useReading } from '../api/reading.ts'
import { duration } from '../parts/format.ts'
import { Shape } from '../parts/icon.tsx'
import { toneClass } from '../parts/parts.tsx'
import { Show } from '../parts/reading.tsx'
import { executionLook } from './workflow-look.tsx'

type EventAt = Json<EventNode>
type HandlerAt = Json<HandlerNode>

interface Effect {
  readonly key: string
  readonly depth: number
  readonly node: EventAt | HandlerAt
  readonly count: number
}

export function Effects({ event }: { event: { id: string; correlationId: string } }) {
  const tree = useReading('GET /workflows/:id/tree', { parameters: { id: event.correlationId }, everyMs: 5000 })
  return (
    <Show of={tree} rows={3}>
      {({ roots }) => {
        const found = findEvent(roots, event.id)
        const effects = found === undefined ? [] : effectsOf(found)
        if (effects.length === 0) return <p class="dim">Nothing so far: no handler wants its type.</p>
        return (
          <ul class="effects">
            {effects.slice(0, 60).map(effect => (
              <EffectLine key={effect.key} effect={effect} />
            ))}
          </ul>
        )
      }}
    </Show>
  )
}

function EffectLine({ effect: { node, depth, count } }: { effect: Effect }) {
  const times = count > 1 && <span class="dim"> ×{count}</span>
  const indent = depth === 0 ? '' : `in${Math.min(depth, 4)}`
  if (node.kind === 'event')
    return (
      <li class={indent}>
        <i class="dotmark" />
        <span class="cut">
          <a href={pageUrl('/events', { open: node.id })}>{node.type}</a>
          {times}
        </span>
        <span class="mono faint">#{node.position}</span>
      </li>
    )
  const look = executionLook(node.state, node.isDead)
  return (
    <li class={indent}>
      <Shape name={look.shape} tone={toneClass(look.tone)} />
      <span class="cut">
        <b>{node.handler}</b>
        {times} <span class="faint">{node.attempts > 1 ? `${node.attempts} attempts` : ''}</span>
      </span>
      <span class={`mini ${look.word === 'Done' ? 'faint' : toneClass(look.tone)}`}>
        {look.word === 'Done' && node.runningMs !== undefined ? duration(node.runningMs) : look.word}
      </span>
    </li>
  )
}

function findEvent(nodes: readonly Json<TreeNode>[], id: string): EventAt | undefined {
  for (const node of nodes) {
    if (node.kind === 'event' && node.id === id) return node
    const below = node.kind === 'event' ? [...node.handlers, ...node.events] : node.events
    const found = findEvent(below, id)
    if (found !== undefined) return found
  }
  return undefined
}

/** The subtree as lines. Siblings that are alike (their kind, name and state) are one line. */
function effectsOf(root: EventAt): Effect[] {
  const lines: Effect[] = []
  const add = (nodes: readonly (EventAt | HandlerAt)[], depth: number): void => {
    const groups = new Map<string, (EventAt | HandlerAt)[]>()
    for (const node of nodes) {
      const key = node.kind === 'event' ? `e ${node.type}` : `h ${node.handler} ${node.state} ${node.isDead}`
      groups.set(key, [...(groups.get(key) ?? []), node])
    }
    for (const [key, alike] of groups) {
      lines.push({ key: `${lines.length} ${key}`, depth, node: alike[0]!, count: alike.length })
      add(
        alike.flatMap(node => (node.kind === 'event' ? [...node.handlers, ...node.events] : node.events)),
        depth + 1,
      )
    }
  }
  add([...root.handlers, ...root.events], 0)
  return lines
}
