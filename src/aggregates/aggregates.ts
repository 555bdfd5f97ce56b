/**
 * Aggregates: the write side of event sourcing. A stream is folded to a state, a command is decided on it, and what was
 * decided is appended at the version it was decided on.
 *
 *     load ──► snapshot, or a state in memory ──► fold the tail ──► decide ──► validate ──► append, expecting the version
 *                   ▲                                                                         │ every N: snapshot, in the
 *                   └──────────────── snapshotter (a consumer) ◄── events ◄───────────────────┘ append's own transaction
 *
 * Guarantees:
 * - The version of an aggregate is the version of its stream. A commit appends to exactly the state it was decided on, or
 *   fails with `VersionConflict`.
 * - `validate` sees the state that a commit would lead to, whichever way the events came; what it refuses is not stored.
 * - A snapshot is what the events up to its version fold to, whoever writes meanwhile. One that is newer is never replaced
 *   by an older one. It is an optimization only: without it, or with one of another `stateVersion`, the stream is folded
 *   from its beginning.
 * - States in memory belong to one store, and are only begun with where the stream still leads through them.
 *
 * What can fail: `FoldFailed` where `evolve` throws or gives nothing; `InvalidDecision`; `InvalidAggregateState`. A state
 * that a snapshot could not hold (`SnapshotRefused`) does not fail the commit: it goes without one, and says so.
 */
import type { Consumers } from '../consumers/consumers.ts'
import type { AppendParts } from '../events/append/append.ts'
import type { EventMap } from '../events/definition.ts'
import type { Aggregate } from './aggregate.ts'
import { StateCache } from './cache.ts'
import type { LoadParts } from './load.ts'
import { openRepository, type Repository } from './repository.ts'
import { openSnapshotters, type Snapshotters } from './snapshotter.ts'

export interface Aggregates extends LoadParts, Snapshotters {
  repository<State, Command, M extends EventMap>(aggregate: Aggregate<State, Command, M>): Repository<State, Command, M>
}

export function openAggregates(parts: AppendParts & { readonly consumers: Consumers }): Aggregates {
  const caches = new WeakMap<Aggregate, StateCache>()
  const cacheOf = (aggregate: Aggregate): StateCache => {
    let cache = caches.get(aggregate)
    if (cache === undefined) {
      cache = new StateCache(aggregate.cacheSize)
      caches.set(aggregate, cache)
    }
    return cache
  }
  const all = { ...parts, cacheOf }
  return {
    log: parts.log,
    cacheOf,
    repository: <State, Command, M extends EventMap>(aggregate: Aggregate<State, Command, M>) =>
      openRepository(all, aggregate) as unknown as Repository<State, Command, M>,
    ...openSnapshotters(all),
  }
}
