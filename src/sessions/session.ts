/** One session: its loaded documents and streams, its staged changes, and the save. */
import { type Aggregate, checkStream } from '../aggregates/aggregate.ts'
import type { LoadParts } from '../aggregates/load.ts'
import type { LoadedAggregate } from '../aggregates/loaded.ts'
import type { Saved } from '../aggregates/saved.ts'
import type { HeldTurns, Turns } from '../aggregates/turns.ts'
import type { Awaitable } from '../core/core.ts'
import { InvalidOption, Overloaded } from '../core/errors.ts'
import type { Ids } from '../core/id.ts'
import { checkName } from '../core/name.ts'
import { optionNames, refuseUnknownOptions } from '../core/options.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import type { Collection, OpenCollection } from '../documents/collection.ts'
import type { Documents } from '../documents/documents.ts'
import type { AppendParts } from '../events/append/append.ts'
import type { AppendDefaults, Expected } from '../events/append/prepare.ts'
import { byBytes } from '../events/append/send.ts'
import type { EventMap, NewEvent, UntypedEvents } from '../events/definition.ts'
import { channels } from '../telemetry/telemetry.ts'
import { type PublishOptions, publishedEvent, publishOptionNames } from '../workflows/publish.ts'
import { type SessionDocument, type SessionDocuments, type SessionLoadOptions, TrackedDocuments } from './documents.ts'
import { SessionClosed, SessionSaving } from './errors.ts'
import { type Fetched, fetchAggregate, lockStream } from './fetch.ts'
import { type SendOptions, type Sent, sendWork, type Work } from './save.ts'
import { StagedStreams } from './streams.ts'

/** Headers, causation, correlation and user of all writes of the session, unless an event has its own. */
export interface SessionOptions extends AppendDefaults {
  /** The most changes and events that may be staged at once. Default 10 000. */
  maxStaged?: number | undefined
}

export interface SaveOptions extends AppendDefaults {
  /** Makes the save repeatable across processes: a second one with this key returns the first one's outcome. */
  idempotencyKey?: string | undefined
  /** On a repeat of the key: return the first outcome (default), or raise `IdempotencyConflict`. */
  onRepeat?: 'return' | 'error' | undefined
  /**
   * Save inside this transaction. The session counts as saved then; if you roll the transaction back, discard the
   * session.
   */
  tx?: AnyTransaction | undefined
  signal?: AbortSignal | undefined
}

export const sessionOptionNames: readonly string[] = optionNames<SessionOptions>({
  ...{ headers: true, correlationId: true, causationId: true, userId: true, maxStaged: true },
})

export const saveOptionNames: readonly string[] = optionNames<SaveOptions>({
  ...{ headers: true, correlationId: true, causationId: true, userId: true },
  ...{ idempotencyKey: true, onRepeat: true, tx: true, signal: true },
})

const sessionPublishNames = publishOptionNames.filter(name => !['tx', 'signal', 'idempotencyKey'].includes(name))

/**
 * A unit of work: documents and events that are saved together.
 *
 * @example
 * ```ts
 * const welcome = (session: Session) => session.events.append('mail-1', { type: 'MailSent', data: {} })
 * ```
 */
