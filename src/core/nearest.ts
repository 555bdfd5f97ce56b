/** The name somebody probably meant. */

/** The closest of the names there are, if it is close enough to be a slip of the keyboard. */
export function nearestName(given: string, names: Iterable<string>): string | undefined {
  let nearest: string | undefined
  let least = Math.max(2, Math.floor(given.length / 3)) + 1
  for (const name of names) {
    const distance = editDistance(given.toLowerCase(), name.toLowerCase(), least)
    if (distance < least) {
      least = distance
      nearest = name
    }
  }
  return nearest
}

/** Letters to insert, delete or replace, by the rows of the usual table; `limit` if there are more. */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const replace = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(replace, row[j]! + 1, next[j - 1]! + 1))
    }
    row = next
  }
  return Math.min(row[b.length]!, limit)
}
