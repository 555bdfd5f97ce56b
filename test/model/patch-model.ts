/** The effect of a patch on a document, in plain JavaScript. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

export interface Step {
  readonly key: string
  readonly isIndex: boolean
}

export type Change =
  | { readonly kind: 'set'; readonly value: Json }
  | { readonly kind: 'unset' }
  | { readonly kind: 'increment'; readonly by: number }
  | { readonly kind: 'append' | 'remove'; readonly value: Json }
  | { readonly kind: 'insert'; readonly at: number; readonly value: Json }
  | { readonly kind: 'rename'; readonly to: string }

export interface PlannedChange {
  readonly steps: readonly Step[]
  readonly change: Change
}

/** The document afterwards; undefined if the patch does not fit it. */
export function patchedModel(before: Json, changes: readonly PlannedChange[]): Json | undefined {
  const document = structuredClone(before)
  const takes = ({ change }: PlannedChange): boolean => change.kind === 'unset' || change.kind === 'rename'
  const adding = changes.filter(each => !takes(each)).sort(byPath)
  // Last elements first, so that those before them keep their index.
  const taking = changes.filter(takes).sort((a, b) => byPath(b, a))
  const ok = adding.every(each => add(document, each)) && taking.every(each => take(document, each))
  return ok ? document : undefined
}

function byPath(a: PlannedChange, b: PlannedChange): number {
  for (const [i, { key }] of a.steps.entries()) {
    const other = b.steps[i]?.key
    if (other === undefined) return 1
    if (key !== other) return isNumber(key) && isNumber(other) ? Number(key) - Number(other) : key < other ? -1 : 1
  }
  return -1
}

function isNumber(key: string): boolean {
  return /^\d+$/.test(key)
}

/** The target of a step; undefined if it does not exist. */
function placeOf(
  at: Json,
  { key, isIndex }: Step,
): { list: Json[]; index: number } | { object: Record<string, Json> } | undefined {
  if (Array.isArray(at)) return isNumber(key) ? { list: at, index: Number(key) } : undefined
  if (typeof at !== 'object' || at === null || isIndex) return undefined
  return { object: at }
}

function add(document: Json, { steps, change }: PlannedChange): boolean {
  let at = document
  for (const [i, step] of steps.entries()) {
    const place = placeOf(at, step)
    if (place === undefined) return false
    if ('list' in place && place.index > place.list.length) return false
    const old = 'list' in place ? place.list[place.index] : own(place.object, step.key)
    const next = steps[i + 1]
    const made = next === undefined ? changed(old ?? null, change) : (old ?? (next.isIndex ? [] : {}))
    if (made === undefined) return false
    if ('list' in place) place.list[place.index] = made
    else place.object[step.key] = made
    at = made
  }
  return true
}

function changed(old: Json, change: Change): Json | undefined {
  if (change.kind === 'set') return change.value
  if (change.kind === 'increment')
    return old === null ? change.by : typeof old === 'number' ? old + change.by : undefined
  const list = old === null ? [] : old
  if (!Array.isArray(list)) return undefined
  if (change.kind === 'append') return [...list, change.value]
  if (change.kind === 'remove') return list.filter(item => JSON.stringify(item) !== JSON.stringify(change.value))
  if (change.kind === 'insert' && change.at <= list.length) return list.toSpliced(change.at, 0, change.value)
  return undefined
}

function take(document: Json, { steps, change }: PlannedChange): boolean {
  let at = document
  for (const [i, step] of steps.entries()) {
    const place = placeOf(at, step)
    if (place === undefined) return false
    const old = 'list' in place ? place.list[place.index] : own(place.object, step.key)
    if (i === steps.length - 1) {
      if (change.kind === 'rename' && 'list' in place) return false
      if (old === undefined) return true
      if ('list' in place) place.list.splice(place.index, 1)
      else delete place.object[step.key]
      if (change.kind === 'rename' && 'object' in place) place.object[change.to] = old
      return true
    }
    if (old === undefined || old === null) return true
    at = old
  }
  return true
}

function own(object: Record<string, Json>, key: string): Json | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined
}
