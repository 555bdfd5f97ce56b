/**
 * Checks a value with any Standard Schema (zod, valibot, arktype…).
 *
 * Only the issues count. The value that a schema returns (with defaults, coercion, stripped keys) is not used: an event is
 * stored as it was given, so it reads back with the type it was written with.
 *
 * A schema that answers at once gives an answer at once; only one that has to wait gives a promise.
 */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type Awaitable, isPromise } from './core.ts'
import { pathText } from './json.ts'

/** The issues of the value; none if it fits. `root` is the name of the value in the paths. */
export function checkSchema(schema: StandardSchemaV1, value: unknown, root = ''): Awaitable<readonly SchemaIssue[]> {
  const result = schema['~standard'].validate(value)
  return isPromise(result) ? result.then(late => issuesOf(late, root)) : issuesOf(result, root)
}

export interface SchemaIssue {
  /** The path in the value, `items[3].price`; the root alone (by default '') if it is the whole value. */
  readonly path: string
  readonly message: string
}

const none: readonly SchemaIssue[] = []

function issuesOf(result: StandardSchemaV1.Result<unknown>, root: string): readonly SchemaIssue[] {
  if (result.issues === undefined) return none
  // Array.from, not map: arktype's path is a subclass of Array, and mapping an empty one gives [0].
  return Array.from(result.issues, ({ path = [], message }) => ({
    path: pathText(root, Array.from(path, keyOf)),
    message,
  }))
}

/** Libraries differ: zod and arktype give keys, valibot gives objects that have one. */
function keyOf(segment: PropertyKey | StandardSchemaV1.PathSegment): PropertyKey {
  return typeof segment === 'object' ? segment.key : segment
}