export interface Session<M extends EventMap = UntypedEvents> extends AsyncDisposable {
  /** The documents of a collection, loaded once and changed together. */
  documents<Doc extends object>(collection: Collection<Doc> | Documents<Doc>): SessionDocuments<Doc>
  load<Doc extends object>(
    collection: Collection<Doc> | Documents<Doc>,
    id: string,
    options?: SessionLoadOptions,
  ): Promise<SessionDocument<Doc> | undefined>
  /** The existing ones, by id. One query for those not loaded yet. */
  load<Doc extends object>(
    collection: Collection<Doc> | Documents<Doc>,
    ids: readonly string[],
    options?: SessionLoadOptions,
  ): Promise<Map<string, SessionDocument<Doc>>>
  readonly events: {
    /** Stages events; the stream must have the expected version when they are saved. Default 'any'. */
    append(
      stream: string,
      events: NewEvent<M> | readonly NewEvent<M>[],
      options?: { expected?: Expected | undefined },
    ): void
  }
  /** Stages an event that begins a workflow, or is part of one; it is published with the save. */
  publish<T extends keyof M & string>(type: T, data: M[T], options?: SessionPublishOptions): SessionPublished
  /** The state of a stream, to decide on; the decided events are staged, and saved at this version only. */
  fetchForWriting<State, Command, E extends EventMap>(
    aggregate: Aggregate<State, Command, E>,
    id: string,
    options?: FetchOptions,
  ): Promise<LoadedAggregate<State, Command, E>>
  /** The number of staged changes and events. */
  readonly staged: { readonly documents: number; readonly events: number }
  /** Stores all staged changes in one transaction, or none: then all of them are still staged. */
  save(options?: SaveOptions): Promise<Saved>
  /** Discards all staged changes and loaded documents. */
  discard(): void
}

export interface FetchOptions extends SessionLoadOptions {
  /**
   * Lock the stream until the transaction `tx` ends: appends of all processes to it wait, so the save cannot lose a race.
   * Lock several streams in one order everywhere. Default false.
   */
  readonly lock?: boolean | undefined
}

export type SessionPublishOptions = Omit<PublishOptions, 'tx' | 'signal' | 'idempotencyKey'>

/** The staged event: `store.workflows.get(correlationId)` is its workflow. */
export interface SessionPublished {
  readonly correlationId: string
  readonly eventId: string
}

export interface SessionParts extends AppendParts, LoadParts {
  /** The collection of a definition, or of a handle of this store. */
  collectionOf(given: Collection | { readonly name: string }): OpenCollection
  /** The store's defaults for all writes of its sessions. */
  readonly defaults: AppendDefaults | undefined
  readonly turns: Turns
}

