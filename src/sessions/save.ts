/**
 * One save, in one transaction:
 *
 *     key ─► streams locked, versions checked ─► documents, snapshots ─► inline projections ─► positions, events ─► commit
 *
 * Events are sent as an append, which brings the rest along between its checks and its positions. So a save has the
 * outcomes of an append: after a lost connection it is sent again and recognised by the ids of its events.
 */
import { createHash } from 'node:crypto'
import { isRillflowError, type RillflowError } from '../core/errors.ts'
import { canonicalJson } from '../core/json.ts'
import { throwIfAborted } from '../core/lifecycle.ts'
import { checkName } from '../core/name.ts'
import { retry } from '../core/retry.ts'
import type { Executor, Transaction } from '../database/database.ts'
import { foreignHandle, refuseLent } from '../database/handle.ts'
import { sql } from '../database/sql.ts'
import { type AnyTransaction, isOwnTransaction } from '../database/transaction.ts'
import { checkUserId } from '../documents/body.ts'
import { type CollectionBase, preparedToWrite } from '../documents/collection.ts'
import { DocumentConflict, DocumentDeleted, DocumentExists, DocumentNotFound } from '../documents/errors.ts'
import { tellDocuments } from '../documents/run.ts'
import { type Change, isRefusal, writeDocuments } from '../documents/write-many.ts'
import { type AppendParts, appendEvents, prepareAppend, writtenBy } from '../events/append/append.ts'
import { type AppendResult, refusal, resultsOf } from '../events/append/outcome.ts'
import type { AppendDefaults, StreamEvents } from '../events/append/prepare.ts'
import type { Append, Beside, Outcome } from '../events/append/send.ts'
import { IdempotencyConflict, VersionConflict } from '../events/errors.ts'
import type { Log } from '../events/log.ts'
import { carrying, type Span } from '../telemetry/span.ts'
import { channels } from '../telemetry/telemetry.ts'
import type { SaveGroup } from './group.ts'
import { kindOf, type Place } from './joint.ts'
import { claimKey, earlierSave, rememberDocuments } from './key.ts'

/** All that one save is to store. */
export interface Work {
  readonly streams: readonly StreamEvents[]
  /** In the order of their tables, which is the order everybody locks them in. */
  readonly documents: readonly CollectionChanges[]
  /** Snapshots that are due with the events. */
  readonly besides: readonly Beside[]
  /** Whether the events may be stored already: the session tried before, or the ids came from outside. */
  readonly checkIds: boolean
}

export interface CollectionChanges {
  readonly collection: CollectionBase
  readonly changes: readonly Change[]
}

export interface SendOptions extends AppendDefaults {
  readonly idempotencyKey?: string | undefined
  readonly onRepeat?: 'return' | 'error' | undefined
  readonly tx?: AnyTransaction | undefined
  readonly signal?: AbortSignal | undefined
}

export interface SavedDocument {
  readonly collection: string
  readonly id: string
  /** The version it has now; of one that was deleted, the version it had. */
  readonly version: number
}

export interface Sent {
  readonly documents: readonly SavedDocument[]
  readonly streams: readonly AppendResult[]
  /** True if an earlier save had stored it; this is its outcome. */
  readonly repeated: boolean
}

export function sendWork(parts: SaveParts, work: Work, options: SendOptions): Promise<Sent> {
  const { telemetry, schema } = parts.log
  if (!telemetry.isTraced) return sendAll(parts, work, options)
  const documents = work.documents.flatMap(({ collection, changes }) =>
    changes.map(({ id, kind }) => ({ collection: collection.name, id, kind })),
  )
  const fields = { streams: work.streams.map(({ stream }) => stream), documents }
  return telemetry.span({ name: 'sessions.save', schema, fields }, span =>
    sendAll(parts, work, carrying(options, span), span),
  )
}

async function sendAll(parts: SaveParts, work: Work, options: SendOptions, span?: Span): Promise<Sent> {
  const { tx, signal, idempotencyKey: key } = options
  throwIfAborted(signal)
  if (tx === undefined) parts.log.database.refuseInsideTransaction('save')
  else refuseLent(tx)
  if (key !== undefined) checkName('Idempotency key', key)
  checkUserId(options.userId)
  // Tables are made before, never inside, a save.
  for (const { collection } of work.documents) await preparedToWrite(collection, { tx, signal })
  const joined = await sendTogether(parts, work, options, span)
  if (joined.sent !== undefined) return joined.sent
  if (work.streams.length === 0) return sendDocuments(parts, work, options)
  return sendEvents(parts, work, options, joined.isUnanswered)
}

