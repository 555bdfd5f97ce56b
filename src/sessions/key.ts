/** Idempotency keys of saves: each is claimed with its save, and stored with its outcome. */

import type { SavedDocument } from '../aggregates/saved.ts'
import type { Executor } from '../database/database.ts'
import { SerializationFailed } from '../database/errors.ts'
import { sql } from '../database/sql.ts'
import { claimKey as claim, storeDocuments } from '../events/append/idempotency.ts'
import { IdempotencyMismatch } from '../events/errors.ts'
import type { Log } from '../events/log.ts'
import type { Sent } from './save.ts'

/** The outcome of the save that has this key; undefined if the key was free, and is ours now. */
export async function claimKey(
  executor: Executor,
  log: Log,
  key: string,
  digest: string,
): Promise<readonly SavedDocument[] | undefined> {
  if (await claim(log, key, digest, executor)) return undefined
  const earlier = await earlierSave(executor, log, key)
  // The transaction that had claimed it was rolled back between the two statements.
  if (earlier === undefined)
    throw new SerializationFailed({ reason: `the idempotency key "${key}" was released meanwhile` })
  if (earlier.digest !== digest) throw new IdempotencyMismatch({ key })
  return earlier.documents ?? []
}

export async function rememberDocuments(
  executor: Executor,
  log: Log,
  key: string,
  documents: readonly SavedDocument[],
): Promise<void> {
  const rows = documents.map(({ collection, id, version }) => [collection, id, version])
  await storeDocuments(log, key, rows, executor)
}

export async function earlierSave(
  executor: Executor,
  log: Log,
  key: string,
): Promise<{ readonly digest: string; readonly documents: readonly SavedDocument[] | undefined } | undefined> {
  const [row] = await executor.runArrays(sql`/* sessions.earlier_save */
    select digest, documents
    from ${log.names.idempotency_keys}
    where key = ${key}::text`)
  if (row === undefined) return undefined
  const [digest, documents] = row as [string, [string, string, number][] | null]
  return { digest, documents: documents?.map(([collection, id, version]) => ({ collection, id, version })) }
}

/** The outcome of the save under this key; undefined if there was none. */
export async function outcomeOfKey(executor: Executor, log: Log, key: string): Promise<Sent | undefined> {
  const earlier = await earlierSave(executor, log, key)
  if (earlier === undefined) return undefined
  const rows = await executor.runArrays(sql`/* sessions.outcome_of_key */
    select e.stream, max(e.version), max(e.position), string_agg(e.event_id::text, ',' order by e.version)
    from ${log.names.idempotency_keys} as k
    join ${log.names.events} as e on e.event_id = any(k.event_ids)
    where k.key = ${key}::text
    group by e.stream
    order by e.stream`)
  const streams = (rows as [string, number, number, string][]).map(([stream, version, position, ids]) => ({
    stream,
    version: Number(version),
    position,
    eventIds: ids.split(','),
    repeated: true,
  }))
  return { documents: earlier.documents ?? [], streams, repeated: true }
}
