/** Options that count something. */
import { InvalidOption } from './errors.ts'

/** Positions and counters of the database end here, so that none is ever inexact in JavaScript. */
export const maxPosition: number = Number.MAX_SAFE_INTEGER

/** Refuses what is not a whole number within its bounds; by default they are those of the database's `integer`. */
export function checkWhole(option: string, value: number, least: number, most: number = 2 ** 31 - 1): void {
  if (!Number.isSafeInteger(value) || value < least || value > most)
    throw new InvalidOption({ option, reason: `must be a whole number from ${least} to ${most}, not ${String(value)}` })
}
