/**
 * Definitions: the parts of a store that a program describes before it opens one. Every `define…` function returns a
 * frozen object that knows its kind, its name, its types and its code, and no store. `openStore` and `store.register`
 * take them by kind.
 */
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
