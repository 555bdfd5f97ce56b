/**
 * Asks any Standard Schema (zod, valibot, arktype…) whether a value fits.
 *
 * Only the question is asked. What a schema would make of the value (defaults, coercion, stripped keys) is thrown
 * away: an event is stored as it was said, so it reads back with the type it was written with.
 *
 * A schema that answers at once is answered for at once; only one that has to wait gives a promise.
 */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type Awaitable, isPromise } from './core.ts'
import { pathText } from './json.ts'

/** What is wrong with the value; nothing, if it fits. `root` is what the value is called in the paths. */
export function checkSchema(schema: StandardSchemaV1, value: unknown, root = ''): Awaitable<readonly SchemaIssue[]> {
  const result = schema['~standard'].validate(value)
  return isPromise(result) ? result.then(late => issuesOf(late, root)) : issuesOf(result, root)
}

export interface SchemaIssue {
  /** The place in the value, `items[3].price`; the root alone (by default '') if it is the value as a whole. */
  readonly path: string
  readonly message: string
}

const none: readonly SchemaIssue[] = []

function issuesOf(result: StandardSchemaV1.Result<unknown>, root: string): readonly SchemaIssue[] {
  if (result.issues === undefined) return none
  // Array.from, not map: arktype's path is a subclass of Array, and a mapped empty one comes out as [0].
  return Array.from(result.issues, ({ path = [], message }) => ({
    path: pathText(root, Array.from(path, keyOf)),
    message,
  }))
}

/** Libraries differ: zod and arktype give bare keys, valibot objects that hold one. */
function keyOf(segment: PropertyKey | StandardSchemaV1.PathSegment): PropertyKey {
  return typeof segment === 'object' ? segment.key : segment
}
