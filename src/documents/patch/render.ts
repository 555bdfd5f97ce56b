/**
 * A patch as SQL: an expression for the new body, and conditions under which the patch fits.
 *
 * Every value is read from the old body, by its full path, so the text grows with the number of fields only. Paths,
 * keys and values are bind parameters: patches of one shape share one prepared statement, whatever their keys. No part
 * of the expression can raise an error; the conditions find the fields that do not fit.
 */
import type { PatchNode } from './tree.ts'

export interface PatchSql {
  /** The new body. */
  readonly body: string
  /** Each must hold, or the patch does not fit the document. */
  readonly conditions: readonly PatchCondition[]
}

export interface PatchCondition {
  readonly path: string
  readonly reason: string
  readonly sql: string
}

/** `source` is SQL for the old body; `bind` takes a value and returns its placeholder. */
export function renderPatch(root: PatchNode, source: string, bind: (value: unknown) => string): PatchSql {
  const conditions: PatchCondition[] = []
  const demand = (at: PatchNode, sql: string, reason: string): void =>
    void conditions.push({ path: at.said, sql, reason })

  const body = renderNode(root)
  return { body, conditions }

  function renderNode(at: PatchNode): string {
    if (at.leaf?.kind === 'set') return `${bind(at.leaf.value)}::jsonb`
    const here = at.path.length === 0 ? source : `(${source} #> ${bind(at.path)}::text[])`
    if (at.leaf !== undefined) return renderLeaf(at, here)
    const kind = `coalesce(jsonb_typeof(${here}), 'null')`
    const value = renderBranch(at, here, kind)
    return onlyRemoves(at) ? `case when ${kind} = 'null' then 'null'::jsonb else ${value} end` : value
  }

  function renderBranch(at: PatchNode, here: string, kind: string): string {
    if (at.elements === 'all') {
      demand(at, `${kind} in ('array', 'null')`, 'is not an array')
      return renderElements(at, here, kind, renderNode)
    }
    if (at.elements === 'none') {
      if (!at.overwrites && at.path.length > 0) demand(at, `${kind} in ('object', 'null')`, 'is not an object')
      return renderKeys(at, here, kind, renderNode)
    }
    demand(at, `${kind} in ('object', 'array', 'null')`, 'is neither an object nor an array')
    // The children are rendered once and named in both branches: otherwise the text would double with each level.
    const columns: string[] = []
    const names = new Map<PatchNode, string>()
    for (const child of at.children.values())
      if (!isRemoved(child)) names.set(child, `c.v${columns.push(`${renderNode(child)} as v${columns.length}`) - 1}`)
    const named = (child: PatchNode): string => names.get(child)!
    const branches = `case when ${kind} = 'array' then ${renderElements(at, here, kind, named)}
      else ${renderKeys(at, here, kind, named)} end`
    return columns.length === 0 ? branches : `(select ${branches} from (select ${columns.join(', ')} offset 0) as c)`
  }

  function renderKeys(at: PatchNode, here: string, kind: string, value: (child: PatchNode) => string): string {
    const children = [...at.children]
    const gone = children.filter(([, child]) => isRemoved(child)).map(([key]) => key)
    const rest = `case when ${kind} = 'object' then ${here} else '{}'::jsonb end`
    const parts = [gone.length === 0 ? rest : `(${rest} - ${bind(gone)}::text[])`]
    const made = children.filter(([, child]) => !isRemoved(child) && !onlyRemoves(child))
    for (let i = 0; i < made.length; i += maxPairs) {
      const pairs = made.slice(i, i + maxPairs).map(([key, child]) => `${bind(key)}::text, ${value(child)}`)
      parts.push(`jsonb_build_object(${pairs.join(', ')})`)
    }
    for (const [key, child] of children) {
      const { leaf, path } = child
      if (leaf?.kind !== 'rename' && !onlyRemoves(child)) continue
      const old = `(${source} #> ${bind(path)}::text[])`
      const [name, left] = leaf?.kind === 'rename' ? [leaf.to, old] : [key, value(child)]
      parts.push(`case when ${old} is null then '{}'::jsonb else jsonb_build_object(${bind(name)}::text, ${left}) end`)
    }
    return joinedParts(parts)
  }

  function renderElements(at: PatchNode, here: string, kind: string, value: (child: PatchNode) => string): string {
    const old = `case when ${kind} = 'array' then ${here} else '[]'::jsonb end`
    const children = [...at.children].map(([key, child]) => ({ index: Number(key), child }))
    const set = children.filter(({ child }) => !isRemoved(child)).sort((a, b) => a.index - b.index)
    const gone = children.filter(({ child }) => isRemoved(child)).map(({ index }) => index)
    const adding = set.filter(({ child }) => !onlyRemoves(child))
    let first = -1
    for (const [n, { index, child }] of adding.entries()) {
      if (adding[n - 1]?.index !== index - 1) first = index
      // An element may be added right after the last one, and the next one after that.
      const fits = `jsonb_array_length(${old}) >= ${bind(first)}::integer`
      demand(child, at.elements === 'all' ? fits : `(${kind} <> 'array' or ${fits})`, 'is beyond the end of the array')
    }
    const cases = set.map(({ index, child }) => `when n = ${bind(index)}::integer then ${value(child)}`)
    const element = cases.length === 0 ? '(o.old -> n)' : `case ${cases.join(' ')} else (o.old -> n) end`
    const length = `greatest(jsonb_array_length(o.old), ${bind((adding.at(-1)?.index ?? -1) + 1)}::integer)`
    return `(select coalesce(jsonb_agg(${element} order by n) filter (where n <> all(${bind(gone)}::integer[])), '[]'::jsonb)
      from (select ${old} as old offset 0) as o, generate_series(0, ${length} - 1) as n)`
  }

  function renderLeaf(at: PatchNode, here: string): string {
    const leaf = at.leaf!
    const kind = `coalesce(jsonb_typeof(${here}), 'null')`
    const list = `case when ${kind} = 'array' then ${here} else '[]'::jsonb end`
    switch (leaf.kind) {
      case 'increment':
        demand(at, `${kind} in ('number', 'null')`, 'is not a number')
        return `to_jsonb(case when ${kind} = 'number' then (${here} #>> '{}')::numeric else 0 end + ${bind(leaf.by)}::numeric)`
      case 'append':
        demand(at, `${kind} in ('array', 'null')`, 'is not an array')
        return `(${list} || ${bind(leaf.values)}::jsonb)`
      case 'insert': {
        demand(at, `${kind} in ('array', 'null')`, 'is not an array')
        const place = bind(leaf.at)
        demand(at, `jsonb_array_length(${list}) >= ${place}::integer`, `has no place ${leaf.at} to insert at`)
        const side = (comparison: string): string =>
          `coalesce((select jsonb_agg(v order by n) from jsonb_array_elements(${list}) with ordinality as e(v, n)
            where n ${comparison} ${place}::integer), '[]'::jsonb)`
        return `(${side('<=')} || ${bind(leaf.values)}::jsonb || ${side('>')})`
      }
      case 'remove':
        demand(at, `${kind} in ('array', 'null')`, 'is not an array')
        return `coalesce((select jsonb_agg(v order by n) from jsonb_array_elements(${list}) with ordinality as e(v, n)
          where not exists (select from jsonb_array_elements(${bind(leaf.values)}::jsonb) as r(v) where r.v = e.v)), '[]'::jsonb)`
      default:
        throw new TypeError(`${leaf.kind} is done where its parent is`)
    }
  }
}

/** Whether the field is removed, or renamed. */
function isRemoved({ leaf }: PatchNode): boolean {
  return leaf?.kind === 'unset' || leaf?.kind === 'rename'
}

/** Whether all operations below only remove something: then missing parents are not made for them. */
function onlyRemoves({ leaf, children, overwrites }: PatchNode): boolean {
  if (leaf !== undefined || overwrites) return false
  return [...children.values()].every(child => isRemoved(child) || onlyRemoves(child))
}

/** As a tree, because a chain of some hundred operators would be as many levels deep. */
function joinedParts(parts: readonly string[]): string {
  if (parts.length === 1) return `(${parts[0]})`
  const middle = parts.length >> 1
  return `(${joinedParts(parts.slice(0, middle))} || ${joinedParts(parts.slice(middle))})`
}

/** A function of PostgreSQL takes at most 100 arguments. */
const maxPairs = 40
