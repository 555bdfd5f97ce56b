/**
 * Which runner should hold which consumer. Every runner computes this from the same rows, so they agree without
 * communication; if they looked at different moments, the lease decides, and the next look agrees again.
 *
 * Invariants: a consumer stays where it is unless its holder has two more than another runner that could take it, so
 * nothing moves back and forth; and then it moves, so no runner is more than one above the even share.
 */

/** An active runner that is alive, and the consumers it could hold. */
export interface Candidate {
  readonly id: string
  readonly consumers: ReadonlySet<string>
}

/** By consumer: the id of the runner that should hold it. One that no runner can run is left out. */
export function assign(
  held: ReadonlyMap<string, string | undefined>,
  candidates: readonly Candidate[],
): Map<string, string> {
  const ordered = [...candidates].sort((a, b) => (a.id < b.id ? -1 : 1))
  const byId = new Map(ordered.map(candidate => [candidate.id, candidate]))
  const names = [...held.keys()].sort()
  const load = new Map(ordered.map(candidate => [candidate.id, 0]))
  const assigned = new Map<string, string>()

  const give = (name: string, id: string): void => {
    const before = assigned.get(name)
    if (before !== undefined) load.set(before, load.get(before)! - 1)
    assigned.set(name, id)
    load.set(id, load.get(id)! + 1)
  }
  const leastLoaded = (name: string): string | undefined => {
    let least: string | undefined
    for (const { id, consumers } of ordered)
      if (consumers.has(name) && (least === undefined || load.get(id)! < load.get(least)!)) least = id
    return least
  }

  for (const name of names) {
    const id = held.get(name)
    if (id !== undefined && byId.get(id)?.consumers.has(name)) give(name, id)
  }
  for (const name of names) {
    const least = assigned.has(name) ? undefined : leastLoaded(name)
    if (least !== undefined) give(name, least)
  }
  // Each move lessens the sum of the squares of the loads, so this ends.
  for (let moved = true; moved; ) {
    moved = false
    for (const name of names) {
      const id = assigned.get(name)
      const least = id === undefined ? undefined : leastLoaded(name)
      if (least === undefined || load.get(id!)! - load.get(least)! < 2) continue
      give(name, least)
      moved = true
    }
  }
  return assigned
}
