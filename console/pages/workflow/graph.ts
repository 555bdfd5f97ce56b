/**
 * The causal graph of a workflow, laid out from left to right. Handlers are boxes; the events between them are labels of
 * edges. Six or more executions that are alike are one box with a slot for each. An event that arrives at a join leads to
 * the join, also if the tree has the join under another event.
 */
import { type HierarchyPointNode, hierarchy, tree } from 'd3-hierarchy'
import type { Json } from '../../../src/server/api/contract.ts'
import type { EventNode, HandlerNode, TreeNode } from '../../../src/workflows/insight/tree.ts'

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

export interface PlacedBox {
  readonly box: Box
  readonly x: number
  readonly y: number
  readonly width: number
  readonly height: number
}

export interface Edge {
  readonly key: string
  readonly path: string
  readonly label: string
  readonly detail: string
  readonly labelX: number
  readonly labelY: number
}

export interface Layout {
  readonly boxes: readonly PlacedBox[]
  readonly edges: readonly Edge[]
  readonly width: number
  readonly height: number
}

const foldFrom = 6
const column = 236
/** Between the first event and its handlers no label is needed. */
const firstColumn = 188
const row = 84
export const boxWidth = 144
const boxHeight = 60

/** `unfolded`: keys of boxes whose executions are drawn one by one. */
export function layOut(
  roots: readonly Json<TreeNode>[],
  joins: ReadonlySet<string>,
  unfolded: ReadonlySet<string>,
): Layout {
  const tops = roots.map((root, index) =>
    root.kind === 'event'
      ? eventBox(root, `r${index}`, joins, unfolded)
      : handlerBox([root], [], `r${index}`, joins, unfolded),
  )
  const top: Box = {
    key: '',
    kind: 'event',
    executions: [],
    events: [],
    via: [],
    name: '',
    isJoin: false,
    children: tops,
  }
  const arrivals = joinLeaves(top)
  const placed = tree<Box>()
    .nodeSize([row, column])
    .separation((a, b) => (a.parent === b.parent ? 1 : 1.15))(hierarchy(top, box => box.children))
  const nodes = placed.descendants().filter(node => node.depth > 0)
  const least = Math.min(...nodes.map(node => node.x))
  const at = (node: HierarchyPointNode<Box>): PlacedBox => {
    const height = heightOf(node.data)
    return {
      box: node.data,
      x: node.depth === 1 ? 0 : firstColumn + (node.depth - 2) * column,
      y: node.x - least + 44 - height / 2,
      width: widthOf(node.data),
      height,
    }
  }
  const boxes = nodes.map(at)
  const byKey = new Map(boxes.map(each => [each.box.key, each]))
  const edges = nodes
    .filter(node => node.depth > 1)
    .map(node => edgeOf(byKey.get(node.parent!.data.key)!, byKey.get(node.data.key)!, node.data.via))
  for (const { from, to, events } of arrivals) {
    const [start, end] = [byKey.get(from), byKey.get(to)]
    if (start !== undefined && end !== undefined) edges.push(edgeOf(start, end, events))
  }
  const width = Math.max(...boxes.map(each => each.x + each.width + (each.box.kind === 'leaf' ? 60 : 0)))
  const height = Math.max(...boxes.map(each => each.y + each.height)) + 20
  return { boxes, edges, width, height }
}

function heightOf(box: Box): number {
  if (box.kind === 'leaf') return 32
  return box.executions.length > 1 ? 76 : box.kind === 'event' ? 52 : boxHeight
}

function widthOf(box: Box): number {
  return box.kind === 'leaf' ? 112 : boxWidth
}

function eventBox(event: EventAt, key: string, joins: ReadonlySet<string>, unfolded: ReadonlySet<string>): Box {
  return {
    ...{ key, kind: 'event', executions: [], events: [event], via: [event], name: event.type, isJoin: false },
    children: [
      ...handlerBoxes([[event, event.handlers]], key, joins, unfolded),
      ...event.events.map((each, index) => eventBox(each, `${key}.e${index}`, joins, unfolded)),
    ],
  }
}

function handlerBox(
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
function joinLeaves(top: Box): Arrival[] {
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

function edgeOf(from: PlacedBox, to: PlacedBox, via: readonly EventAt[]): Edge {
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2]
  const [x2, y2] = [to.x, to.y + to.height / 2]
  const bend = Math.min(40, Math.max(16, (x2 - x1) / 2))
  const path =
    y1 === y2
      ? `M${x1} ${y1}H${x2}`
      : `M${x1} ${y1}C${x1 + bend} ${y1} ${x1 + bend - 8} ${y2} ${x1 + bend + 12} ${y2}H${x2}`
  const isShown = to.box.kind === 'handler' && from.box.kind === 'handler'
  const first = via[0]
  const last = via.at(-1)
  return {
    ...{ key: `${from.box.key}>${to.box.key}`, path, labelX: x2 - 10, labelY: y2 },
    label: isShown && first !== undefined ? `${first.type}${via.length > 1 ? ` ×${via.length}` : ''}` : '',
    detail:
      isShown && first !== undefined && last !== undefined
        ? first === last
          ? `#${first.position}`
          : `#${first.position} – ${last.position}`
        : '',
  }
}
