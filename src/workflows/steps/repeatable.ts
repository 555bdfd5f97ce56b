/** Values that are the same in every run of one execution. */
import { createHash } from 'node:crypto'
import { derivedId } from '../../core/derived-id.ts'

export interface Repeatable {
  /** The time at which the last step or wait ended, or the execution began: the same whenever the handler is run again. */
  now(): Date
  uuid(): string
  /** From 0 up to, but not including, 1. */
  random(): number
}

/**
 * Drawn values are numbered anew after each end that the handler hears of (`turn`): what a step draws for itself, and does not
 * draw when it is remembered, leaves those after it as they were.
 */
export function repeatable(executionId: string, now: () => Date, turn: () => number = () => 0): Repeatable {
  let drawnIn = 0
  let drawn = 0
  const next = (what: string): string => {
    if (turn() !== drawnIn) drawn = 0
    drawnIn = turn()
    return `${executionId} ${what} ${drawnIn}.${++drawn}`
  }
  return {
    now: () => new Date(now()),
    uuid: () => derivedId(now(), next('uuid')),
    random: () => createHash('sha256').update(next('random')).digest().readUIntBE(0, 6) / 2 ** 48,
  }
}
