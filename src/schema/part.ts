/**
 * A part of the schema: the tables and functions of one folder of the library, written in that folder.
 *
 *     events/schema.ts    ─┐                                 ┌─ tables: together the baseline, migration 1
 *     consumers/schema.ts ─┼─► src/parts.ts ─► library ─┤
 *     workflows/schema.ts ─┘                                 └─ functions: each in its current text
 *
 * Tables change by numbered migrations once the baseline is released. Functions have no history: a changed one has a
 * new text and a higher revision.
 */
import { type Identifier, identifier } from '../database/sql.ts'
import { clock } from './clock.sql.ts'
import { immutableFunctions } from './immutable.sql.ts'
import type { Migration } from './migration.ts'
import { baseline } from './migrations/0001-baseline.ts'
import type { SqlFunction } from './plpgsql.ts'

export interface Part {
  /** The folder. */
  readonly name: string
  /**
   * Sequences, tables, indexes and first rows, one statement each; `~orders` is the schema's object of that name.
   */
  readonly tables: readonly string[]
  readonly functions: readonly SqlFunction[]
  /** Tables that others refer to: an empty one must not take the place of one that was dropped. */
  readonly referred?: readonly string[] | undefined
  /** The sequences whose numbers are stored in a column: none of them may be behind it. */
  readonly drawn?: readonly Drawn[] | undefined
}

export interface Drawn {
  readonly sequence: string
  readonly table: string
  readonly column: string
}

/** All that a version of the library makes in a schema, and expects to be there. */
export interface Library {
  readonly migrations: readonly Migration[]
  readonly functions: readonly SqlFunction[]
  readonly drawn: readonly Drawn[]
  readonly referred: readonly string[]
}

/** All migrations, in the order they run. A new one goes to the end; one that was released never changes. */
export function libraryOf(parts: readonly Part[]): Library {
  return {
    migrations: [baseline(parts)],
    functions: [clock, ...immutableFunctions, ...parts.flatMap(part => part.functions)],
    drawn: parts.flatMap(part => part.drawn ?? []),
    referred: parts.flatMap(part => part.referred ?? []),
  }
}

/** The objects of one folder, quoted with the schema of a store. */
export type Names<Name extends string> = Readonly<Record<Name, Identifier>>

export type NamesOf<Name extends string> = (store: { readonly schema: string }) => Names<Name>

/**
 * The names of a folder's objects, for its statements: `consumerNames(log).dead_letters`. They stand in the folder's
 * `schema.ts` and nowhere else, so that a statement on a table of another folder is seen as an import.
 */
export function namesOf<Name extends string>(objects: readonly Name[]): NamesOf<Name> {
  // Weak, so it lives as long as the log and no longer.
  const known = new WeakMap<object, Names<Name>>()
  return store => {
    let names = known.get(store)
    if (names === undefined) {
      const entries = objects.map(object => [object, identifier(store.schema, object)])
      names = Object.fromEntries(entries) as Names<Name>
      known.set(store, names)
    }
    return names
  }
}

/**
 * A source of numbers: in a schema with announced numbers a sequence, in one with counters a row (`renderMigration`).
 *
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
