/** A statement as PostgreSQL's own parser sees it, in one kind of node, so that the rules can look at it from anywhere. */
import { loadModule, parsePlPgSQLSync, parseSync } from 'libpg-query'

export interface Node {
  /** As PostgreSQL calls it, `FuncCall`; a part that has no name of its own is called like its field. */
  readonly type: string
  /** The field of its parent that it stands in. */
  readonly field: string
  readonly raw: Record<string, unknown>
  readonly children: readonly Node[]
}

await loadModule()

/** One node for each statement in the text. */
export function parseStatements(text: string): Node[] {
  return (parseSync(text).stmts ?? []).map(({ stmt }) => toNode('Statement', '', stmt as Record<string, unknown>))
}

/** The statements and expressions inside of a function in plpgsql. */
export function parseBody(definition: string): Node[] {
  const queries: { query: string; parseMode: number }[] = []
  const look = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return
    const expression = (value as { PLpgSQL_expr?: { query: string; parseMode: number } }).PLpgSQL_expr
    if (expression !== undefined) queries.push(expression)
    else for (const inner of Object.values(value)) look(inner)
  }
  look(parsePlPgSQLSync(definition))
  return queries.flatMap(({ query, parseMode }) => {
    if (parseMode === 0) return parseStatements(query)
    const isAssignment = parseMode > 2
    return parseStatements(`select ${isAssignment ? query.replace(/^.*?:?=/s, '') : query}`)
  })
}

/** The node and everything in it. */
export function everything(node: Node): readonly Node[] {
  const known = gathered.get(node)
  if (known !== undefined) return known
  const all: Node[] = []
  const gather = (each: Node): void => {
    all.push(each)
    for (const child of each.children) gather(child)
  }
  gather(node)
  gathered.set(node, all)
  return all
}

/** Every rule looks at the whole statement. */
const gathered = new WeakMap<Node, readonly Node[]>()

export function allOf(node: Node, ...types: readonly string[]): Node[] {
  return everything(node).filter(({ type }) => types.includes(type))
}

/** The parts of the node that stand in one of its fields. */
export function inField(node: Node, field: string): Node[] {
  return node.children.filter(child => child.field === field)
}

/** A name of one or more parts: `["pg_catalog", "now"]`. */
export function namesIn(node: Node, field: string): string[] {
  return inField(node, field).flatMap(part => (part.type === 'String' ? [String(part.raw.sval)] : []))
}

function toNode(type: string, field: string, raw: Record<string, unknown>): Node {
  const children: Node[] = []
  for (const [name, value] of Object.entries(raw))
    for (const each of [value].flat()) if (typeof each === 'object' && each !== null) children.push(childOf(name, each))
  return { type, field, raw, children }
}

function childOf(field: string, value: object): Node {
  const [type, ...others] = Object.keys(value)
  const isNamed = type !== undefined && others.length === 0 && /^[A-Z]/.test(type)
  if (!isNamed) return toNode(unnamed[field] ?? field, field, value as Record<string, unknown>)
  return toNode(type, field, (value as Record<string, Record<string, unknown>>)[type]!)
}

/** Where the grammar allows only one kind of node it does not say which. */
const unnamed: Record<string, string> = { relation: 'RangeVar', typeName: 'TypeName' }
