/** A statement as parsed by PostgreSQL's own parser, as nodes of one type, so that a rule can search it as a whole. */
import { loadModule, parsePlPgSQLSync, parseSync } from 'libpg-query'

export interface Node {
  /** PostgreSQL's name, such as `FuncCall`; a part without its own name is named like its field. */
  readonly type: string
  /** The field of its parent that contains it. */
  readonly field: string
  readonly raw: Record<string, unknown>
  readonly children: readonly Node[]
}

await loadModule()

/** One node for each statement in the text. */
export function parseStatements(text: string): Node[] {
  return (parseSync(text).stmts ?? []).map(({ stmt }) => toNode('Statement', '', stmt as Record<string, unknown>))
}

/** The statements and expressions inside a function in plpgsql. */
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

/** Cached, because every rule searches the whole statement. */
const gathered = new WeakMap<Node, readonly Node[]>()

export function allOf(node: Node, ...types: readonly string[]): Node[] {
  return everything(node).filter(({ type }) => types.includes(type))
}

/** The children of the node in one of its fields. */
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

/** If the grammar allows only one type of node, the parser does not name it. */
const unnamed: Record<string, string> = { relation: 'RangeVar', typeName: 'TypeName' }
