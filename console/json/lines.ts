/** The lines that show a node, each with the path it stands for; a short container of plain values stays on one line. */
import type { Node } from './json.ts'

export interface Piece {
  /** `k` key, `s` text, `n` number, `w` word, `p` punctuation. */
  readonly tone: 'k' | 's' | 'n' | 'w' | 'p'
  readonly text: string
  /** Whether it is the part of a line that has changed. */
  readonly isMarked?: boolean
}

export interface Line {
  readonly path: string
  readonly indent: number
  readonly pieces: readonly Piece[]
  /** Of the first line of a container: how many entries it has. */
  readonly folds?: number
  readonly sign?: 'add' | 'del'
}

const maxInline = 64

export function linesOf(node: Node, folded: ReadonlySet<string> = new Set()): Line[] {
  const lines: Line[] = []
  write(node, { path: '', indent: 0, lead: [], comma: false }, folded, lines)
  return lines
}

export interface Place {
  readonly path: string
  readonly indent: number
  /** The key, with its colon. */
  readonly lead: readonly Piece[]
  readonly comma: boolean
}

export function write(node: Node, place: Place, folded: ReadonlySet<string>, lines: Line[]): void {
  const { path, indent, lead, comma } = place
  const end: Piece[] = comma ? [{ tone: 'p', text: ',' }] : []
  const flat = flatOf(node, path)
  if (flat !== undefined) {
    lines.push({ path, indent, pieces: [...lead, ...flat, ...end] })
    return
  }
  const [open, close] = node.kind === 'object' ? ['{', '}'] : ['[', ']']
  const children = childrenOf(node)
  if (folded.has(path)) {
    const rest: Piece = { tone: 'p', text: `${open} … ${children.length} ${close}` }
    lines.push({ path, indent, pieces: [...lead, rest, ...end], folds: children.length })
    return
  }
  lines.push({ path, indent, pieces: [...lead, { tone: 'p', text: open }], folds: children.length })
  children.forEach(([key, value], index) => {
    write(value, placeOf(node, place, key, index < children.length - 1), folded, lines)
  })
  lines.push({ path: `${path}/`, indent, pieces: [{ tone: 'p', text: close }, ...end] })
}

/** The pieces of a value that stands on one line; the outermost value has a line for each field. */
export function flatOf(node: Node, path: string): Piece[] | undefined {
  return path === '' && childrenOf(node).length > 0 ? undefined : inline(node)
}

export function placeOf(parent: Node, { path, indent }: Place, key: string, comma: boolean): Place {
  return {
    path: `${path}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`,
    indent: indent + 1,
    lead:
      parent.kind === 'object'
        ? [
            { tone: 'k', text: keyText(key) },
            { tone: 'p', text: ': ' },
          ]
        : [],
    comma,
  }
}

export function childrenOf(node: Node): readonly (readonly [key: string, value: Node])[] {
  if (node.kind === 'object') return node.entries
  return node.kind === 'array' ? node.items.map((item, index) => [String(index), item] as const) : []
}

/** The pieces of a plain value, or of a container that fits on a line. */
function inline(node: Node): Piece[] | undefined {
  if (node.kind === 'text') return [{ tone: 's', text: node.text }]
  if (node.kind === 'number') return [{ tone: 'n', text: node.text }]
  if (node.kind === 'word') return [{ tone: 'w', text: node.text }]
  const children = childrenOf(node)
  const [open, close] = node.kind === 'object' ? ['{ ', ' }'] : ['[', ']']
  if (children.length === 0) return [{ tone: 'p', text: node.kind === 'object' ? '{}' : '[]' }]
  if (node.kind === 'object' && children.length > 3) return undefined
  const pieces: Piece[] = [{ tone: 'p', text: open }]
  for (const [index, [key, value]] of children.entries()) {
    if (value.kind === 'object' || value.kind === 'array') return undefined
    if (index > 0) pieces.push({ tone: 'p', text: ', ' })
    if (node.kind === 'object') pieces.push({ tone: 'k', text: keyText(key) }, { tone: 'p', text: ': ' })
    pieces.push(...(inline(value) ?? []))
  }
  pieces.push({ tone: 'p', text: close })
  return pieces.reduce((length, { text }) => length + text.length, 0) <= maxInline ? pieces : undefined
}

function keyText(key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? key : JSON.stringify(key)
}

/** A value on one line of a table: `customer Ada · items atlas, lamp`. */
export function oneLine(value: unknown, max = 200): Piece[] {
  const pieces: Piece[] = []
  let length = 0
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [plain(value)]
  for (const [key, field] of Object.entries(value)) {
    if (pieces.length > 0) pieces.push({ tone: 'p', text: ' · ' })
    pieces.push({ tone: 'k', text: `${key} ` }, plain(field))
    length += key.length + (pieces.at(-1)?.text.length ?? 0)
    if (length > max) break
  }
  return pieces
}

function plain(value: unknown): Piece {
  if (typeof value === 'string') return { tone: 's', text: value.slice(0, 200) }
  if (typeof value === 'number') return { tone: 'n', text: String(value) }
  if (Array.isArray(value) && value.every(item => typeof item !== 'object'))
    return { tone: 's', text: value.slice(0, 20).join(', ') }
  return { tone: 'w', text: (JSON.stringify(value) ?? '').slice(0, 200) }
}
