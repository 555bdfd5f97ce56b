/**
 * The effect of a patch on a document in memory, for sessions: the same as that of the statement in `apply.ts`. Values are
 * set and added from the first path to the last; then fields and elements are removed, the last elements first, so that
 * those before them keep their index.
 */
import { canonicalJson } from '../../core/json.ts'
import type { Leaf, PatchNode } from './tree.ts'

type Container = Record<string, unknown> | unknown[]

interface Change {
  readonly steps: readonly { readonly key: string; readonly isIndex: boolean }[]
  readonly said: string
  readonly leaf: Leaf
}

/** A copy of the document with the patch applied; `refuse` is called with the place and the reason if it does not fit. */
export function patched(document: object, tree: PatchNode, refuse: (path: string, reason: string) => never): object {
  const copy = structuredClone(document)
  const changes = changesOf(tree, []).sort(byPath)
  for (const change of changes) if (!takesAway(change)) add(copy as Container, change, refuse)
  for (const change of changes.reverse()) if (takesAway(change)) take(copy as Container, change, refuse)
  return copy
}

function takesAway({ leaf }: Change): boolean {
  return leaf.kind === 'unset' || leaf.kind === 'rename'
}

function changesOf(node: PatchNode, steps: Change['steps']): Change[] {
  if (node.leaf !== undefined) return [{ steps, said: node.said, leaf: node.leaf }]
  const isIndex = node.elements === 'all'
  return [...node.children].flatMap(([key, child]) => changesOf(child, [...steps, { key, isIndex }]))
}

function byPath(a: Change, b: Change): number {
  for (const [at, { key }] of a.steps.entries()) {
    const other = b.steps[at]?.key
    if (other === undefined) return 1
    if (key !== other) return isNumber(key) && isNumber(other) ? Number(key) - Number(other) : key < other ? -1 : 1
  }
  return -1
}

function isNumber(key: string): boolean {
  return /^\d+$/.test(key)
}

function add(
  document: Container,
  { steps, said, leaf }: Change,
  refuse: (path: string, reason: string) => never,
): void {
  let at: unknown = document
  for (const [index, { key, isIndex }] of steps.entries()) {
    const next = steps[index + 1]
    if (!isContainer(at) || (Array.isArray(at) ? !isNumber(key) || Number(key) > at.length : isIndex))
      refuse(said, `has no place ${isIndex ? `[${key}]` : JSON.stringify(key)}`)
    const old = Object.hasOwn(at, key) ? (at as Record<string, unknown>)[key] : undefined
    const made = next === undefined ? changed(old ?? null, leaf, said, refuse) : (old ?? (next.isIndex ? [] : {}))
    ;(at as Record<string, unknown>)[key] = made
    at = made
  }
}

function changed(old: unknown, leaf: Leaf, said: string, refuse: (path: string, reason: string) => never): unknown {
  if (leaf.kind === 'set') return JSON.parse(leaf.value)
  if (leaf.kind === 'increment') {
    if (old !== null && typeof old !== 'number') refuse(said, 'is not a number')
    return Number(old ?? 0) + leaf.by
  }
  const list = old ?? []
  if (!Array.isArray(list)) refuse(said, 'is not an array')
  if (leaf.kind === 'append') return [...list, ...(JSON.parse(leaf.values) as unknown[])]
  if (leaf.kind === 'remove') {
    const removed = new Set((JSON.parse(leaf.values) as unknown[]).map(canonicalJson))
    return list.filter(item => !removed.has(canonicalJson(item)))
  }
  if (leaf.kind === 'insert') {
    if (leaf.at > list.length) refuse(said, `has only ${list.length} elements`)
    return [...list.slice(0, leaf.at), ...(JSON.parse(leaf.values) as unknown[]), ...list.slice(leaf.at)]
  }
  return old
}

function take(
  document: Container,
  { steps, said, leaf }: Change,
  refuse: (path: string, reason: string) => never,
): void {
  let at: unknown = document
  for (const [index, { key, isIndex }] of steps.entries()) {
    if (at === null || at === undefined) return
    if (!isContainer(at) || (Array.isArray(at) ? !isNumber(key) : isIndex))
      refuse(said, `has no place ${JSON.stringify(key)}`)
    const old = Object.hasOwn(at, key) ? (at as Record<string, unknown>)[key] : undefined
    if (index < steps.length - 1) {
      at = old
      continue
    }
    if (old === undefined) return
    if (Array.isArray(at)) at.splice(Number(key), 1)
    else {
      delete at[key]
      if (leaf.kind === 'rename') at[leaf.to] = old
    }
  }
}

function isContainer(value: unknown): value is Container {
  return typeof value === 'object' && value !== null
}
