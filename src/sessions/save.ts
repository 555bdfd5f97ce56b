/**
 * One save, in one transaction:
 *
 *     key ─► streams locked, versions checked ─► documents, snapshots ─► inline projections ─► positions, events ─► commit
 *
 * Events are sent as an append, which writes the rest between its checks and its positions. So a save has the outcomes
 * of an append: after a lost connection it is sent again and recognised by the ids of its events.
 */
import { createHash } from 'node:crypto'
import type { SavedDocument } from '../aggregates/saved.ts'
import { throwIfAborted } from '../core/abort.ts'
import { isRillflowError, type RillflowError } from '../core/errors.ts'
import { canonicalJson } from '../core/json.ts'
import { checkName } from '../core/name.ts'
import { retry } from '../core/retry.ts'
import type { Executor, Transaction } from '../database/database.ts'
import { foreignHandle, refuseLent } from '../database/handle.ts'
import { sql } from '../database/sql.ts'
import { type AnyTransaction, isOwnTransaction } from '../database/transaction.ts'
import { checkUserId } from '../documents/body.ts'
import { type OpenCollection, preparedToWrite } from '../documents/collection.ts'
import { DocumentConflict, DocumentDeleted, DocumentExists, DocumentNotFound } from '../documents/errors.ts'
import { type Change, isRefusal, writeDocuments } from '../documents/write-many.ts'
import { type AppendParts, appendEvents } from '../events/append/append.ts'
import type { AppendDefaults, StreamEvents } from '../events/append/prepare.ts'
import type { Alongside, AppendResult } from '../events/append/send.ts'
import { IdempotencyConflict } from '../events/errors.ts'
import type { Log } from '../events/log.ts'
import { carrying, type Span } from '../telemetry/span.ts'
import { claimKey, earlierSave, rememberDocuments } from './key.ts'
import { type GroupableWrites, targetsOf, writeTogether } from './save-together.ts'

/** The content of one save. */
export interface Work {
  readonly streams: readonly StreamEvents[]
  /** In the order of their tables, in which every transaction locks them. */
  readonly documents: readonly CollectionChanges[]
  /** Writes the snapshots that are due with the events. */
  readonly snapshots: readonly Alongside['write'][]
  /** Whether the events may be stored already: the session tried before, or the ids came from outside. */
  readonly checkIds: boolean
}

export interface CollectionChanges {
  readonly collection: OpenCollection
  readonly changes: readonly Change[]
}

export interface SendOptions extends AppendDefaults {
  readonly idempotencyKey?: string | undefined
  readonly onRepeat?: 'return' | 'error' | undefined
  readonly tx?: AnyTransaction | undefined
  readonly signal?: AbortSignal | undefined
}

export interface Sent {
  readonly documents: readonly SavedDocument[]
  readonly streams: readonly AppendResult[]
  /** True if an earlier save had stored it; this is its outcome. */
  readonly repeated: boolean
}

