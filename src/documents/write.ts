/**
 * Writing one document: one statement each; `update` takes two, with a lock on the row between them.
 *
 * A statement that wrote nothing is followed by a look at the document, to find out why. Between the two the document may
 * have changed again, so that the look finds no reason: then the write is tried again.
 */

import { throwIfAborted } from '../core/abort.ts'
import type { Executor } from '../database/database.ts'
import { SerializationFailed } from '../database/errors.ts'
import { type Statement, sql } from '../database/sql.ts'
import { moment } from '../schema/clock.sql.ts'
import { checkExpected, checkedBody, checkId, checkUserId, readBody } from './body.ts'
import { type OpenCollection, preparedToWrite, type WriteOptions } from './collection.ts'
import { DocumentConflict, DocumentDeleted, DocumentExists, DocumentNotFound, InvalidDocument } from './errors.ts'
import { runWrite } from './execute.ts'
import { firstVersion, withDeletion, withVersions } from './history.ts'

export interface ExpectedOptions extends WriteOptions {
  /** The version the document must have. */
  readonly expected?: number | undefined
}

/** Returns the version: 1, or the next one if the id has a history. */
export async function insertDocument(
  collection: OpenCollection,
  id: string,
  data: unknown,
  options: WriteOptions = {},
): Promise<number> {
  checkId(id)
  const userId = checkUserId(options.userId)
  const body = await checkedBody(collection, id, data)
  const executor = await preparedToWrite(collection, options)
  const statement = withVersions(
    collection,
    sql`/* documents.insert */
    insert into ${collection.table} as d (version, created_at, updated_at, id, created_by, updated_by, body)
    select ${firstVersion(collection, '$1::text')}, moment.at, moment.at, ${id}::text, ${userId}::text, ${userId}::text,
      ${body}::jsonb
    from ${moment(collection.clock)}
    on conflict (id) do nothing`,
  )
  return attempt(collection, executor, { id, statement, body, signal: options.signal }, found => {
    if (found === undefined) return undefined
    const { version, isDeleted } = found
    const data = { collection: collection.name, id, version }
    throw isDeleted ? new DocumentDeleted(data) : new DocumentExists(data)
  })
}

/** Without `expected` an upsert, which also restores a soft-deleted document; with it a checked update. */
export async function putDocument(
  collection: OpenCollection,
  id: string,
  data: unknown,
  options: ExpectedOptions = {},
): Promise<number> {
  checkId(id)
  const expected = checkExpected(options.expected)
  const userId = checkUserId(options.userId)
  const body = await checkedBody(collection, id, data)
  const executor = await preparedToWrite(collection, options)
  if (expected !== undefined)
    return replaceDocument(collection, executor, { id, body, userId, expected }, options.signal)
  const statement = withVersions(
    collection,
    sql`/* documents.put */
    insert into ${collection.table} as d (version, created_at, updated_at, id, created_by, updated_by, body)
    select ${firstVersion(collection, '$1::text')}, moment.at, moment.at, ${id}::text, ${userId}::text, ${userId}::text,
      ${body}::jsonb
    from ${moment(collection.clock)}
    on conflict (id) do update
    set version = d.version + 1,
      updated_at = excluded.updated_at,
      deleted_at = null,
      updated_by = excluded.updated_by,
      body = excluded.body`,
  )
  const [row] = await runWrite(collection, executor, statement, [body])
  return Number(row![1])
}

/** Replaces the body of a document that has the expected version. */
export async function replaceDocument(
  collection: OpenCollection,
  executor: Executor,
  { id, body, userId, expected }: { id: string; body: string; userId: string | null; expected: number },
  signal?: AbortSignal,
): Promise<number> {
  const statement = withVersions(
    collection,
    sql`/* documents.replace */
    update ${collection.table} as d
    set version = d.version + 1,
      updated_at = ${collection.clock}(d.id),
      updated_by = ${userId}::text,
      body = ${body}::jsonb
    where d.id = ${id}::text
      and d.version = ${expected}::bigint
      and d.deleted_at is null`,
  )
  return attempt(collection, executor, { id, statement, body, signal }, found => {
    refuseUnlessLive(collection, id, found, expected)
    return undefined
  })
}

/** Deletes a document for good; only its history stays. True if there was one. */
export async function deleteDocument(
  collection: OpenCollection,
  id: string,
  options: ExpectedOptions = {},
): Promise<boolean> {
  checkId(id)
  const expected = checkExpected(options.expected)
  const userId = checkUserId(options.userId)
  const executor = await preparedToWrite(collection, options)
  const deletion =
    expected === undefined
      ? sql`/* documents.delete */
          delete from ${collection.table} as d
          where d.id = ${id}::text`
      : sql`/* documents.delete_expected */
          delete from ${collection.table} as d
          where d.id = ${id}::text
            and d.version = ${expected}::bigint`
  const statement = withDeletion(collection, deletion, userId)
  if (expected === undefined) return (await runWrite(collection, executor, statement)).length > 0
  await attempt(collection, executor, { id, statement, signal: options.signal }, found => {
    if (found === undefined) throw new DocumentNotFound({ collection: collection.name, id })
    refuseOtherVersion(collection, id, found, expected)
    return undefined
  })
  return true
}

