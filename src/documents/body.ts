/** The bodies of documents: checked and turned into text when they are written, upcast when they are read. */
import { type Awaitable, isPromise } from '../core/core.ts'
import { InvalidEvent, InvalidOption, isRillflowError } from '../core/errors.ts'
import { encodeJson, pathText } from '../core/json.ts'
import { checkName } from '../core/name.ts'
import { describe } from '../core/options.ts'
import { checkSchema, type SchemaIssue } from '../core/schema-check.ts'
import type { OpenCollection } from './collection.ts'
import { InvalidDocument, UpcastFailed } from './errors.ts'

/** The text of a body that may be stored; a promise only if the schema of the collection returns one. */
export function checkedBody(collection: OpenCollection, id: string, data: unknown): Awaitable<string> {
  const text = encodeBody(collection, id, data)
  const issues = schemaIssues(collection, data)
  if (isPromise(issues)) return issues.then(late => passed(late))
  return passed(issues)

  function passed(found: readonly SchemaIssue[]): string {
    if (found.length > 0) refuseIssues(collection, id, found)
    return text
  }
}

/** Throws `InvalidDocument` if a body that is stored now does not fit the schema of the collection. */
export async function checkStored(collection: OpenCollection, id: string, data: unknown): Promise<void> {
  const issues = await schemaIssues(collection, data)
  if (issues.length > 0) refuseIssues(collection, id, issues)
}

/** The text of a value inside a body, such as a patch sets. */
export function encodeValue(value: unknown, what: string, root: string, maxBytes: number): string {
  const { text } = encodeJson(value, { what, root, maxBytes })
  // Checked in the text first: hardly any text has it, and one that has it may have it as a value.
  if (text.includes('"__proto__"')) refusePrototype(JSON.parse(text), what, root)
  return text
}

export function maxBytesOf(collection: OpenCollection): number {
  return collection.parts.maxDocumentBytes ?? 16 * 1024 * 1024
}

/** A body in the shape that its readers expect. */
export function readBody(collection: OpenCollection, id: string, stored: unknown): unknown {
  const { upcast } = collection.options
  if (upcast === undefined) return stored
  try {
    const data: unknown = upcast(stored)
    if (typeof data !== 'object' || data === null || isPromise(data as object))
      throw new TypeError('The function must return the document, at once')
    return data
  } catch (cause) {
    throw new UpcastFailed({ collection: collection.name, id }, cause)
  }
}

export function checkId(id: unknown): string {
  return checkName('Document', id)
}

export function checkExpected(expected: unknown): number | undefined {
  if (expected === undefined || (Number.isSafeInteger(expected) && (expected as number) >= 1))
    return expected as number | undefined
  const reason = `The option "expected" is ${describe(expected)}. It must be a version: a whole number from 1 on.`
  throw new InvalidOption({ option: 'expected', reason })
}

export function checkUserId(userId: string | undefined): string | null {
  return userId === undefined ? null : checkName('User id', userId)
}

function encodeBody(collection: OpenCollection, id: string, data: unknown): string {
  const refuse = (path: string, reason: string, cause?: unknown): never => {
    throw new InvalidDocument({ collection: collection.name, id, path, reason }, cause)
  }
  if (typeof data !== 'object' || data === null || Array.isArray(data))
    return refuse(
      'data',
      `is ${Array.isArray(data) ? 'an array' : data === null ? 'null' : `a ${typeof data}`}, not an object`,
    )
  try {
    const text = encodeValue(data, 'document', 'data', maxBytesOf(collection))
    // The text of a Date, or of an object with a toJSON, may be something other than an object.
    return text.startsWith('{') ? text : refuse('data', 'is not an object as JSON')
  } catch (error) {
    if (!isRillflowError(error, 'invalid_event')) throw error
    const { path, reason } = error as unknown as { path: string; reason: string }
    return refuse(path, reason, error)
  }
}

function schemaIssues({ options }: OpenCollection, data: unknown): Awaitable<readonly SchemaIssue[]> {
  return options.schema === undefined ? [] : checkSchema(options.schema, data, 'data')
}

function refuseIssues(collection: OpenCollection, id: string, issues: readonly SchemaIssue[]): never {
  const [{ path, message }] = issues as [SchemaIssue]
  throw new InvalidDocument({ collection: collection.name, id, path, reason: `does not fit the schema: ${message}` })
}

/** A body with such a key pollutes prototypes when it is merged into another object. */
function refusePrototype(value: unknown, what: string, root: string, keys: PropertyKey[] = []): void {
  if (typeof value !== 'object' || value === null) return
  for (const key of Object.keys(value)) {
    const path = [...keys, Array.isArray(value) ? Number(key) : key]
    if (key === '__proto__')
      throw new InvalidEvent({ type: what, path: pathText(root, path), reason: 'is not allowed' })
    refusePrototype((value as Record<string, unknown>)[key], what, root, path)
  }
}
