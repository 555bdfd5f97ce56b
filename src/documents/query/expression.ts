/**
 * The SQL of a place in a document, read as text, as a number or as true or false.
 *
 * These expressions never fail: a value of another type, or a missing one, is null. They are immutable, so an index can have
 * the same text; text is compared by its bytes (collation "C"), whatever the collation of the database is.
 *
 * An entry of an index has room for 2700 bytes, so indexes hold only the beginning of a text (`short`), and a query compares
 * both: `short = …` finds the candidates, the whole text decides. Otherwise one long text would make a write fail.
 */
import { literal } from '../../database/sql.ts'
import type { MetaFields, Place } from './field.ts'
import type { Kind } from './operand.ts'

/** How many characters of a text an index holds: of four bytes each, five such texts fit into an entry. */
export const shortLength = 128

/** The columns that documents have next to their bodies, and their kinds. */
export const metaColumns: Readonly<Record<keyof MetaFields, { column: string; kind: Kind | 'time' }>> = {
  id: { column: 'id', kind: 'text' },
  version: { column: 'version', kind: 'number' },
  createdAt: { column: 'created_at', kind: 'time' },
  createdBy: { column: 'created_by', kind: 'text' },
  updatedAt: { column: 'updated_at', kind: 'time' },
  updatedBy: { column: 'updated_by', kind: 'text' },
  deletedAt: { column: 'deleted_at', kind: 'time' },
}

/** The JSON at a path below `base`. */
export function jsonAt(base: string, path: readonly string[]): string {
  if (path.length === 0) return base
  if (path.length === 1 && !isIndex(path[0]!)) return `${base} -> ${literal(path[0]!)}`
  return `${base} #> ${literal(arrayText(path))}`
}

/** The same as a typed value, in parentheses. The texts are cached, because the same few are needed again and again. */
export function typedAt(base: string, path: readonly string[], kind: Kind): string {
  const key = `${base} ${kind} ${pathKey(path)}`
  let text = typedTexts.get(key)
  if (text === undefined) {
    text = writeTyped(base, path, kind)
    if (typedTexts.size >= 1000) typedTexts.clear()
    typedTexts.set(key, text)
  }
  return text
}

const typedTexts = new Map<string, string>()

function writeTyped(base: string, path: readonly string[], kind: Kind): string {
  const json = jsonAt(base, path)
  if (kind === 'text') return `(case when jsonb_typeof(${json}) = 'string' then ${textAt(base, path)} end collate "C")`
  if (kind === 'number') return `(case when jsonb_typeof(${json}) = 'number' then (${json})::numeric end)`
  return `(case when jsonb_typeof(${json}) = 'boolean' then (${json})::boolean end)`
}

export function lowered(text: string): string {
  return `(lower(${text} collate "default") collate "C")`
}

export function short(text: string): string {
  return `left(${text}, ${shortLength})`
}

/** Whether a step of a path may be an index of an array: then the path cannot be written as a nested object. */
export function isIndex(step: string): boolean {
  const code = step.charCodeAt(0)
  return (code === 45 || (code >= 48 && code <= 57)) && /^-?\d+$/.test(step)
}

/** Identifies a place of a document. */
export function placeKey({ path, isLower }: Pick<Place, 'path' | 'isLower'>, kind: Kind): string {
  return `${kind}${isLower === true ? ' lower' : ''} ${pathKey(path)}`
}

/** Identifies a path: no name has a NUL in it. The number of steps keeps a document apart from its field ''. */
export function pathKey(path: readonly string[]): string {
  return `${path.length} ${path.join('\0')}`
}

function textAt(base: string, path: readonly string[]): string {
  if (path.length === 1 && !isIndex(path[0]!)) return `${base} ->> ${literal(path[0]!)}`
  return `${base} #>> ${literal(arrayText(path))}`
}

/** A text array as PostgreSQL writes it. */
function arrayText(path: readonly string[]): string {
  return `{${path.map(step => `"${step.replaceAll(/["\\]/g, '\\$&')}"`).join()}}`
}