/** Hides a document. One that is hidden already is not changed. */
export async function softDeleteDocument(
  collection: OpenCollection,
  id: string,
  options: ExpectedOptions = {},
): Promise<number> {
  return hideOrShow(collection, id, options, 'soft_delete')
}

/** Makes a soft-deleted document visible again. One that is not deleted is not changed. */
export async function restoreDocument(
  collection: OpenCollection,
  id: string,
  options: ExpectedOptions = {},
): Promise<number> {
  return hideOrShow(collection, id, options, 'restore')
}

async function hideOrShow(
  collection: OpenCollection,
  id: string,
  options: ExpectedOptions,
  what: 'soft_delete' | 'restore',
): Promise<number> {
  checkId(id)
  const expected = checkExpected(options.expected)
  const userId = checkUserId(options.userId)
  const executor = await preparedToWrite(collection, options)
  const hides = what === 'soft_delete'
  const change = hides
    ? sql`/* documents.soft_delete */
        update ${collection.table} as d
        set version = d.version + 1,
          updated_at = moment.at,
          deleted_at = moment.at,
          updated_by = ${userId}::text
        from ${moment(collection.clock)}
        where d.id = ${id}::text
          and d.deleted_at is null
          and d.version = coalesce(${expected ?? null}::bigint, d.version)`
    : sql`/* documents.restore */
        update ${collection.table} as d
        set version = d.version + 1,
          updated_at = ${collection.clock}(d.id),
          deleted_at = null,
          updated_by = ${userId}::text
        where d.id = ${id}::text
          and d.deleted_at is not null
          and d.version = coalesce(${expected ?? null}::bigint, d.version)`
  const statement = withVersions(collection, change)
  return attempt(collection, executor, { id, statement, signal: options.signal }, found => {
    if (found === undefined) throw new DocumentNotFound({ collection: collection.name, id })
    if (expected !== undefined) refuseOtherVersion(collection, id, found, expected)
    return found.isDeleted === hides ? found.version : undefined
  })
}

interface Found {
  readonly version: number
  readonly isDeleted: boolean
}

/**
 * Runs a statement on one document: returns the version it made, or the result of `judge` for the existing document.
 */
export async function attempt(
  collection: OpenCollection,
  executor: Executor,
  write: { id: string; statement: Statement; body?: string; signal?: AbortSignal | undefined },
  judge: (found: Found | undefined) => number | undefined,
): Promise<number> {
  for (let tries = 0; tries < maxTries; tries++) {
    throwIfAborted(write.signal)
    const [row] = await runWrite(collection, executor, write.statement, write.body === undefined ? [] : [write.body])
    if (row !== undefined) return Number(row[1])
    const verdict = judge(await lookAt(collection, executor, write.id))
    if (verdict !== undefined) return verdict
  }
  throw new SerializationFailed({
    reason: `document ${write.id} was changed by other writers ${maxTries} times meanwhile`,
  })
}

const maxTries = 10

async function lookAt(collection: OpenCollection, executor: Executor, id: string): Promise<Found | undefined> {
  const [row] = await executor.runArrays(sql`/* documents.look */
    select version, deleted_at is not null
    from ${collection.table}
    where id = ${id}::text`)
  return row === undefined ? undefined : { version: Number(row[0]), isDeleted: row[1] as boolean }
}

/** Throws the reason why there is no document of this version; returns if there is one. */
export function refuseUnlessLive(
  collection: OpenCollection,
  id: string,
  found: Found | undefined,
  expected: number | undefined,
): asserts found is Found {
  if (found === undefined) throw new DocumentNotFound({ collection: collection.name, id })
  if (found.isDeleted) throw new DocumentDeleted({ collection: collection.name, id, version: found.version })
  if (expected !== undefined) refuseOtherVersion(collection, id, found, expected)
}

function refuseOtherVersion(collection: OpenCollection, id: string, found: Found, expected: number): void {
  if (found.version === expected) return
  collection.parts.telemetry.count('document_conflicts_total')
  throw new DocumentConflict({ collection: collection.name, id, expected, actual: found.version })
}

/** Changes a document by a function: two statements in one transaction, with a lock on the row in between. */
export async function updateDocument(
  collection: OpenCollection,
  id: string,
  change: (data: never) => unknown,
  options: ExpectedOptions = {},
): Promise<number> {
  checkId(id)
  const expected = checkExpected(options.expected)
  const userId = checkUserId(options.userId)
  const executor = await preparedToWrite(collection, options)

  const work = async (within: Executor): Promise<number> => {
    const [row] = await within.runArrays(sql`/* documents.lock */
      select version, deleted_at is not null, body
      from ${collection.table}
      where id = ${id}::text
      for update`)
    const found = row === undefined ? undefined : { version: Number(row[0]), isDeleted: row[1] as boolean }
    refuseUnlessLive(collection, id, found, expected)
    const data = await change(readBody(collection, id, row![2]) as never)
    if (data === undefined)
      throw new InvalidDocument({
        collection: collection.name,
        id,
        path: 'data',
        reason: 'is undefined after the update: return the new data, data => ({ ...data, visits: 1 })',
      })
    const body = await checkedBody(collection, id, data)
    return replaceDocument(collection, within, { id, body, userId, expected: found.version })
  }

  if (options.tx !== undefined) return work(executor)
  return collection.parts.database.transaction(work, { signal: options.signal })
}
