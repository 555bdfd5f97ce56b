/**
 * The log: appending events, and reading them back in the order of their commits.
 *
 *     append ─► prepare ─► group-commit ─► append_one / append_batch ─► [streams] [events]
 *                               └─ with code or documents: append_check ─► documents, inline projections ─► append_store
 *                                                │ wake (a hint)
 *     read, readAll ◄── rows ◄── settle ◄────────┴─► watch ─► tail, waitFor
 *
 * Guarantees:
 * - An append is stored whole or not at all, its events numbered without gaps in their stream (`version`) and in
 *   strictly rising order in the log (`position`, which may have gaps).
 * - It has one known outcome. After a lost connection it is sent again with the same event ids; an event is never
 *   stored twice. An outcome that cannot be known is `OutcomeUnknown`, which names the ids to ask for.
 * - `expected: 'any'` never conflicts; of several appends that expect one version exactly one wins, the others get
 *   `VersionConflict` with the actual version.
 * - The writes of an active inline projection are committed with the append, or neither is. The database decides which
 *   are active; a process that lacks the code of one cannot append the events that it wants
 *   (`InlineProjectionUnknown`).
 * - Readers of the log never skip, repeat or reorder an event, whatever commits, rolls back or stalls meanwhile.
 *
 * Deliberately not here: waiting for consumers (`waitFor` waits for the log itself), and changing a stored event.
 */

import { canonicalUuid } from '../core/id.ts'
import { optionNames, refuseUnknownOptions } from '../core/options.ts'
import { type WaitOptions, waitWithin } from '../core/wait.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { AnyTransaction } from '../database/transaction.ts'
import { type AppendOptions, type AppendParts, appendEvents, appendOptionNames } from './append/append.ts'
import { type AppendBuilder, appendBuilder } from './append/builder.ts'
import type { Expected } from './append/prepare.ts'
import type { AppendResult } from './append/send.ts'
import type { EventMap, NewEvent, NewEventOf, RecordedEvent, UntypedEvents } from './definition.ts'
import { type ImportedEvent, type ImportOptions, type ImportProgress, importEvents } from './import/import.ts'
import type { Log } from './log.ts'
import { type HeldBackBy, heldBackBy, settle } from './order/order.ts'
import { followLog, type TailOptions } from './order/tail.ts'
import { type LogWatch, rewound } from './order/watch.ts'
import { type EventTypeDescription, readEventTypes } from './read/event-types.ts'
import { type EventPage, type ListEventsOptions, listEvents, listEventsNames } from './read/list.ts'
import { checkPosition, type ReadLogOptions, readLog, readLogOptionNames } from './read/log.ts'
import { positionAt } from './read/position-at.ts'
import { type ReadOptions, readOptionNames, readStream, rereadable } from './read/read.ts'
import { eventColumns, eventsOfRows } from './read/rows.ts'
import { type EventSequence, eventSequence } from './read/sequence.ts'
import { readStoredEvent, type StoredEvent } from './read/stored.ts'

/** One stream of an append over several. */
export interface StreamAppend<M extends EventMap = UntypedEvents> {
  readonly stream: string
  readonly events: NewEvent<M> | readonly NewEvent<M>[]
  /** Default 'any'. */
  readonly expected?: Expected | undefined
}

const partNames: readonly string[] = optionNames<StreamAppend>({ stream: true, events: true, expected: true })

export interface LogState {
  /** The last position drawn. */
  readonly head: number
  /** Every event up to here is visible, or will never exist. */
  readonly settled: number
  /** The open transactions that have appended, oldest first; empty if settled is head. */
  readonly heldBackBy: readonly HeldBackBy[]
}

export interface Events<M extends EventMap = UntypedEvents> {
  /** Appends one event to a stream, or several, all or none. (A single one infers its type: mistakes are then reported at the word.) */
  append<T extends keyof M & string>(
    stream: string,
    events: NewEventOf<T, M[T]> | readonly NewEvent<M>[],
    options?: AppendOptions,
  ): Promise<AppendResult>
  /** Appends to several streams, all or none. */
  appendMany(streams: readonly StreamAppend<M>[], options?: Omit<AppendOptions, 'expected'>): Promise<AppendResult[]>
  /** An append put together step by step: `builder('order-42').expected('empty').push(…).send()`. */
  builder(stream: string): AppendBuilder<M>
  /** One stream's events. */
  read(stream: string, options?: ReadOptions & { tx?: AnyTransaction | undefined }): EventSequence<RecordedEvent<M>>
  /** All events in position order, as far as the log is settled when reading begins. */
  readAll<T extends keyof M & string>(options?: ReadLogOptions<T>): EventSequence<RecordedEvent<Pick<M, T>>>
  /** Events for people, the newest first: a page is quick wherever it is and however rare its events are. */
  list<T extends keyof M & string>(options?: ListEventsOptions<T>): Promise<EventPage<RecordedEvent<Pick<M, T>>>>
  /** The last position before a time; approximate where events were imported with older times. */
  positionAt(time: Date): Promise<number>
  /** Events as they come, for ever; ends when the loop is left or the signal aborts. */
  tail<T extends keyof M & string>(options?: TailOptions<T>): AsyncIterable<RecordedEvent<Pick<M, T>>>
  get(eventId: string): Promise<RecordedEvent<M> | undefined>
  /** The event exactly as it is stored, its JSON as text. */
  stored(eventId: string): Promise<StoredEvent | undefined>
  has(eventId: string): Promise<boolean>
  /** The types that are defined, and those of the newest 10 000 events, by name. */
  types(): Promise<EventTypeDescription[]>
  /** Loads many events fast, in chunks. Not atomic as a whole; resumable under a name. */
  import(
    source: AsyncIterable<ImportedEvent> | Iterable<ImportedEvent>,
    options?: ImportOptions,
  ): Promise<ImportProgress>
  /** The last position drawn. */
  head(): Promise<number>
  /** How far the log is settled, and the open transactions that hold it back. */
  settled(): Promise<LogState>
  /** Waits until the log is settled up to a position, by default for 30 seconds. */
  waitFor(position: number, options?: WaitOptions): Promise<void>
}

