/**
 * Streams fetched for writing: a state, its version, and the events staged on it. The state of an aggregate is folded from
 * a snapshot or from memory on; that of a document projection from what the projection has kept, however far it has come.
 */
import { type Aggregate, checkStream } from '../aggregates/aggregate.ts'
import { snapshotOf } from '../aggregates/commit.ts'
import type { AnyEvent } from '../aggregates/decider.ts'
import { asRead } from '../aggregates/fold.ts'
import { type LoadParts, loadState, remember } from '../aggregates/load.ts'
import type { Loaded, LoadedAggregate, Staged } from '../aggregates/loaded.ts'
import { loadForWriting } from '../aggregates/repository.ts'
import { InvalidOption } from '../core/errors.ts'
import { checkName } from '../core/name.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { sqlStateOf } from '../database/sqlstate.ts'
import type { RecordedEvent } from '../events/definition.ts'
import { toRecordedEvent } from '../events/event.ts'
import type { Log } from '../events/log.ts'
import type { AppendResult } from '../events/outcome.ts'
import { readStream, rereadable } from '../events/read.ts'
import type { Beside } from '../events/send.ts'
import type { DocumentProjection } from '../projections/document.ts'
import type { LiveProjection } from '../projections/live.ts'
import type { Projection } from '../projections/projection.ts'
import { tableNames } from '../projections/table.ts'

/** A document of a projection, fetched to append to its stream. */
export interface FetchedDocument<Doc> {
  readonly stream: string
  /** With all that is staged folded in; undefined if there is none. */
  readonly state: Doc | undefined
  /** The version of the stream as it was fetched, which a save expects it to have still; 0 if it has no events. */
  readonly version: number
  readonly events: readonly AnyEvent[]
  append(events: AnyEvent | readonly AnyEvent[]): void
}

/** What a session keeps of a stream it has fetched. */
export interface Fetched {
  /** What the user holds. */
  readonly handle: LoadedAggregate<unknown, unknown> | FetchedDocument<unknown>
  /** The aggregate or projection it was fetched as. */
  readonly as: object
  readonly size: number
  append(events: readonly AnyEvent[]): void
  /** What is staged, if it may be stored; with the snapshot that is due then. */
  staged(): Pick<Staged, 'stream' | 'events' | 'expected'> & { readonly beside: Beside | undefined }
  saved(result: AppendResult, options: { isOwn: boolean; executor: Executor }): Promise<void>
}

export async function fetchAggregate(
  parts: LoadParts,
  aggregate: Aggregate,
  id: string,
  executor: Executor,
  guard: (call: string) => void,
): Promise<Fetched> {
  const loaded = await loadForWriting(parts, aggregate, id, executor)
  return {
    handle: guarded(loaded, guard),
    as: aggregate,
    get size() {
      return loaded.events.length
    },
    append: events => loaded.append(events),
    staged() {
      const staged = loaded.staged()
      return { ...staged, beside: snapshotOf(parts, aggregate, staged) }
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

function guarded(loaded: Loaded, guard: (call: string) => void): LoadedAggregate<unknown, unknown> {
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
      guard('decide')
      return loaded.decide(command)
    },
    append(events) {
      guard('append')
      loaded.append(events)
    },
  }
}

export type AnyProjection = DocumentProjection<unknown> | LiveProjection<unknown>

export function isProjection(given: Aggregate | AnyProjection): given is AnyProjection {
  return 'fold' in given && !('evolve' in given)
}

export async function fetchProjection(
  log: Log,
  projection: AnyProjection,
  stream: string,
  executor: Executor,
  guard: (call: string) => void,
): Promise<Fetched> {
  checkName('Stream', stream)
  if (projection.fold === undefined) {
    const reason = `"${projection.name}" joins events of many streams in a document; fetch what belongs to one stream`
    throw new InvalidOption({ option: 'projection', reason })
  }
  let now = await foldDocument(log, projection, stream, executor)
  let events: AnyEvent[] = []
  const append = (given: AnyEvent | readonly AnyEvent[]): void => {
    let { state } = now
    let version = now.version + events.length
    const added = Array.isArray(given) ? (given as readonly AnyEvent[]) : [given as AnyEvent]
    const staged = added.map(event => ({ ...event, id: event.id ?? log.ids.next() }))
    for (const event of staged) state = fold(projection, state, recorded(log, stream, ++version, event))
    now = { ...now, state }
    events = [...events, ...staged]
  }
  return {
    as: projection,
    handle: {
      stream,
      get state() {
        return now.state
      },
      get version() {
        return now.version
      },
      get events() {
        return events
      },
      append(given) {
        guard('append')
        append(given)
      },
    },
    get size() {
      return events.length
    },
    append,
    staged: () => ({ stream, events, expected: now.version, beside: undefined }),
    async saved(result, { executor: reader }) {
      now = result.repeated
        ? await foldDocument(log, projection, stream, reader)
        : { state: now.state, version: result.version }
      events = []
    },
  }
}

interface FoldedDocument {
  readonly state: unknown
  readonly version: number
}

/** From the document that is kept, or from the beginning, to the end of the stream. */
async function foldDocument(
  log: Log,
  projection: AnyProjection,
  stream: string,
  executor: Executor,
): Promise<FoldedDocument> {
  let { state, version } = await keptDocument(log, projection, stream, executor)
  for await (const event of readStream(log, executor, stream, { after: version })) {
    state = fold(projection, state, event)
    version = event.version
  }
  return { state, version }
}

/** A document's version is the version of its stream that it has come to. */
async function keptDocument(
  log: Log,
  projection: AnyProjection,
  stream: string,
  executor: Executor,
): Promise<FoldedDocument> {
  if (!('documentTable' in projection)) return { state: undefined, version: 0 }
  const documents = tableNames(log.schema, projection)(projection.documentTable)
  const kept = sql`/* sessions.kept_document */
    select body, version
    from ${documents}
    where id = ${stream}::text
      and deleted_at is null`
  const [row] = await rereadable(executor, log, () => executor.runArrays(kept)).catch((error: unknown) => {
    // Not made yet: nothing is kept. Inside a transaction this was its end.
    if (executor === log.database && sqlStateOf((error as Error).cause) === undefinedTable) return []
    throw error
  })
  const [body, version] = (row ?? [undefined, 0n]) as [unknown, bigint]
  return { state: body ?? undefined, version: Number(version) }
}

const undefinedTable = '42P01'

function fold({ filter, fold: next }: Projection, state: unknown, event: RecordedEvent): unknown {
  return filter.types === undefined || filter.types.includes(event.type) ? next!(state, event) : state
}

/** An event as it will be read, but for its position. */
function recorded(log: Log, stream: string, version: number, event: AnyEvent & { id: string }): RecordedEvent {
  const { id, type, data, headers, correlationId, causationId, userId } = asRead(event, log.maxEventBytes)
  const schemaVersion = event.schemaVersion ?? log.upcasters.currentVersion(type)
  const said = [id, type, schemaVersion, data, headers ?? {}, correlationId ?? id, causationId, userId] as const
  return toRecordedEvent(0n, stream, version, ...said, log.clock.now())
}

export function streamOf(as: Aggregate | AnyProjection, id: string): string {
  return isProjection(as) ? checkName('Stream', id) : checkStream(as, id)
}
