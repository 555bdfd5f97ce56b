/**
 * A stream fetched for writing: its state, its version, and the events staged on it. Where the state comes from, a snapshot,
 * a projection's document or the events alone, is the aggregate's affair.
 */
import type { Aggregate, AnyEvent } from '../aggregates/aggregate.ts'
import { type LoadParts, loadState, remember } from '../aggregates/load.ts'
import type { Loaded, LoadedAggregate, Staged } from '../aggregates/loaded.ts'
import { loadForWriting } from '../aggregates/repository.ts'
import { snapshotOf } from '../aggregates/snapshot.ts'
import type { Executor } from '../database/database.ts'
import type { AppendResult } from '../events/append/outcome.ts'
import type { Alongside } from '../events/append/send.ts'

/** What a session keeps of a stream it has fetched. */
export interface Fetched {
  readonly aggregate: Aggregate
  /** What the user holds. */
  readonly handle: LoadedAggregate<unknown, unknown>
  /** How many events are staged. */
  readonly size: number
  append(events: readonly AnyEvent[]): void
  /** What is staged, if it may be stored; with the snapshot that is due then. */
  staged(): Staged & { readonly snapshot: Alongside['write'] | undefined }
  saved(result: AppendResult, options: { isOwn: boolean; executor: Executor }): Promise<void>
}

/** `admit` is asked before anything is staged. */
export async function fetchAggregate(
  parts: LoadParts,
  aggregate: Aggregate,
  id: string,
  executor: Executor,
  admit: (call: string) => void,
): Promise<Fetched> {
  const loaded = await loadForWriting(parts, aggregate, id, executor)
  return {
    aggregate,
    handle: admitted(loaded, admit),
    get size() {
      return loaded.events.length
    },
    append: events => loaded.append(events),
    staged() {
      const staged = loaded.staged()
      return { ...staged, snapshot: snapshotOf(parts, aggregate, staged) }
    },
    async saved(result, { isOwn, executor: reader }) {
      // What was stored under the key was decided by somebody else, on another state perhaps.
      if (result.repeated) return loaded.reset(await loadState(parts, aggregate, loaded.stream, reader))
      loaded.committed(result.version)
      const { stream, state } = loaded
      const eventId = result.eventIds.at(-1)
      if (isOwn) remember(parts, aggregate, stream, { state, version: result.version, eventId })
    },
  }
}

function admitted(loaded: Loaded, admit: (call: string) => void): LoadedAggregate<unknown, unknown> {
  return {
    stream: loaded.stream,
    get state() {
      return loaded.state
    },
    get version() {
      return loaded.version
    },
    get events() {
      return loaded.events
    },
    decide(command) {
      admit('decide')
      return loaded.decide(command)
    },
    append(events) {
      admit('append')
      loaded.append(events)
    },
  }
}
