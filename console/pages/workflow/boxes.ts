/** From the tree of a workflow to boxes: alike executions together, and arrivals at joins as edges of their own. */
import type { Json } from '../../../src/server/api/contract.ts'
import type { EventNode, HandlerNode } from '../../../src/workflows/insight/tree.ts'

export type EventAt = Json<EventNode>
export type HandlerAt = Json<HandlerNode>

export interface Box {
  readonly key: string
  readonly kind: 'event' | 'handler' | 'leaf'
  /** Of a handler: one execution, or those that are folded. */
  readonly executions: readonly HandlerAt[]
  /** Of an event or leaf: the events it stands for. */
  readonly events: readonly EventAt[]
  /** The events that led to it. */
  readonly via: readonly EventAt[]
  readonly name: string
  readonly isJoin: boolean
  readonly children: Box[]
}

const foldFrom = 6

export function eventBox(event: EventAt, key: string, joins: ReadonlySet<string>, unfolded: ReadonlySet<string>): Box {
  return {
    ...{ key, kind: 'event', executions: [], events: [event], via: [event], name: event.type, isJoin: false },
    children: [
      ...handlerBoxes([[event, event.handlers]], key, joins, unfolded),
      ...event.events.map((each, index) => eventBox(each, `${key}.e${index}`, joins, unfolded)),
    ],
  }
}

export function handlerBox(
  executions: readonly HandlerAt[],
  via: readonly EventAt[],
  key: string,
  joins: ReadonlySet<string>,
  unfolded: ReadonlySet<string>,
): Box {
  const emitted = executions.flatMap(each => each.events)
  const name = executions[0]!.handler
  const led = emitted.filter(event => event.handlers.length > 0)
  const caused = emitted.flatMap(event => event.events)
  return {
    ...{ key, kind: 'handler', executions, events: [], via, name, isJoin: joins.has(name) },
    children: [
      ...handlerBoxes(
        led.map(event => [event, event.handlers]),
        key,
        joins,
        unfolded,
      ),
      ...leavesOf(
        emitted.filter(event => event.handlers.length === 0 && event.events.length === 0),
        key,
      ),
      ...caused.map((event, index) => eventBox(event, `${key}.c${index}`, joins, unfolded)),
    ],
  }
}

/** The executions of events, alike ones together if there are many. */
function handlerBoxes(
  of: readonly (readonly [EventAt, readonly HandlerAt[]])[],
  key: string,
  joins: ReadonlySet<string>,
  unfolded: ReadonlySet<string>,
): Box[] {
  const alike = new Map<string, { event: EventAt; execution: HandlerAt }[]>()
  for (const [event, handlers] of of)
    for (const execution of handlers) {
      const name = `${execution.handler} ${event.type}`
      alike.set(name, [...(alike.get(name) ?? []), { event, execution }])
    }
  return [...alike].flatMap(([name, members]) => {
    const folded = `${key}.${name}`
    if (members.length < foldFrom || unfolded.has(folded))
      return members.map(({ event, execution }) =>
        handlerBox([execution], [event], `${key}.${execution.executionId}`, joins, unfolded),
      )
    return [
      handlerBox(
        members.map(each => each.execution),
        members.map(each => each.event),
        folded,
        joins,
        unfolded,
      ),
    ]
  })
}

function leavesOf(events: readonly EventAt[], key: string): Box[] {
  const byType = new Map<string, EventAt[]>()
  for (const event of events) byType.set(event.type, [...(byType.get(event.type) ?? []), event])
  return [...byType].map(([type, list]) => ({
    ...{
      key: `${key}.l${type}`,
      kind: 'leaf',
      executions: [],
      events: list,
      via: [],
      name: type,
      isJoin: false,
      children: [],
    },
  }))
}

interface Arrival {
  readonly from: string
  readonly to: string
  readonly events: readonly EventAt[]
}

/** Takes leaves out that are arrivals at a join of the same type elsewhere in the tree, and returns their edges. */
export function joinLeaves(top: Box): Arrival[] {
  const joins: Box[] = []
  const visit = (box: Box, each: (box: Box) => void): void => {
    each(box)
    for (const child of box.children) visit(child, each)
  }
  visit(top, box => box.isJoin && joins.push(box))
  const arrivals: Arrival[] = []
  visit(top, box => {
    const leaves = box.children.filter(child => child.kind === 'leaf')
    for (const leaf of leaves) {
      const join = joins.find(each => each.via.some(event => event.type === leaf.name))
      if (join === undefined || join === box) continue
      box.children.splice(box.children.indexOf(leaf), 1)
      arrivals.push({ from: box.key, to: join.key, events: leaf.events })
    }
  })
  return arrivals
}
