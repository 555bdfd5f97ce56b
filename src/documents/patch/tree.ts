/** The paths of a patch as a tree, so that their common parts are rendered once. */
import { isRillflowError } from '../../core/errors.ts'
import { textFault } from '../../core/name.ts'
import { encodeValue } from '../body.ts'
import { InvalidPatch } from '../errors.ts'
import { type Operate, operationOf } from './patch.ts'

export interface PatchNode {
  /** The path to this node, as PostgreSQL takes it. */
  readonly path: readonly string[]
  /** The path to this node, as it was written. */
  readonly said: string
  /** The operation at this node; undefined if there are operations below it. */
  leaf: Leaf | undefined
  readonly children: Map<string, PatchNode>
  /** Whether the children are elements of an array: certainly (brackets), perhaps (dots with digits) or not. */
  elements: 'all' | 'perhaps' | 'none'
  /** Whether a value here that is not an object is replaced by one: the rule of a merge patch. */
  readonly overwrites: boolean
}

/** An operation whose values are JSON text. */
export type Leaf =
  | { readonly kind: 'set'; readonly value: string }
  | { readonly kind: 'increment'; readonly by: number }
  | { readonly kind: 'append' | 'remove'; readonly values: string }
  | { readonly kind: 'insert'; readonly at: number; readonly values: string }
  | { readonly kind: 'unset' }
  | { readonly kind: 'rename'; readonly to: string }

export function treeOf(patch: object, maxBytes: number): PatchNode {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch))
    throw new InvalidPatch({ path: '', reason: 'a patch must be an object whose keys are paths' })
  const root = node([], '', false)
  const changes = Object.entries(patch)
  if (changes.length > maxChanges) refuseMany()
  for (const [path, value] of changes) {
    if (value === undefined) continue
    plant(root, path, encoded(operationOf(value), path, maxBytes))
  }
  return grown(root)
}

export function mergeTreeOf(patch: unknown, maxBytes: number): PatchNode {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch))
    throw new InvalidPatch({ path: '', reason: 'a merge patch of a document must be an object' })
  // Through JSON, so that the values are those that would be stored.
  const text = encodedText(patch, 'patch', maxBytes)
  const root = node([], '', true)
  spread(root, JSON.parse(text) as object)
  return grown(root)
}

function spread(into: PatchNode, patch: object): void {
  if (into.path.length >= maxDepth)
    throw new InvalidPatch({ path: into.said, reason: `it is deeper than ${maxDepth} levels` })
  for (const [key, value] of Object.entries(patch)) {
    const child = node([...into.path, key], into.said === '' ? key : `${into.said}.${key}`, true)
    into.children.set(key, child)
    if (value === null) child.leaf = { kind: 'unset' }
    else if (typeof value !== 'object' || Array.isArray(value))
      child.leaf = { kind: 'set', value: JSON.stringify(value) }
    else spread(child, value as object)
  }
}

/** Far more than a patch by hand has, and far fewer than a statement can have. */
const maxChanges = 1_000
/** The array is made anew with all its elements, so a far one is expensive. */
export const maxIndex = 100_000

function plant(root: PatchNode, path: string, leaf: Leaf): void {
  const segments = segmentsOf(path)
  let at = root
  for (const [i, { key, isIndex }] of segments.entries()) {
    if (at.leaf !== undefined) refuseOverlap(path, at.said)
    const elements = isIndex ? 'all' : isElement(key) ? 'perhaps' : 'none'
    if (at.children.size > 0 && at.elements !== elements && (at.elements === 'all' || elements === 'all'))
      throw new InvalidPatch({ path, reason: 'it names elements and keys of the same value' })
    at.elements = at.children.size > 0 && at.elements === 'none' ? 'none' : elements
    const said = segments
      .slice(0, i + 1)
      .map((each, n) => (each.isIndex ? `[${each.key}]` : n === 0 ? each.key : `.${each.key}`))
      .join('')
    const next: PatchNode = at.children.get(key) ?? node([...at.path, key], said, false)
    at.children.set(key, next)
    at = next
  }
  if (at.leaf !== undefined || at.children.size > 0) refuseOverlap(path, at.said)
  at.leaf = leaf
}