/** With others of this process, if it is of the simple kind; otherwise, or if that came to nothing, it goes alone. */
async function sendTogether(
  { log, saves, wake }: SaveParts,
  work: Work,
  options: SendOptions,
  span: Span | undefined,
): Promise<{ readonly sent: Sent | undefined; readonly isUnanswered: boolean }> {
  const places = work.documents.length === 0 ? undefined : placesOf(work)
  const { idempotencyKey: key, tx, signal } = options
  const isPlain = key === undefined && tx === undefined && signal === undefined
  if (places === undefined || !isPlain || work.checkIds || work.besides.length > 0) return notSent
  const append = await prepareAppend(log, work.streams, options, undefined, { digest: undefined, checkIds: false })
  const size = append.eventCount + places.reduce((sum, { changes }) => sum + changes.length, 0)
  if (size > log.database.batch.appendEvents || log.inline.mayWant(append)) return notSent
  span?.wrote(writtenBy(append))
  const changes = places.map(each => each.changes)
  const started = performance.now()
  const answer = await saves.submit({ append, places, changes, userId: options.userId })
  if (answer.outcome === undefined) return { sent: undefined, isUnanswered: answer.isUnanswered }
  if (append.eventCount > 0) tellAppend(log, append, answer.outcome, started)
  const streams = resultsOf(append, answer.outcome)
  if (append.eventCount > 0) wake.appended()
  for (const { collection, kind, changes: some } of places)
    tellDocuments(collection, 'written', `sessions.${kind}`, some.length)
  const documents = places.flatMap(({ collection, changes: some }) => some.map(({ id }) => ({ collection, id })))
  const named = documents.map(({ collection, id }, at) => {
    return { collection: collection.name, id, version: answer.versions[at]! }
  })
  return { sent: { documents: named, streams, repeated: false }, isUnanswered: false }
}

/** As every append tells of itself. */
function tellAppend(log: Log, append: Append, outcome: Outcome, started: number): void {
  const error = outcome.kind === 'appended' ? undefined : refusal(append, outcome)
  if (error === undefined) {
    log.telemetry.count('event_appends_total')
    log.telemetry.count('events_appended_total', append.eventCount)
    log.telemetry.observe('event_append_seconds', (performance.now() - started) / 1000)
  } else if (error instanceof VersionConflict) log.telemetry.count('event_conflicts_total')
  log.telemetry.publish(channels.append, () => {
    const streams = append.parts.map(({ stream }) => stream)
    const message = { schema: log.schema, streams, events: append.eventCount, durationMs: performance.now() - started }
    return error === undefined ? message : { ...message, error }
  })
}

const notSent = { sent: undefined, isUnanswered: false } as const

/** The changes by collection and kind; undefined if one of them is not of the simple kind. */
function placesOf({ documents }: Work): (Place & { readonly changes: readonly Change[] })[] | undefined {
  const places: (Place & { changes: Change[] })[] = []
  for (const { collection, changes } of documents) {
    for (const kind of ['insert', 'put', 'replace'] as const) {
      const some = changes.filter(change => kindOf(collection, change) === kind)
      if (some.length > 0) places.push({ collection, kind, changes: some })
    }
  }
  const count = places.reduce((sum, { changes }) => sum + changes.length, 0)
  return count === documents.reduce((sum, { changes }) => sum + changes.length, 0) ? places : undefined
}

export interface SaveParts extends AppendParts {
  readonly saves: SaveGroup
}

async function sendEvents(parts: AppendParts, work: Work, options: SendOptions, isUnanswered: boolean): Promise<Sent> {
  const { log } = parts
  const { idempotencyKey: key, tx } = options
  const executor = tx === undefined ? log.database : parts.executorOf(tx)
  let documents: readonly SavedDocument[] = []
  const beside: Beside = async (within, checked) => {
    documents = await writeChanges(within, work, options.userId)
    for (const each of work.besides) await each(within, checked)
    if (key !== undefined && documents.length > 0) await rememberDocuments(within, log, key, documents)
  }
  const isBeside = work.documents.length > 0 || work.besides.length > 0
  const digest = key === undefined ? undefined : digestOf(work)
  const known = { digest, checkIds: work.checkIds || isUnanswered, isUnanswered }
  const streams = await appendEvents(parts, work.streams, options, isBeside ? beside : undefined, known)
  const repeated = streams[0]!.repeated
  const isUnwritten = documents.length === 0 && isUnanswered
  if ((repeated || isUnwritten) && work.documents.length > 0)
    documents =
      (key === undefined ? undefined : (await earlierSave(executor, log, key))?.documents) ??
      (await presentVersions(executor, work))
  return { documents, streams, repeated }
}

