/**
 * Definitions: the parts of a store that a program describes before it opens one. Every `define…` function returns a
 * frozen object that knows its kind, its name, its types and its code, and no store. `openStore` and `store.register`
 * take them by kind.
 */
import { InvalidOption } from './errors.ts'
import { describe } from './options.ts'

export type DefinitionKind =
  | 'aggregate'
  | 'collection'
  | 'projection'
  | 'processor'
  | 'subscription'
  | 'handler'
  | 'join'
  | 'undo'
  | 'schedule'
  | 'snapshotter'
  | 'upcaster'

export interface Definition<Kind extends DefinitionKind = DefinitionKind> {
  readonly kind: Kind
  readonly name: string
}

/** A parameter that takes a definition or its name. */
export type Named = string | { readonly name: string }

export function nameOf(named: Named): string {
  return typeof named === 'string' ? named : named.name
}

/** Refuses a call without a name or without its object, before anything is read from either. */
export function checkDefinition(call: string, name: unknown, definition: unknown): void {
  if (typeof name === 'string' && typeof definition === 'object' && definition !== null) return
  throw new InvalidOption({
    option: typeof name === 'string' ? 'definition' : 'name',
    reason: `${call} takes a name and one object: ${call}('name', { … }). It was given ${describe(name)} and ${describe(definition)}.`,
  })
}