/** `turns`: those of the command that the session is for. */
export function openSession(parts: SessionParts, options: SessionOptions = {}, turns?: HeldTurns): Session {
  const { log } = parts
  const { maxStaged = 10_000 } = options
  const collections = new Map<string, TrackedDocuments>()
  const streams = new StagedStreams(log.ids)
  const fetched = new Map<string, Fetched>()
  let state: 'open' | 'saving' | 'closed' = 'open'
  let isTried = false

  const guard = (call: string): void => {
    if (state === 'saving') throw new SessionSaving({ call })
    if (state === 'closed') throw new SessionClosed({ call })
  }
  const count = (): Session['staged'] => {
    let [documents, events] = [0, streams.size]
    for (const each of collections.values()) documents += each.size
    for (const each of fetched.values()) events += each.size
    return { documents, events }
  }
  /** Called before a change is staged. */
  const admit = (call: string, more = 1): void => {
    guard(call)
    const { documents, events } = count()
    if (documents + events + more > maxStaged) throw new Overloaded({ queue: 'session', limit: maxStaged })
  }
  const tracked = (given: Collection | { readonly name: string }): TrackedDocuments => {
    // Refuses one of another store: a session of a tenant never writes to another tenant.
    const collection = parts.collectionOf(given)
    let found = collections.get(collection.tableName)
    if (found === undefined) {
      found = new TrackedDocuments(collection)
      collections.set(collection.tableName, found)
    }
    return found
  }

  const session: Session = {
    documents: ((collection: Collection) =>
      documentsOf(tracked(collection), log.ids, guard, admit)) as unknown as Session['documents'],
    load: (async (collection: Collection, wanted: string | readonly string[], more?: SessionLoadOptions) => {
      guard('load')
      return typeof wanted === 'string'
        ? (await tracked(collection).load([wanted], more)).get(wanted)
        : tracked(collection).load(wanted, more)
    }) as unknown as Session['load'],
    events: {
      append(stream, given, options = {}) {
        refuseUnknownOptions('session.events.append', options, ['expected'])
        const { expected } = options
        const events = Array.isArray(given) ? (given as NewEvent[]) : [given as NewEvent]
        checkName('Stream', stream)
        admit('append', events.length)
        const known = fetched.get(stream)
        if (known === undefined) return streams.append(stream, events, expected)
        refuseOther(known, expected)
        known.append(events)
      },
    },
    publish(type, data, given = {}) {
      refuseUnknownOptions('session.publish', given, sessionPublishNames)
      const { event, stream } = publishedEvent(log, type, data, given)
      session.events.append(stream, event, { expected: given.expected })
      return { correlationId: event.correlationId, eventId: event.id }
    },
    fetchForWriting: (async (aggregate: Aggregate, id: string, given: FetchOptions = {}) => {
      refuseUnknownOptions('fetchForWriting', given, ['tx', 'signal', 'lock'])
      const { tx, lock = false } = given
      guard('fetchForWriting')
      const stream = checkStream(aggregate, id)
      if (tx === undefined) log.database.refuseInsideTransaction('fetchForWriting')
      if (lock && tx === undefined) throw new InvalidOption({ option: 'lock', reason: lockNeedsTx })
      if (tx === undefined) await turns?.ask(stream)
      if (lock) await lockStream(log, stream, parts.executorOf(tx!))
      if (!fetched.has(stream)) {
        refuseStaged(streams, stream)
        const executor = tx === undefined ? log.database : parts.executorOf(tx)
        const found = await fetchAggregate(parts, aggregate, stream, executor, admit)
        guard('fetchForWriting')
        refuseStaged(streams, stream)
        if (!fetched.has(stream)) fetched.set(stream, found)
      }
      const known = fetched.get(stream)!
      if (known.aggregate === aggregate) return known.handle
      const reason = `Stream "${stream}" was fetched as another aggregate in this session. Use that aggregate, or another session.`
      throw new InvalidOption({ option: 'aggregate', reason })
    }) as Session['fetchForWriting'],
    get staged() {
      return count()
    },
    async save(more = {}) {
      refuseUnknownOptions('session.save', more, saveOptionNames)
      guard('save')
      state = 'saving'
      try {
        return await save(more)
      } finally {
        state = 'open'
      }
    },
    discard() {
      guard('discard')
      isTried = false
      for (const each of collections.values()) each.forget()
      streams.clear()
      fetched.clear()
    },
    async [Symbol.asyncDispose]() {
      if (state === 'closed') return
      state = 'closed'
      const { documents, events } = count()
      if (documents + events === 0) return
      log.telemetry.count('session_unsaved_total')
      log.telemetry.log.warn({ schema: log.schema, documents, events }, 'A session ended with unsaved changes.')
      log.telemetry.publish(channels.unsaved, () => ({ schema: log.schema, documents, events }))
    },
  }
  return session

  async function save(options_: SaveOptions): Promise<Saved> {
    const { documents, events } = count()
    if (documents + events === 0) return savedOf({ documents: [], streams: [], repeated: false })
    const { work, writers } = await gather()
    const sendOptions: SendOptions = { ...options_, ...mergeDefaults(parts.defaults, options, options_) }
    const attempt = sendWork(parts, work, sendOptions)
    isTried = true
    const sent = await attempt
    await settle(sent, writers, options_)
    log.telemetry.count('session_saves_total')
    return savedOf(sent)
  }

  async function gather(): Promise<{ work: Work; writers: Fetched[] }> {
    const writers = [...fetched.values()].filter(each => each.size > 0)
    const staged = writers.map(each => each.staged())
    const documents: { collection: OpenCollection; changes: Awaited<ReturnType<TrackedDocuments['changes']>> }[] = []
    for (const each of collections.values())
      if (each.size > 0) documents.push({ collection: each.collection, changes: await each.changes() })
    documents.sort((a, b) => byBytes(a.collection.tableName, b.collection.tableName))
    const { all, hasOwnIds } = streams.all(staged)
    const snapshots = staged.flatMap(({ snapshot }) => (snapshot === undefined ? [] : [snapshot]))
    return { work: { streams: all, documents, snapshots, checkIds: isTried || hasOwnIds }, writers }
  }

  async function settle(sent: Sent, writers: readonly Fetched[], { tx }: SaveOptions): Promise<void> {
    isTried = false
    streams.clear()
    for (const each of collections.values()) {
      const { name } = each.collection
      const mine = sent.documents.filter(({ collection }) => collection === name)
      // An earlier save under the key may have stored other content: it is loaded when it is asked for.
      each.saved(sent.repeated ? new Map() : new Map(mine.map(({ id, version }) => [id, version])))
    }
    const executor = tx === undefined ? log.database : parts.executorOf(tx)
    const results = new Map(sent.streams.map(result => [result.stream, result]))
    for (const each of writers)
      await each.saved(results.get(each.handle.stream)!, { isOwn: tx === undefined, executor })
  }
}