function grown(root: PatchNode): PatchNode {
  if (root.children.size === 0) throw new InvalidPatch({ path: '', reason: 'it has no changes' })
  if (root.elements === 'all') throw new InvalidPatch({ path: '', reason: 'a document is an object, not an array' })
  root.elements = 'none'
  if (countChanges(root) > maxChanges) refuseMany()
  refuseOverlappingNames(root)
  return root
}

function refuseMany(): never {
  const reason = `it has more than ${maxChanges} changes; set a whole value instead, or put the document`
  throw new InvalidPatch({ path: '', reason })
}

function countChanges({ leaf, children }: PatchNode): number {
  let changes = leaf === undefined ? 0 : 1
  for (const child of children.values()) changes += countChanges(child)
  return changes
}

/** A field must not be renamed to a name that the patch changes in another way. */
function refuseOverlappingNames(at: PatchNode): void {
  const targets = new Set<string>()
  for (const child of at.children.values()) {
    refuseOverlappingNames(child)
    if (child.leaf?.kind !== 'rename') continue
    const { to } = child.leaf
    if (at.elements === 'all')
      throw new InvalidPatch({ path: child.said, reason: 'an element of an array has no name' })
    if (at.children.has(to) || targets.has(to)) refuseOverlap(child.said, to)
    targets.add(to)
    at.elements = 'none'
  }
}

function node(path: readonly string[], said: string, overwrites: boolean): PatchNode {
  return { path, said, leaf: undefined, children: new Map(), elements: 'none', overwrites }
}

interface Segment {
  readonly key: string
  readonly isIndex: boolean
}

/** `lines[0].price` as its three parts. */
function segmentsOf(path: string): Segment[] {
  const segments = [...path.matchAll(/(?:^|(?!^)\.)([^.[\]]+)|\[(0|[1-9]\d{0,8})\]/g)]
  if (segments.map(match => match[0]).join('') !== path || segments.length === 0)
    throw new InvalidPatch({ path, reason: 'it is not a path: write keys with dots, and elements as [0]' })
  if (segments.length > maxDepth) throw new InvalidPatch({ path, reason: `it is deeper than ${maxDepth} levels` })
  return segments.map(([, key, index]) => {
    if (key !== undefined) checkKey(path, key)
    else if (!isElement(index!)) throw new InvalidPatch({ path, reason: `it names an element beyond [${maxIndex}]` })
    return { key: (key ?? index)!, isIndex: key === undefined }
  })
}

/** Whether a key may be the index of an element; a larger number is a key of an object. */
function isElement(key: string): boolean {
  return /^(0|[1-9]\d{0,8})$/.test(key) && Number(key) <= maxIndex
}

function checkKey(path: string, key: string): void {
  if (key === '__proto__') throw new InvalidPatch({ path, reason: 'the key "__proto__" is not allowed' })
  const fault = textFault(key)
  if (fault !== undefined) throw new InvalidPatch({ path, reason: fault })
}

const maxDepth = 50

function refuseOverlap(path: string, other: string): never {
  throw new InvalidPatch({ path, reason: `another change of this patch is at ${JSON.stringify(other)}` })
}

function encoded(operate: Operate, path: string, maxBytes: number): Leaf {
  switch (operate.kind) {
    case 'set':
      return { kind: 'set', value: encodedText(operate.value, path, maxBytes) }
    case 'append':
    case 'remove':
      return { kind: operate.kind, values: encodedText(operate.values, path, maxBytes) }
    case 'insert':
      return { ...operate, values: encodedText(operate.values, path, maxBytes) }
    case 'rename':
      if (typeof operate.to !== 'string' || operate.to === '')
        throw new InvalidPatch({ path, reason: 'the new name must not be empty' })
      checkKey(path, operate.to)
      return operate
    default:
      return operate
  }
}

function encodedText(value: unknown, path: string, maxBytes: number): string {
  try {
    return encodeValue(value, 'patch', path, maxBytes)
  } catch (error) {
    if (!isRillflowError(error, 'invalid_event')) throw error
    const { path: where, reason } = error as unknown as { path: string; reason: string }
    throw new InvalidPatch({ path: where, reason }, error)
  }
}