export function sendWork(parts: AppendParts, work: Work, options: SendOptions): Promise<Sent> {
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

async function sendAll(parts: AppendParts, work: Work, options: SendOptions, span?: Span): Promise<Sent> {
  const { tx, signal, idempotencyKey: key } = options
  throwIfAborted(signal)
  if (tx === undefined) parts.log.database.refuseInsideTransaction('save')
  else refuseLent(tx)
  if (key !== undefined) checkName('Idempotency key', key)
  checkUserId(options.userId)
  // Tables are made before, never inside, a save.
  for (const { collection } of work.documents) await preparedToWrite(collection, { tx, signal })
  const isDocumentsOnly = work.streams.length === 0
  const writes = groupableWrites(parts.log, work, options)
  if (isDocumentsOnly && writes === undefined) return sendDocuments(parts, work, options)
  return sendEvents(parts, work, options, writes, span)
}

/**
 * Its documents, if they can be written in one statement with those of other saves; a save with a signal is sent alone.
 */
function groupableWrites(log: Log, work: Work, options: SendOptions): GroupableWrites | undefined {
  const { idempotencyKey: key, tx, signal, userId } = options
  const isPlain = key === undefined && tx === undefined && signal === undefined && !work.checkIds
  // A statement that writes documents and calls the functions of an append cannot be sent to a node as a whole.
  if (log.database.hasNodes || !isPlain || work.documents.length === 0 || work.snapshots.length > 0) return undefined
  const targets = targetsOf(work.documents)
  if (targets === undefined || sizeOf(work) > log.database.batch.appendEvents) return undefined
  return { targets, userId }
}

function sizeOf({ streams, documents }: Work): number {
  return (
    streams.reduce((sum, { events }) => sum + events.length, 0) +
    documents.reduce((sum, { changes }) => sum + changes.length, 0)
  )
}

/** An append with documents and snapshots. */
async function sendEvents(
  parts: AppendParts,
  work: Work,
  options: SendOptions,
  writes: GroupableWrites | undefined,
  span: Span | undefined,
): Promise<Sent> {
  const { log } = parts
  const { idempotencyKey: key, tx } = options
  const executor = tx === undefined ? log.database : parts.executorOf(tx)
  let written: readonly SavedDocument[] | undefined
  const alongside: Alongside = {
    names: work.documents.flatMap(({ collection, changes }) =>
      changes.map(({ id }) => `${collection.tableName}\0${id}`),
    ),
    count: work.documents.reduce((sum, { changes }) => sum + changes.length, work.snapshots.length),
    async write(within, checked) {
      written = await writeChanges(within, work, options.userId)
      for (const snapshot of work.snapshots) await snapshot(within, checked)
      if (key !== undefined && written.length > 0) await rememberDocuments(within, log, key, written)
    },
    together: writes && writeTogether(log, writes),
  }
  const digest = key === undefined ? undefined : digestOf(work)
  const streams = await appendEvents(parts, work.streams, options, {
    alongside: alongside.count > 0 ? alongside : undefined,
    ...{ digest, checkIds: work.checkIds, span },
  })
  const repeated = streams[0]?.repeated ?? false
  const documents = (repeated ? undefined : (written ?? savedTogether(writes))) ?? (await storedBefore())
  return { documents, streams, repeated }

  /** An earlier try stored it: this one wrote nothing. */
  async function storedBefore(): Promise<readonly SavedDocument[]> {
    if (work.documents.length === 0) return []
    const earlier = key === undefined ? undefined : await earlierSave(executor, log, key)
    return earlier?.documents ?? (await presentVersions(executor, work))
  }
}

function savedTogether(writes: GroupableWrites | undefined): readonly SavedDocument[] | undefined {
  if (writes?.versions === undefined) return undefined
  const { targets, versions } = writes
  const documents = targets.flatMap(({ collection, changes }) =>
    changes.map(({ id }) => ({ collection: collection.name, id })),
  )
  return documents.map((document, at) => ({ ...document, version: versions[at]! }))
}

/** Without events there are no ids to know it by: only under a key can it be sent again when its answer was lost. */
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
  return retry(() => log.database.transaction(write, { signal }), { retries: 5, when: again, signal })
}

async function writeChanges(executor: Executor, { documents }: Work, userId?: string): Promise<SavedDocument[]> {
  const saved: SavedDocument[] = []
  for (const { collection, changes } of documents) {
    const maxPage = collection.parts.database.engine === 'pglite' ? 500 : 5000
    for (let from = 0; from < changes.length; from += maxPage) {
      const page = changes.slice(from, from + maxPage)
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

/** Throws the reason why a document was not written. Nothing of the save was written. */
export function refusalOf(
  { name: collection, parts: { telemetry } }: OpenCollection,
  { id, expected }: Change,
  { outcome, version = 0 }: { outcome: string; version?: number | undefined },
): RillflowError {
  if (outcome === 'exists') return new DocumentExists({ collection, id, version, isInSession: true })
  if (outcome === 'deleted') return new DocumentDeleted({ collection, id, version })
  if (outcome === 'missing') return new DocumentNotFound({ collection, id })
  telemetry.count('document_conflicts_total')
  return new DocumentConflict({ collection, id, expected: expected ?? 0, actual: version })
}

/** Equal for two saves with the same content, whatever versions they expect. */
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
