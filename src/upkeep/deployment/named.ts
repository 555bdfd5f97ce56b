/** The ids and names that a finding of a deployment is about. */

/** The most ids and names that a finding has. */
export const maxNamed = 1_000

/** The first few of a list, for a sentence. */
export function firstOf(names: readonly string[], count = 3): string {
  const more = names.length - count
  return more > 0 ? `${names.slice(0, count).join(', ')} and ${more} more` : names.join(', ')
}
