/**
 * Text that PostgreSQL can store. It refuses a NUL only after the statement was sent, and the driver replaces half of a
 * character (an unpaired surrogate) by another one without a word. So both are refused here, in the text and the values of every statement.
 */
import { InvalidText } from './errors.ts'

export function refuseUnstorable(statement: string, text: string, values: readonly unknown[]): void {
  // Names that callers chose are quoted in the text itself.
  const inText = faultOf(text)
  if (inText !== undefined) throw new InvalidText({ statement, parameter: 0, reason: inText })
  for (const [at, value] of values.entries()) {
    const fault = faultOf(value)
    if (fault !== undefined) throw new InvalidText({ statement, parameter: at + 1, reason: fault })
  }
}

function faultOf(value: unknown): string | undefined {
  if (typeof value === 'string') return textFaultOf(value)
  if (!Array.isArray(value)) return undefined
  for (const each of value) {
    const fault = faultOf(each)
    if (fault !== undefined) return fault
  }
  return undefined
}

/** Why a text cannot be stored; undefined if it can. */
export function textFaultOf(text: string): string | undefined {
  if (text.includes('\0')) return 'contains a NUL character'
  return (text as WellFormed).isWellFormed() ? undefined : 'contains half of a character (an unpaired surrogate)'
}

/** Of Node 20 and newer. */
type WellFormed = string & { isWellFormed(): boolean }
