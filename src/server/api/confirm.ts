import { InvalidOption } from '../../core/errors.ts'

/** What destroys data asks for the name again, so that one click is not enough. */
export function repeatedName(name: string, given: string): void {
  if (given !== name)
    throw new InvalidOption({
      option: 'confirm',
      reason: `The parameter "confirm" must be "${name}": this cannot be undone.`,
    })
}
