/** What a collection declares that makes queries quick, as the statements need to know it. */
import { pathKey, placeKey } from './expression.ts'
import type { Place } from './field.ts'
import type { Kind } from './operand.ts'
import type { SearchFields } from './search.ts'

export interface Layout {
  /** Generated columns, by what they hold. */
  readonly columns: ReadonlyMap<string, string>
  /** What ordered indexes are on. */
  readonly ordered: ReadonlySet<string>
  /** Paths with an index on what they contain; the whole body is the empty path. */
  readonly containing: ReadonlySet<string>
  readonly search: SearchFields
}

export function columnFor({ columns }: Layout, place: Pick<Place, 'path'>, kind: Kind): string | undefined {
  return columns.get(placeKey({ path: place.path }, kind))
}

export function isOrdered({ ordered }: Layout, place: Pick<Place, 'path' | 'isLower'>, kind: Kind): boolean {
  return ordered.has(placeKey(place, kind))
}

export function hasContaining({ containing }: Layout, path: readonly string[]): boolean {
  return containing.has(pathKey(path))
}
