/** Errors that a specification expects. */

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