function documentsOf(
  tracked: TrackedDocuments,
  ids: Ids,
  guard: (call: string) => void,
  admit: (call: string) => void,
): SessionDocuments {
  return {
    load: (async (wanted: string | readonly string[], options?: SessionLoadOptions) => {
      guard('load')
      return typeof wanted === 'string'
        ? (await tracked.load([wanted], options)).get(wanted)
        : tracked.load(wanted, options)
    }) as SessionDocuments['load'],
    insert: ((first: unknown, second?: unknown) => {
      admit('insert')
      const isNew = typeof first === 'object' && first !== null
      const id = isNew ? ids.next() : (first as string)
      tracked.insert(id, isNew ? first : second)
      return isNew ? id : undefined
    }) as SessionDocuments['insert'],
    put(id, data, options) {
      admit('put')
      tracked.put(id, data, options)
    },
    async update(id, change, options) {
      guard('update')
      const data = await tracked.changed(id, change as (data: never) => Awaitable<object>, options)
      admit('update')
      tracked.put(id, data)
    },
    async patch(id, patch, options) {
      guard('patch')
      const data = await tracked.patched(id, patch, options)
      admit('patch')
      tracked.put(id, data)
    },
    delete(id, options) {
      admit('delete')
      tracked.delete(id, options)
    },
    softDelete(id, options) {
      admit('softDelete')
      tracked.softDelete(id, options)
    },
    restore(id, options) {
      admit('restore')
      tracked.restore(id, options)
    },
  }
}

export function savedOf({ documents, streams, repeated }: Sent): Saved {
  const position = streams.reduce<number | undefined>(
    (last, each) => (last === undefined || each.position > last ? each.position : last),
    undefined,
  )
  return { documents, streams, position, repeated }
}

const lockNeedsTx =
  'fetchForWriting can lock a stream only in a transaction that lasts until the save: store.transaction(tx => …), with { tx, lock: true } here and { tx } for the save.'

function refuseOther({ handle }: Fetched, expected: Expected | undefined): void {
  if (expected === undefined || expected === 'any' || expected === handle.version + handle.events.length) return
  const reason = `The option "expected" is ${expected}, but stream "${handle.stream}" was fetched for writing at version ${handle.version}. Leave "expected" out.`
  throw new InvalidOption({ option: 'expected', reason })
}

function refuseStaged(streams: StagedStreams, stream: string): void {
  if (!streams.has(stream)) return
  const reason = `Stream "${stream}" has staged events that its fetched state would not include. Fetch it before staging events, or save first.`
  throw new InvalidOption({ option: 'id', reason })
}

/** Later ones win; headers are merged key by key. */
export function mergeDefaults(...given: readonly (AppendDefaults | undefined)[]): AppendDefaults {
  const merged: AppendDefaults = {}
  for (const each of given) {
    if (each === undefined) continue
    merged.correlationId = each.correlationId ?? merged.correlationId
    merged.causationId = each.causationId ?? merged.causationId
    merged.userId = each.userId ?? merged.userId
    if (each.headers !== undefined) merged.headers = { ...merged.headers, ...each.headers }
  }
  return merged
}