export function openEvents<M extends EventMap>(parts: AppendParts & { readonly watch: LogWatch }): Events<M> {
  const { log, wake, watch } = parts
  const { database } = log

  const executorFor = (tx: AnyTransaction | undefined): Executor => (tx === undefined ? database : parts.executorOf(tx))

  const events: Events = {
    async append(stream, given, options = {}) {
      refuseUnknownOptions('store.events.append', options, appendOptionNames)
      const list = listOf(given as NewEvent | readonly NewEvent[])
      const results = await appendEvents(parts, [{ stream, events: list, expected: options.expected }], options)
      return results[0]!
    },
    async appendMany(streams, options = {}) {
      refuseUnknownOptions('store.events.appendMany', options, appendOptionNames)
      for (const part of streams) refuseUnknownOptions('A part of store.events.appendMany', part, partNames)
      const lists = streams.map(part => ({ ...part, events: listOf(part.events) }))
      return appendEvents(parts, lists, options)
    },
    builder: stream => appendBuilder((list, options) => events.append(stream, list, options)),
    read(stream, { tx, ...options } = {}) {
      refuseUnknownOptions('store.events.read', options, readOptionNames)
      return eventSequence(() => readStream(log, executorFor(tx), stream, options))
    },
    readAll: ((options: ReadLogOptions = {}) => {
      refuseUnknownOptions('store.events.readAll', options, readLogOptionNames)
      return eventSequence(() => readLog(log, database, options))
    }) as Events['readAll'],
    list: (async (options: ListEventsOptions = {}) => {
      refuseUnknownOptions('store.events.list', options, listEventsNames)
      return listEvents(log, options)
    }) as Events['list'],
    positionAt: async time => positionAt(log, time, (await settle(log)).settled),
    tail: ((options = {}) => ({ [Symbol.asyncIterator]: () => followLog(log, watch, options) })) as Events['tail'],
    async get(eventId) {
      const id = canonicalUuid(eventId)
      if (id === undefined) return undefined
      const rows = await rereadable(database, log, () =>
        database.runArrays(sql`/* events.get */
          select ${eventColumns}
          from ${log.names.events}
          where event_id = ${id}::uuid`),
      )
      return (await eventsOfRows(log, rows))[0]
    },
    stored: eventId => readStoredEvent(log, eventId),
    types: () => readEventTypes(log),
    async has(eventId) {
      const id = canonicalUuid(eventId)
      if (id === undefined) return false
      const rows = await rereadable(database, log, () =>
        database.run(sql`/* events.has */
          select 1
          from ${log.names.events}
          where event_id = ${id}::uuid`),
      )
      return rows.length > 0
    },
    import: (source, options = {}) => importEvents(log, source, options, () => wake.appended()),
    head: async () => (await settle(log)).head,
    async settled() {
      const { head, settled } = await settle(log)
      return { head, settled, heldBackBy: settled < head ? await heldBackBy(log) : [] }
    },
    async waitFor(position, options = {}) {
      database.refuseInsideTransaction('waitFor')
      checkPosition('position', position)
      const missing = (): Promise<string> => whatIsMissing(log, position)
      const wait = {
        call: 'store.events.waitFor',
        what: `Position ${position} in the settled log`,
        clock: log.clock,
        missing,
      }
      await waitWithin(options, wait, async signal => {
        let seen = await rereadable(database, log, () => settle(log))
        while (seen.settled < position) {
          const now = await watch.beyond(position - 1, seen, signal)
          if (now.head < position && position <= seen.head)
            throw rewound(log, position, now, 'its head is below the position that is waited for')
          seen = now
        }
      })
    },
  }
  return events as unknown as Events<M>
}

async function whatIsMissing(log: Log, position: number): Promise<string> {
  const { head, settled } = await settle(log)
  if (head < position) return `The log ends at ${head}: nothing has been appended at that position yet.`
  const [holder] = await heldBackBy(log)
  if (holder === undefined) return `The log is settled up to ${settled}.`
  const open =
    holder.pid === undefined ? `prepared transaction ${holder.gid}` : `the transaction of backend ${holder.pid}`
  return `The log is settled up to ${settled}, because ${open} has appended and is still open.`
}

function listOf<T>(one: T | readonly T[]): readonly T[] {
  return Array.isArray(one) ? one : [one as T]
}
