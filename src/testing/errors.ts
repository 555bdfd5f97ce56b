/** The errors of tests. A test runner that shows differences finds the two sides in `expected` and `actual`. */
import { inspect } from 'node:util'
import { defineError, type ErrorKind } from '../core/errors.ts'

/** An expectation of a specification was not met; both sides are in the message. */
export const SpecificationFailed: ErrorKind<
  'specification_failed',
  { what: string; expected: unknown; actual: unknown }
> = defineError('specification_failed', d => `${d.what}: expected\n${shown(d.expected)}\nbut got\n${shown(d.actual)}`)

/** A projection did not reach the end of the log in time. */
export const NotSettled: ErrorKind<'not_settled', { consumer: string; reason: string }> = defineError(
  'not_settled',
  d => `Projection "${d.consumer}" has not reached the end of the log: it ${d.reason}.`,
)

/** A process that was killed at a point made the workflow end in another way; `line` is the code that made the difference. */
export const CrashChangesOutcome: ErrorKind<
  'crash_changes_outcome',
  {
    /** The first thing that differs. */
    what: string
    /** The line of your code that made it. */
    line: string | undefined
    /** Where the process was killed: `before step "charge-card"`. */
    point: string
    handler: string
    /** The line of that call. */
    pointLine: string | undefined
    expected: unknown
    actual: unknown
  }
> = defineError(
  'crash_changes_outcome',
  ({ what, line, point, handler, pointLine }) =>
    `A process that is killed ${point} of handler "${handler}"${at(pointLine)} changes the outcome: ${what}${at(line)}. Give each effect outside of the store an idempotency key, and take time and chance from the context.`,
)

function at(line: string | undefined): string {
  return line === undefined ? '' : ` (${line})`
}

function shown(value: unknown): string {
  const text = value instanceof Error ? `${value.name}: ${value.message}` : inspect(value, { depth: 8, sorted: true })
  return text.replaceAll(/^/gm, '  ')
}
