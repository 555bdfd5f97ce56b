/** The errors of tests. A test runner that shows differences finds the two sides in `expected` and `actual`. */
import { inspect } from 'node:util'
import { defineError, type ErrorKind } from '../core/errors.ts'

export const SpecificationFailed: ErrorKind<
  'specification_failed',
  { what: string; expected: unknown; actual: unknown }
> = defineError('specification_failed', d => `${d.what}: expected\n${shown(d.expected)}\nbut got\n${shown(d.actual)}`)

export const NotSettled: ErrorKind<'not_settled', { consumer: string; reason: string }> = defineError(
  'not_settled',
  d => `Projection "${d.consumer}" has not reached the end of the log: it ${d.reason}.`,
)

function shown(value: unknown): string {
  const text = value instanceof Error ? `${value.name}: ${value.message}` : inspect(value, { depth: 8, sorted: true })
  return text.replaceAll(/^/gm, '  ')
}
