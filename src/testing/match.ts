/**
 * Comparing values as JSON, with the matchers of test runners among the expected ones: `expect.any(String)`,
 * `expect.objectContaining({ … })`, `expect.stringMatching(/…/)`. They are known by their method `asymmetricMatch`, so no
 * test runner is imported. Errors that a specification expects are compared here, too.
 */
import { isDeepStrictEqual } from 'node:util'

interface Matcher {
  asymmetricMatch(actual: unknown): boolean
}

function isMatcher(value: unknown): value is Matcher {
  return (
    typeof value === 'object' && value !== null && typeof (value as Partial<Matcher>).asymmetricMatch === 'function'
  )
}

/** Whether the value is as expected, at every depth. */
export function fits(expected: unknown, actual: unknown): boolean {
  if (isMatcher(expected)) return expected.asymmetricMatch(actual)
  if (!isPlain(expected) || !isPlain(actual)) return isDeepStrictEqual(expected, actual)
  if (Array.isArray(expected) !== Array.isArray(actual)) return false
  const keys = new Set([...Object.keys(expected), ...Object.keys(actual)])
  return [...keys].every(key => Object.hasOwn(expected, key) === Object.hasOwn(actual, key) && at(key))

  function at(key: string): boolean {
    return fits((expected as Record<string, unknown>)[key], (actual as Record<string, unknown>)[key])
  }
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return Array.isArray(value) || prototype === Object.prototype || prototype === null
}

/** The value as it is read back from JSON; matchers stay. */
export function asJson(value: unknown): unknown {
  if (isMatcher(value)) return value
  if (typeof value !== 'object' || value === null || typeof (value as { toJSON?: unknown }).toJSON === 'function')
    return value === undefined ? undefined : (JSON.parse(JSON.stringify(value) ?? 'null') as unknown)
  if (Array.isArray(value)) return value.map(each => asJson(each) ?? null)
  const entries = Object.entries(value).map(([key, each]) => [key, asJson(each)] as const)
  return Object.fromEntries(entries.filter(([, each]) => each !== undefined))
}

/** An error by its class, by a pattern of its message, or by its name and message. */
export type ExpectedError = (abstract new (...given: never[]) => Error) | RegExp | Error

export function isExpectedError(expected: unknown): expected is ExpectedError {
  if (expected instanceof RegExp || expected instanceof Error) return true
  return typeof expected === 'function'
}

export function isMatch(expected: ExpectedError, error: unknown): boolean {
  if (error === undefined) return false
  if (expected instanceof RegExp) return expected.test(error instanceof Error ? error.message : String(error))
  if (expected instanceof Error)
    return error instanceof Error && error.name === expected.name && error.message === expected.message
  return error instanceof expected
}
