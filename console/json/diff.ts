/** The changes between two values: by path, arrays by index. Shared by states, attempts, versions and edits. */
import { compact, type Node } from './json.ts'
import { childrenOf, flatOf, type Line, type Piece, type Place, placeOf, write } from './lines.ts'

export interface Difference {
  readonly lines: readonly Line[]
  /** How many fields differ. */
  readonly changes: number
}

export function diffLines(before: Node, after: Node): Difference {
  const lines: Line[] = []
  const changes = compare(before, after, { path: '', indent: 0, lead: [], comma: false }, lines)
  return { lines, changes }
}

function compare(before: Node, after: Node, place: Place, lines: Line[]): number {
  if (compact(before) === compact(after)) {
    write(after, place, new Set(), lines)
    return 0
  }
  const isNested =
    before.kind === after.kind && flatOf(before, place.path) === undefined && flatOf(after, place.path) === undefined
  if (isNested && (after.kind === 'object' || after.kind === 'array')) return compareWithin(before, after, place, lines)
  signed('del', before, place, lines)
  signed('add', after, place, lines)
  return 1
}

function compareWithin(before: Node, after: Node, place: Place, lines: Line[]): number {
  const [open, close] = after.kind === 'object' ? ['{', '}'] : ['[', ']']
  const end: Piece[] = place.comma ? [{ tone: 'p', text: ',' }] : []
  lines.push({ path: place.path, indent: place.indent, pieces: [...place.lead, { tone: 'p', text: open }] })
  const old = new Map(childrenOf(before))
  const now = new Map(childrenOf(after))
  const keys = [...now.keys(), ...[...old.keys()].filter(key => !now.has(key))]
  let changes = 0
  for (const [index, key] of keys.entries()) {
    const at = placeOf(after, place, key, index < keys.length - 1)
    const [was, is] = [old.get(key), now.get(key)]
    if (was !== undefined && is !== undefined) changes += compare(was, is, at, lines)
    else if (is !== undefined) signed('add', is, at, lines)
    else if (was !== undefined) signed('del', was, at, lines)
    if (was === undefined || is === undefined) changes++
  }
  lines.push({ path: `${place.path}/`, indent: place.indent, pieces: [{ tone: 'p', text: close }, ...end] })
  return changes
}

/** The lines of a value that is new or gone; the value itself is marked, its key is not. */
function signed(sign: 'add' | 'del', node: Node, place: Place, lines: Line[]): void {
  const own: Line[] = []
  write(node, place, new Set(), own)
  for (const line of own) {
    const lead = line.path === place.path ? place.lead.length : 0
    const pieces = line.pieces.map((piece, index) =>
      index < lead || piece.tone === 'p' ? piece : { ...piece, isMarked: true },
    )
    lines.push({ ...line, sign, pieces })
  }
}
