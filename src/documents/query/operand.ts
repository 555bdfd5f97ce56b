/**
 * Operands: the values that fields are compared with, and the parameters they become. The operand decides how a field is
 * read: as text for a text, as a number for a number.
 *
 * In a compiled query an operand is a placeholder: only its kind is known when the statement is written, and its value is
 * bound with each run.
 */
import { isRillflowError } from '../../core/errors.ts'
import { encodeJson } from '../../core/json.ts'
import { textFault } from '../../core/name.ts'
import { literal } from '../../database/sql.ts'
import { InvalidQuery } from '../errors.ts'

/** How a field is read. A Date is the text that JSON makes of it. */
export type Kind = 'text' | 'number' | 'boolean'

export type OperandKind = Kind | 'null' | 'json'

/** The operands that a field of type `T` can be equal to. */
export type Operand<T> = unknown extends T
  ? unknown
  : T extends null | undefined
    ? null
    : T extends Date
      ? Date | string
      : T extends string
        ? string extends T
          ? string | Date
          : T
        : T extends number
          ? number extends T
            ? number | bigint
            : T
          : T

/** The operands that a field of type `T` can be greater or less than. */
export type Comparable<T> = unknown extends T
  ? string | number | number | Date
  : Exclude<Operand<Extract<T, string | number | Date>>, null>

/** Text, for fields that hold text. */
export type Text<T> = unknown extends T ? string : [Extract<T, string | Date>] extends [never] ? never : string

/** Stands for an argument of a compiled query. It can only be passed on: its value differs from run to run. */
export class Placeholder {
  readonly index: number
  readonly sample: unknown
  constructor(index: number, sample: unknown) {
    this.index = index
    this.sample = sample
  }
  [Symbol.toPrimitive](): never {
    throw new InvalidQuery({ reason: 'an argument of a compiled query can only be passed on to operators' })
  }
}

/** Whether an operand is, or holds, a placeholder. */
export function isOpen(operand: unknown): boolean {
  if (typeof operand !== 'object' || operand === null || operand instanceof Date) return false
  return operand instanceof Placeholder || Object.values(operand).some(isOpen)
}

/** The operand with arguments for its placeholders; by default those it was made with. */
export function filled(operand: unknown, args?: readonly unknown[]): unknown {
  if (!isOpen(operand)) return operand
  if (operand instanceof Placeholder) return args === undefined ? operand.sample : args[operand.index]
  if (Array.isArray(operand)) return operand.map(each => filled(each, args))
  return Object.fromEntries(Object.entries(operand as object).map(([key, each]) => [key, filled(each, args)]))
}

/** The kinds of the arguments, on which the statement depends. */
export function signatureOf(args: readonly unknown[]): string {
  return args.map(each => (Array.isArray(each) ? `[${[...kindsIn(each)].sort().join('|')}]` : kindOf(each))).join()
}

/** The kinds in a list. */
export function kindsIn(list: readonly unknown[]): Set<OperandKind> {
  return new Set(list.map(kindOf))
}

export function kindOf(operand: unknown): OperandKind {
  switch (typeof operand) {
    case 'string':
      return 'text'
    case 'number':
    case 'bigint':
      return 'number'
    case 'boolean':
      return 'boolean'
    case 'object':
      if (operand === null) return 'null'
      return operand instanceof Date ? 'text' : 'json'
    default:
      throw new InvalidQuery({ reason: `an operand is ${typeof operand}; to find missing fields, use isNull` })
  }
}

export function textOf(operand: unknown): string {
  if (operand instanceof Date) return dateText(operand)
  const text = operand as string
  const fault = textFault(text)
  if (fault !== undefined) throw new InvalidQuery({ reason: `an operand ${fault}, which no document can hold` })
  return text
}

/** Years of four digits only: others do not sort as text. */
export function dateText(date: Date): string {
  const year = date.getUTCFullYear()
  if (Number.isNaN(year) || year < 0 || year > 9999)
    throw new InvalidQuery({ reason: 'an operand is an invalid Date, or one outside of the years 0 to 9999' })
  return date.toISOString()
}

export function numberText(operand: unknown): string {
  if (typeof operand === 'number' && !Number.isFinite(operand))
    throw new InvalidQuery({ reason: `an operand is ${operand}, which no document can hold` })
  return String(operand)
}

export function jsonText(operand: unknown): string {
  try {
    return encodeJson(operand, { what: 'operand', root: 'operand', maxBytes: 1024 * 1024 }).text
  } catch (error) {
    if (!isRillflowError(error, 'invalid_event')) throw error
    const { path, reason } = error as unknown as { path: string; reason: string }
    throw new InvalidQuery({ reason: `${path} ${reason}` }, error)
  }
}

export interface Binder {
  /** The SQL of an operand; `make` checks it and returns the value to send. */
  bind(operand: unknown, type: ParameterType, make: (operand: unknown) => unknown): string
  /** Limits the time of the statement. */
  limit?(budgetMs: number): void
}

export type ParameterType =
  | 'text'
  | 'numeric'
  | 'boolean'
  | 'jsonb'
  | 'timestamptz'
  | 'bigint'
  | 'double precision'
  | 'uuid'
  | 'text[]'
  | 'numeric[]'

/** A parameter that depends on the arguments of a compiled query. */
export interface Slot {
  readonly position: number
  readonly make: (args: readonly unknown[]) => unknown
}

export class Parameters implements Binder {
  readonly values: unknown[] = []
  readonly slots: Slot[] = []
  /** The least of the limits of its conditions. */
  budgetMs: number | undefined

  limit(budgetMs: number): void {
    this.budgetMs = Math.min(budgetMs, this.budgetMs ?? budgetMs)
  }

  bind(operand: unknown, type: ParameterType, make: (operand: unknown) => unknown): string {
    if (isOpen(operand)) this.slots.push({ position: this.values.length, make: args => make(filled(operand, args)) })
    return `$${this.values.push(make(filled(operand)))}::${type}`
  }
}

/** Values as literals, for the text of an index, which takes no parameters. */
export const literals: Binder = {
  bind(operand, type, make) {
    const value = make(operand)
    if (!Array.isArray(value)) return `${literal(String(value))}::${type}`
    if (value.length === 0) throw new InvalidQuery({ reason: 'the condition of an index has an empty list' })
    return `array[${value.map(each => literal(String(each))).join()}]::${type}`
  },
}
