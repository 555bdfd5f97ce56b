/**
 * JSON as text: read into nodes that keep every number as it was written, because `JSON.parse` rounds what the database
 * has kept. Viewer, diff, blame and editor all work on these nodes.
 *
 *     text ─► readJson ─► node ─► linesOf ─► viewer
 *                          └────► diffLines ─► diff, blame (by path)
 */

export type Node =
  | { readonly kind: 'object'; readonly entries: readonly (readonly [key: string, value: Node])[] }
  | { readonly kind: 'array'; readonly items: readonly Node[] }
  | { readonly kind: 'text' | 'number' | 'word'; readonly text: string }

export class JsonFault extends Error {
  readonly line: number
  readonly column: number

  constructor(reason: string, text: string, at: number) {
    const before = text.slice(0, at).split('\n')
    super(reason)
    this.line = before.length
    this.column = (before.at(-1)?.length ?? 0) + 1
  }
}

/** Values that nest deeper are shown as the text they are. */
const maxDepth = 400

/** A control character inside a text is accepted here, and refused by the server. */
const token =
  /[ \t\r\n]*(?:([{}[\],:])|("(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null))/y

export function readJson(text: string): Node {
  let at = 0
  let start = 0
  const next = (): { mark?: string; text?: string; number?: string; word?: string } => {
    token.lastIndex = at
    const match = token.exec(text)
    if (match === null)
      throw new JsonFault(at >= text.trimEnd().length ? 'it ends too early' : 'this is not JSON', text, at)
    at = token.lastIndex
    start = at - (match[1] ?? match[2] ?? match[3] ?? match[4] ?? '').length
    return {
      ...(match[1] !== undefined && { mark: match[1] }),
      ...(match[2] !== undefined && { text: match[2] }),
      ...(match[3] !== undefined && { number: match[3] }),
      ...(match[4] !== undefined && { word: match[4] }),
    }
  }
  const isNext = (mark: string): boolean => {
    const match = /[ \t\r\n]*(.)/sy
    match.lastIndex = at
    const found = match.exec(text)
    if (found?.[1] !== mark) return false
    at = match.lastIndex
    return true
  }
  const value = (depth: number): Node => {
    const found = next()
    if (found.text !== undefined) return { kind: 'text', text: found.text }
    if (found.number !== undefined) return { kind: 'number', text: found.number }
    if (found.word !== undefined) return { kind: 'word', text: found.word }
    if (depth > maxDepth) throw new JsonFault(`it nests deeper than ${maxDepth}`, text, start)
    if (found.mark === '{') return objectAt(depth)
    if (found.mark === '[') return arrayAt(depth)
    throw new JsonFault(`a value is missing before "${found.mark}"`, text, start)
  }
  const objectAt = (depth: number): Node => {
    const entries: [string, Node][] = []
    if (isNext('}')) return { kind: 'object', entries }
    do {
      const key = next()
      if (key.text === undefined) throw new JsonFault('a key in quotes is missing', text, start)
      if (!isNext(':')) throw new JsonFault('a colon is missing after the key', text, at)
      entries.push([JSON.parse(key.text) as string, value(depth + 1)])
    } while (isNext(','))
    if (!isNext('}')) throw new JsonFault('a comma or "}" is missing', text, at)
    return { kind: 'object', entries }
  }
  const arrayAt = (depth: number): Node => {
    const items: Node[] = []
    if (isNext(']')) return { kind: 'array', items }
    do items.push(value(depth + 1))
    while (isNext(','))
    if (!isNext(']')) throw new JsonFault('a comma or "]" is missing', text, at)
    return { kind: 'array', items }
  }
  const root = value(0)
  if (text.slice(at).trim() !== '') throw new JsonFault('there is more text after the value', text, at)
  return root
}

/** A value that was parsed already; its numbers are as exact as JavaScript has them. */
export function nodeOf(value: unknown): Node {
  return readJson(JSON.stringify(value) ?? 'null')
}

/** On one line. */
export function compact(node: Node): string {
  if (node.kind === 'object')
    return `{${node.entries.map(([key, value]) => `${JSON.stringify(key)}:${compact(value)}`).join(',')}}`
  if (node.kind === 'array') return `[${node.items.map(compact).join(',')}]`
  return node.text
}

/** With two spaces of indent for each level, for an editor. */
export function indented(node: Node, indent = ''): string {
  const deeper = `${indent}  `
  if (node.kind === 'object') {
    if (node.entries.length === 0) return '{}'
    const lines = node.entries.map(([key, value]) => `${deeper}${JSON.stringify(key)}: ${indented(value, deeper)}`)
    return `{\n${lines.join(',\n')}\n${indent}}`
  }
  if (node.kind === 'array') {
    if (node.items.every(item => item.kind !== 'object' && item.kind !== 'array')) {
      const line = `[${node.items.map(compact).join(', ')}]`
      if (line.length < 80) return line
    }
    if (node.items.length === 0) return '[]'
    return `[\n${node.items.map(item => deeper + indented(item, deeper)).join(',\n')}\n${indent}]`
  }
  return node.text
}
