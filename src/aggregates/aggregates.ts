/**
 * Aggregates: the write side of event sourcing. A stream is folded to a state, a decision on the state gives events, and
 * these are appended at the version of the stream that was decided on.
 *
 *     load ──► snapshot, or a state in memory ──► fold the tail ──► decide ──► validate ──► append, expecting the version
 *                   ▲                                                                         │ every N: snapshot, in the
 *                   └──────────────── snapshotter (a consumer) ◄── events ◄───────────────────┘ append's own transaction
 *
 * Guarantees:
 * - The version of an aggregate is the version of its stream. A commit appends to exactly the state it was decided on, or
 *   fails with `VersionConflict`.
 * - `validate` checks the state that a commit would lead to, whether a command or the caller gave the events. A state that
 *   it refuses is not stored.
 * - A snapshot is the fold of the events up to its version, whatever is appended meanwhile. A newer one is never replaced by
 *   an older one. It is an optimization only: without it, or with one of another `stateVersion`, the stream is folded from
 *   its first event.
 * - States in memory belong to one store, and are used only if the stream still has the event of their version.
 *
 * What can fail: `FoldFailed` where `evolve` throws or returns nothing; `InvalidDecision`; `InvalidAggregateState`. A state
 * that a snapshot cannot hold (`SnapshotRefused`) does not fail the commit: there is a warning, and no snapshot.
 */
import type { Consumers } from '../consumers/consumers.ts'
import type { AppendParts } from '../events/append/append.ts'
import type { EventMap } from '../events/definition.ts'
import type { Aggregate } from './aggregate.ts'
import { StateCache } from './cache.ts'
import type { LoadParts } from './load.ts'
import { openRepository, type Repository } from './repository.ts'
import { openSnapshotters, type Snapshotters } from './snapshotter.ts'
import { openTurns, type Turns } from './turns.ts'

export interface Aggregates extends LoadParts, Snapshotters {
  /** For commands of all kinds. */
  readonly turns: Turns
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
  const turns = openTurns()
  const all = { ...parts, cacheOf, turns }
  return {
    log: parts.log,
    cacheOf,
    turns,
    repository: <State, Command, M extends EventMap>(aggregate: Aggregate<State, Command, M>) =>
      openRepository(all, aggregate) as unknown as Repository<State, Command, M>,
    ...openSnapshotters(all),
  }
}
