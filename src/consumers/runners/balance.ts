/**
 * Who should hold which consumer. Every host computes this from the same rows, so they agree without talking; where they
 * looked at different moments, the lease decides, and the next look settles it.
 *
 * Invariants: what is held stays where it is unless somebody has two more than another who could take it, so nothing moves
 * back and forth; and then it moves, so nobody is more than one above the even share.
 */

/** A host that is alive and may hold consumers. */
export interface Member {
  readonly owner: string
  readonly consumers: ReadonlySet<string>
}

/** By consumer: the owner that should hold it. One that nobody can run is not in it. */
export function assign(held: ReadonlyMap<string, string | undefined>, members: readonly Member[]): Map<string, string> {
  const ordered = [...members].sort((a, b) => (a.owner < b.owner ? -1 : 1))
  const byOwner = new Map(ordered.map(member => [member.owner, member]))
  const names = [...held.keys()].sort()
  const load = new Map(ordered.map(member => [member.owner, 0]))
  const assigned = new Map<string, string>()

  const give = (name: string, owner: string): void => {
    const before = assigned.get(name)
    if (before !== undefined) load.set(before, load.get(before)! - 1)
    assigned.set(name, owner)
    load.set(owner, load.get(owner)! + 1)
  }
  const leastLoaded = (name: string): string | undefined => {
    let least: string | undefined
    for (const { owner, consumers } of ordered)
      if (consumers.has(name) && (least === undefined || load.get(owner)! < load.get(least)!)) least = owner
    return least
  }

  for (const name of names) {
    const owner = held.get(name)
    if (owner !== undefined && byOwner.get(owner)?.consumers.has(name)) give(name, owner)
  }
  for (const name of names) {
    const least = assigned.has(name) ? undefined : leastLoaded(name)
    if (least !== undefined) give(name, least)
  }
  // Each move lessens the sum of the squares of the loads, so this ends.
  for (let moved = true; moved; ) {
    moved = false
    for (const name of names) {
      const owner = assigned.get(name)
      const least = owner === undefined ? undefined : leastLoaded(name)
      if (least === undefined || load.get(owner!)! - load.get(least)! < 2) continue
      give(name, least)
      moved = true
    }
  }
  return assigned
}
