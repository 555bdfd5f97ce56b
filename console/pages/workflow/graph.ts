/**
 * The causal graph of a workflow, laid out from left to right. Handlers are boxes; the events between them are labels of
 * edges. Six or more executions that are alike are one box with a slot for each. An event that arrives at a join leads to
 * the join, also if the tree has the join under another event.
 */
import { type HierarchyPointNode, hierarchy, tree } from 'd3-hierarchy'
import type { Json } from '../../../src/server/api/contract.ts'
import type { TreeNode } from '../../../src/workflows/insight/tree.ts'
import { type Box, type EventAt, eventBox, handlerBox, joinLeaves } from './boxes.ts'

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

const column = 250
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
  // The label of a join counts all that arrived, also by the edges of other boxes.
  const viaOf = (box: Box): EventAt[] =>
    [...box.via, ...arrivals.filter(({ to }) => to === box.key).flatMap(({ events }) => events)].sort(
      (a, b) => a.position - b.position,
    )
  const boxes = nodes.map(at)
  const byKey = new Map(boxes.map(each => [each.box.key, each]))
  const edges = nodes
    .filter(node => node.depth > 1)
    .map(node => edgeOf(byKey.get(node.parent!.data.key)!, byKey.get(node.data.key)!, viaOf(node.data)))
  for (const { from, to, events } of arrivals) {
    const [start, end] = [byKey.get(from), byKey.get(to)]
    if (start !== undefined && end !== undefined) edges.push({ ...edgeOf(start, end, events), label: '', detail: '' })
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

function edgeOf(from: PlacedBox, to: PlacedBox, via: readonly EventAt[]): Edge {
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2]
  const [x2, y2] = [to.x, to.y + to.height / 2]
  const bend = 20
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
