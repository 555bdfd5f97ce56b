/** Options as users write them: one object, whose misspelt names are found before anything is done with it. */
import { InvalidOption } from './errors.ts'
import { nearestName } from './nearest.ts'

/**
 * Refuses an option that there is not, and names the one that was probably meant. `what` names the thing that is being
 * defined or called: `Projection "sales"`.
 */
export function refuseUnknownOptions(what: string, given: object, known: readonly string[]): void {
  for (const option of Object.keys(given)) {
    if (known.includes(option)) continue
    const nearest = nearestName(option, known)
    const hint = nearest === undefined ? `Its options are ${known.join(', ')}.` : `Did you mean "${nearest}"?`
    throw new InvalidOption({ option, reason: `${what} has no option "${option}". ${hint}` })
  }
}

/** A value in a message: what it is, not how it prints. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'object' || typeof value === 'function')
    return `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`
  return String(value)
}