/** Without events there are no ids to know it by: only under a key it can be sent again when its answer was lost. */
async function sendDocuments(parts: AppendParts, work: Work, options: SendOptions): Promise<Sent> {
  const { log } = parts
  const { idempotencyKey: key, tx, signal } = options
  const write = async (within: Transaction): Promise<Sent> => {
    if (key !== undefined) {
      const earlier = await claimKey(within, log, key, digestOf(work))
      if (earlier !== undefined && options.onRepeat === 'error') throw new IdempotencyConflict({ key })
      if (earlier !== undefined) return { documents: earlier, streams: [], repeated: true }
    }
    const documents = await writeChanges(within, work, options.userId)
    if (key !== undefined) await rememberDocuments(within, log, key, documents)
    return { documents, streams: [], repeated: false }
  }
  if (tx !== undefined) {
    const own = isOwnTransaction(tx) ? tx : foreignHandle(parts.executorOf(tx))
    return own.savepoint(() => write(own))
  }
  const again = (error: unknown): boolean =>
    isRillflowError(error, 'serialization_failed') ||
    (key !== undefined && (isRillflowError(error, 'connection_lost') || isRillflowError(error, 'outcome_unknown')))
  return retry(() => log.database.transaction(write, { signal }), { retries: 5, when: again, clock: log.clock, signal })
}

async function writeChanges(executor: Executor, { documents }: Work, userId?: string): Promise<SavedDocument[]> {
  const saved: SavedDocument[] = []
  for (const { collection, changes } of documents) {
    const most = collection.parts.database.engine === 'pglite' ? 500 : 5000
    for (let from = 0; from < changes.length; from += most) {
      const page = changes.slice(from, from + most)
      const outcomes = await writeDocuments(executor, collection, page, { userId })
      for (const [at, outcome] of outcomes.entries()) {
        if (isRefusal(page[at]!, outcome)) throw refusalOf(collection, page[at]!, outcome)
        const { id, version } = outcome
        if (version !== undefined) saved.push({ collection: collection.name, id, version })
      }
    }
  }
  return saved
}

/** Says why a document was not written. Nothing of the save was. */
export function refusalOf(
  { name: collection, parts: { telemetry } }: CollectionBase,
  { id, expected }: Change,
  { outcome, version = 0 }: { outcome: string; version?: number | undefined },
): RillflowError {
  if (outcome === 'exists') return new DocumentExists({ collection, id, version })
  if (outcome === 'deleted') return new DocumentDeleted({ collection, id, version })
  if (outcome === 'missing') return new DocumentNotFound({ collection, id })
  telemetry.count('document_conflicts_total')
  return new DocumentConflict({ collection, id, expected: expected ?? 0, actual: version })
}

/** Equal for two saves that say the same, whatever versions they expect to find. */
function digestOf({ streams, documents }: Work): string {
  const said = [
    streams.map(({ stream, events }) => [stream, events.map(({ type, data }) => [type, data])]),
    documents.map(({ collection, changes }) => [
      collection.tableName,
      changes.map(({ kind, id, body }) => (body === undefined ? [id, kind] : [id, JSON.parse(body)])),
    ]),
  ]
  return createHash('sha256').update(canonicalJson(said)).digest('hex')
}

async function presentVersions(executor: Executor, { documents }: Work): Promise<SavedDocument[]> {
  const found: SavedDocument[] = []
  for (const { collection, changes } of documents) {
    const rows = await executor.runArrays(sql`/* sessions.present_versions */
      select id, version
      from ${collection.table}
      where id = any(${changes.map(({ id }) => id)}::text[])`)
    for (const [id, version] of rows as [string, number][])
      found.push({ collection: collection.name, id, version: Number(version) })
  }
  return found
}
