/**
 * Options as users write them: one object. A misspelt name, or a number out of bounds, is found before anything is done
 * with it.
 */
import { InvalidOption } from './errors.ts'
import { nearestName } from './name.ts'

/**
 * Refuses an option that does not exist, and names the one that was probably meant. `what` names the thing that is
 * being defined or called: `Projection "sales"`.
 */
export function refuseUnknownOptions(what: string, given: object, known: readonly string[]): void {
  for (const option of Object.keys(given)) {
    if (known.includes(option)) continue
    const nearest = nearestName(option, known) ?? known.find(name => isBeginning(name, option))
    const hint = nearest === undefined ? `Its options are ${known.join(', ')}.` : `Did you mean "${nearest}"?`
    throw new InvalidOption({ option, reason: `${what} has no option "${option}". ${hint}` })
  }
}

/** The same for an option that is an object itself: `"backoff" of Handler "charge"`. Another value is not looked into. */
export function refuseUnknownInside(what: string, option: string, given: unknown, known: readonly string[]): void {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return
  refuseUnknownOptions(`"${option}" of ${what}`, given, known)
}

/** `expected` and `expectedVersion`. */
function isBeginning(one: string, other: string): boolean {
  return Math.min(one.length, other.length) >= 4 && (one.startsWith(other) || other.startsWith(one))
}

/** The names of the options of a call. The compiler sees to it that none is left out. */
export function optionNames<Options extends object>(names: Readonly<Record<keyof Options, true>>): readonly string[] {
  return Object.keys(names)
}

/** Where the options of a call are among its arguments, and their names. */
export type CallOptionNames = readonly [at: number, names: readonly string[]]

/**
 * The same calls, of which those in the list refuse options that do not exist: `{ put: [2, ['expected', 'tx']] }`. Each of
 * them returns a promise.
 */
export function refusingUnknownOptions<Calls extends object>(
  of: string,
  calls: Calls,
  known: { readonly [Name in keyof Calls]?: CallOptionNames },
): Calls {
  const guarded = Object.entries(known as Readonly<Record<string, CallOptionNames>>).map(([name, [at, names]]) => {
    const call = (calls as Readonly<Record<string, (...given: unknown[]) => unknown>>)[name]!
    return [
      name,
      (...given: unknown[]): unknown => {
        const options = given[at]
        try {
          if (typeof options === 'object' && options !== null) refuseUnknownOptions(`${of}.${name}`, options, names)
        } catch (error) {
          return Promise.reject(error)
        }
        return call(...given)
      },
    ] as const
  })
  return { ...calls, ...Object.fromEntries(guarded) }
}

/** Positions and counters of the database end here, so that none is ever inexact in JavaScript. */
export const maxPosition: number = Number.MAX_SAFE_INTEGER

/** Refuses a value that is not a whole number within its bounds. By default they are those of the database's `integer`. */
export function checkWhole(option: string, value: number, min: number, max: number = 2 ** 31 - 1): void {
  if (!Number.isSafeInteger(value) || value < min || value > max)
    throw new InvalidOption({
      option,
      reason: `The option "${option}" is ${describe(value)}. It must be a whole number from ${min} to ${max}.`,
    })
}

/** A value in a message: its kind where the value itself would not help. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'object' || typeof value === 'function')
    return `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`
  return String(value)
}
