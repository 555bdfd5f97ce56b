/** The differences between a schema and its target: steps that a sync takes, and problems that it leaves to people. */
export interface Difference {
  readonly steps: readonly Step[]
  readonly problems: readonly Problem[]
}

/** One statement that a sync runs. */
export interface Step {
  readonly kind: 'schema' | 'migration' | 'function' | 'table' | 'column' | 'index'
  /** The object that it makes: `table customers`. */
  readonly object: string
  readonly reason: string
  readonly sql: string
  /** True for one that cannot be part of a transaction. */
  readonly isAlone?: true
  /** True for one that writers of its table have to wait for: an index of rows that is not built while they write. */
  readonly locksWriters?: true
}

/** A difference that a sync does not repair. */
export interface Problem {
  readonly kind: ProblemKind
  readonly object: string
  readonly problem: string
  /** How to repair it. */
  readonly fix: string
}

export type ProblemKind =
  | `schema_${'missing' | 'newer'}`
  | `migration_${'pending' | 'changed'}`
  | `${'table' | 'column' | 'index' | 'sequence' | 'function'}_${'missing' | 'changed'}`
  | 'column_extra'
  | 'index_invalid'
  | 'primary_key_changed'
  | 'sequence_behind'
  | 'trigger'
  | 'rule'

export const nothing: Difference = { steps: [], problems: [] }

export function join(parts: readonly Difference[]): Difference {
  return { steps: parts.flatMap(part => part.steps), problems: parts.flatMap(part => part.problems) }
}

export function report(kind: ProblemKind, object: string, problem: string, fix: string): Problem {
  return { kind, object, problem, fix }
}

/** A difference that is one problem. */
export function problem(...given: Parameters<typeof report>): Difference {
  return { steps: [], problems: [report(...given)] }
}
