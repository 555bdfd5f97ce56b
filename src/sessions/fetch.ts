/**
 * A stream fetched for writing: its state, its version, and the events staged on it. The aggregate decides where the
 * state comes from: a snapshot, a projection's document or the events alone.
 */
import type { Aggregate, AnyEvent } from '../aggregates/aggregate.ts'
import { type LoadParts, loadState, remember } from '../aggregates/load.ts'
import type { Loaded, LoadedAggregate, Staged } from '../aggregates/loaded.ts'
import { loadForWriting } from '../aggregates/repository.ts'
import { snapshotOf } from '../aggregates/snapshot.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Alongside, AppendResult } from '../events/append/send.ts'
import { type Log, whereLogIs } from '../events/log.ts'

/** A stream that a session has fetched. */
export interface Fetched {
  readonly aggregate: Aggregate
  /** The handle that the user has. */
  readonly handle: LoadedAggregate<unknown, unknown>
  /** How many events are staged. */
  readonly size: number
  append(events: readonly AnyEvent[]): void
  /** The staged events, if their state is valid; with the snapshot that is due then. */
  staged(): Staged & { readonly snapshot: Alongside['write'] | undefined }
  saved(result: AppendResult, options: { isOwn: boolean; executor: Executor }): Promise<void>
}

/** `admit` is called before anything is staged. */
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
      // The events under this key come from an earlier save, which may have decided on another state.
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

/**
 * Appends of any process to the stream wait until the transaction ends. A stream without events has no row to lock: an
 * advisory lock keeps out others that lock it, and an append that does not wins the race, as ever.
 */
export async function lockStream(log: Log, stream: string, tx: Executor): Promise<void> {
  const { names } = log
  await tx.run(sql`/* sessions.lock_new */
    select pg_advisory_xact_lock(hashtextextended(${stream}::text, ${names.streams.quoted}::text::regclass::oid::bigint))::text
    from ${whereLogIs(log)}`)
  await tx.run(sql`/* sessions.lock_stream */
    select
    from ${names.streams} as s
    where s.stream = ${stream}::text
    for update`)
}
