/**
 * Circles in an order: strongly connected components (Tarjan, 1972), and in each of them a shortest circle.
 *
 * That one place had ended before another began is an edge for each such pair, far too many. A chain stands for them: each
 * place leads to its link, the links lead on in the order of the ends, and a link leads to the places that began after it.
 */

export interface Graph {
  readonly places: readonly { readonly began: number; readonly ended: number }[]
  readonly edges: readonly Edge[]
}

export interface Edge {
  readonly from: number
  readonly to: number
  /** rt: by time; object and version mean nothing. */
  readonly kind: 'ww' | 'wr' | 'rw' | 'rt'
  readonly object: string
  readonly version: number
}

/** At most so many, each of another component. */
const maxCircles = 5

export function findCircles(graph: Graph): Edge[][] {
  return componentsOf(graph)
    .filter(members => members.length > 1)
    .slice(0, maxCircles)
    .map(members => shortestCircle(graph, members))
}

/** The places of each component. */
function componentsOf({ places, edges }: Graph): number[][] {
  const count = places.length
  const next: number[][] = Array.from({ length: 2 * count }, () => [])
  for (const { from, to } of edges) next[from]!.push(to)
  const ends = places
    .map(({ ended }, at) => ({ ended, at }))
    .sort((a, b) => (a.ended < b.ended ? -1 : Number(a.ended > b.ended)))
  for (const [link, { at }] of ends.entries()) {
    next[at]!.push(count + link)
    if (link + 1 < count) next[count + link]!.push(count + link + 1)
  }
  for (const [at, { began }] of places.entries()) {
    let [low, high] = [0, count]
    while (low < high) {
      const middle = (low + high) >> 1
      if (ends[middle]!.ended < began) low = middle + 1
      else high = middle
    }
    if (low > 0) next[count + low - 1]!.push(at)
  }
  return tarjan(next).map(members => members.filter(member => member < count).sort((a, b) => a - b))
}

function tarjan(next: readonly (readonly number[])[]): number[][] {
  const index = new Int32Array(next.length).fill(-1)
  const low = new Int32Array(next.length)
  const isOpen = new Uint8Array(next.length)
  const components: number[][] = []
  const open: number[] = []
  let counter = 0
  for (let root = 0; root < next.length; root++) {
    if (index[root] !== -1) continue
    /** The way down, and how many of the edges of each were followed. */
    const path = [{ at: root, followed: 0 }]
    while (path.length > 0) {
      const step = path.at(-1)!
      const { at } = step
      if (step.followed === 0) {
        index[at] = low[at] = counter++
        open.push(at)
        isOpen[at] = 1
      }
      const to = next[at]![step.followed++]
      if (to !== undefined) {
        if (index[to] === -1) path.push({ at: to, followed: 0 })
        else if (isOpen[to] === 1) low[at] = Math.min(low[at]!, index[to]!)
        continue
      }
      path.pop()
      const parent = path.at(-1)
      if (parent !== undefined) low[parent.at] = Math.min(low[parent.at]!, low[at]!)
      if (low[at] === index[at]) components.push(takeFrom(open, at, isOpen))
    }
  }
  return components
}

function takeFrom(open: number[], first: number, isOpen: Uint8Array): number[] {
  const members = open.splice(open.lastIndexOf(first))
  for (const member of members) isOpen[member] = 0
  return members
}

/** Breadth first from each member. */
function shortestCircle({ places, edges }: Graph, members: readonly number[]): Edge[] {
  const inside = new Set(members)
  const own = edges.filter(({ from, to }) => inside.has(from) && inside.has(to))
  const byFrom = new Map(members.map(member => [member, own.filter(({ from }) => from === member)]))
  const edgesFrom = (from: number): Edge[] => [
    ...byFrom.get(from)!,
    ...members
      .filter(to => places[from]!.ended < places[to]!.began)
      .map(to => ({ from, to, kind: 'rt' as const, object: '', version: 0 })),
  ]
  let shortest: Edge[] | undefined
  // Of a component that large any circle is a proof.
  for (const root of members.slice(0, 200)) {
    const found = circleThrough(root, edgesFrom)
    if (found !== undefined && (shortest === undefined || found.length < shortest.length)) shortest = found
    if (shortest?.length === 2) break
  }
  return shortest ?? []
}

function circleThrough(root: number, edgesFrom: (from: number) => Edge[]): Edge[] | undefined {
  const cameBy = new Map<number, Edge>()
  const queue = [root]
  for (const at of queue)
    for (const edge of edgesFrom(at)) {
      if (edge.to === root) {
        const circle = [edge]
        for (let back = at; back !== root; back = circle[0]!.from) circle.unshift(cameBy.get(back)!)
        return circle
      }
      if (cameBy.has(edge.to)) continue
      cameBy.set(edge.to, edge)
      queue.push(edge.to)
    }
  return undefined
}
