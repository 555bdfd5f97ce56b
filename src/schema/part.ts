/**
 * A part of the schema: what one folder of the library keeps in the database, written in that folder.
 *
 *     events/schema.ts    ─┐
 *     consumers/schema.ts ─┼─► src/parts.ts ─► openSchema({ parts }) ─┬─ tables: together the baseline, migration 1
 *     workflows/schema.ts ─┘                                          └─ functions: each in its current text
 *
 * Tables change by numbered migrations once the baseline is released. Functions have no history: a changed one has a
 * new text and a higher revision.
 */
import type { SqlFunction } from './plpgsql.ts'

export interface Part {
  /** The folder. */
  readonly name: string
  /**
   * Sequences, tables, indexes and first rows, one statement each; `~events` is the schema's object of that name.
   */
  readonly tables: readonly string[]
  readonly functions: readonly SqlFunction[]
}

/**
 * A sequence whose numbers never repeat and are never inexact in JavaScript. Drawn one by one (cache 1), so that a
 * later draw gives a higher number, on whatever connection.
 */
export function sequence(name: string): string {
  return `create sequence ~${name}
  as bigint
  increment by 1
  minvalue 1
  maxvalue ${Number.MAX_SAFE_INTEGER}
  start with 1
  cache 1
  no cycle`
}
