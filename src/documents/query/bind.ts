/** The parameters of one statement: values that are known, and places for those of a compiled query. */

import { literal } from '../../database/sql.ts'
import { InvalidQuery } from './errors.ts'
import { filled, isOpen } from './operand.ts'

export interface Binder {
  /** The SQL of an operand; `make` checks it and turns it into what is sent. */
  bind(operand: unknown, type: ParameterType, make: (operand: unknown) => unknown): string
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

  bind(operand: unknown, type: ParameterType, make: (operand: unknown) => unknown): string {
    if (isOpen(operand)) this.slots.push({ position: this.values.length, make: args => make(filled(operand, args)) })
    return `$${this.values.push(make(filled(operand)))}::${type}`
  }
}

/** Values as they stand in the text of an index, which takes no parameters. */
export const literals: Binder = {
  bind(operand, type, make) {
    const value = make(operand)
    if (!Array.isArray(value)) return `${literal(String(value))}::${type}`
    if (value.length === 0) throw new InvalidQuery({ reason: 'the condition of an index has an empty list' })
    return `array[${value.map(each => literal(String(each))).join()}]::${type}`
  },
}
