/**
 * Writing one document: one statement each.
 *
 * A statement that writes nothing is followed by a look at the document, to say why. Between the two the document may
 * have changed again, so that the look finds no reason: then the write is simply tried again.
 */

import { throwIfAborted } from '../core/lifecycle.ts'
import type { Executor } from '../database/database.ts'
import { SerializationFailed } from '../database/errors.ts'
import { type Statement, sql } from '../database/sql.ts'
import { moment } from '../schema/clock.sql.ts'
import { checkExpected, checkedBody, checkId, checkUserId } from './body.ts'
import { type CollectionBase, preparedToWrite, type WriteOptions } from './collection.ts'
import { DocumentConflict, DocumentDeleted, DocumentExists, DocumentNotFound } from './errors.ts'
import { firstVersion, keepingEnd, keepingVersions } from './keep.ts'
import { runWrite } from './run.ts'

export interface ExpectedOptions extends WriteOptions {
  /** The version the document must have. */
  readonly expected?: number | undefined
}

/** Returns the version, which is 1 unless a history goes further back. */
export async function insertDocument(
  collection: CollectionBase,
  id: string,
  data: unknown,
  options: WriteOptions = {},
): Promise<number> {
  checkId(id)
  const userId = checkUserId(options.userId)
  const body = await checkedBody(collection, id, data)
  const executor = await preparedToWrite(collection, options)
  const statement = keepingVersions(
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

/** Without `expected` an upsert, which also revives what was soft-deleted; with it a checked update. */
export async function putDocument(
  collection: CollectionBase,
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
  const statement = keepingVersions(
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

/** Writes a body over the one that is there, at the expected version. */
export async function replaceDocument(
  collection: CollectionBase,
  executor: Executor,
  { id, body, userId, expected }: { id: string; body: string; userId: string | null; expected: number },
  signal?: AbortSignal,
): Promise<number> {
  const statement = keepingVersions(
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
    refuseUnfit(collection, id, found, expected)
    return undefined
  })
}

/** Hard: nothing is left of it but its history. True if there was one. */
export async function deleteDocument(
  collection: CollectionBase,
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
  const statement = keepingEnd(collection, deletion, userId)
  if (expected === undefined) return (await runWrite(collection, executor, statement)).length > 0
  await attempt(collection, executor, { id, statement, signal: options.signal }, found => {
    if (found === undefined) throw new DocumentNotFound({ collection: collection.name, id })
    refuseOther(collection, id, found, expected)
    return undefined
  })
  return true
}

/** Hides the document. Of one that is hidden already nothing changes. */
export async function softDeleteDocument(
  collection: CollectionBase,
  id: string,
  options: ExpectedOptions = {},
): Promise<number> {
  return hideOrShow(collection, id, options, 'soft_delete')
}

/** Takes a soft delete back. Of one that is not deleted nothing changes. */
export async function restoreDocument(
  collection: CollectionBase,
  id: string,
  options: ExpectedOptions = {},
): Promise<number> {
  return hideOrShow(collection, id, options, 'restore')
}

async function hideOrShow(
  collection: CollectionBase,
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
  const statement = keepingVersions(collection, change)
  return attempt(collection, executor, { id, statement, signal: options.signal }, found => {
    if (found === undefined) throw new DocumentNotFound({ collection: collection.name, id })
    if (expected !== undefined) refuseOther(collection, id, found, expected)
    return found.isDeleted === hides ? found.version : undefined
  })
}

interface Found {
  readonly version: number
  readonly isDeleted: boolean
}

/** A statement on one document: the version it made, or what `judge` says about what is there instead. */
export async function attempt(
  collection: CollectionBase,
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
  throw new SerializationFailed({ reason: `document ${write.id} was changed by others ${maxTries} times meanwhile` })
}

const maxTries = 10

async function lookAt(collection: CollectionBase, executor: Executor, id: string): Promise<Found | undefined> {
  const [row] = await executor.runArrays(sql`/* documents.look */
    select version, deleted_at is not null
    from ${collection.table}
    where id = ${id}::text`)
  return row === undefined ? undefined : { version: Number(row[0]), isDeleted: row[1] as boolean }
}

/** Says why a live document of this version cannot be had; returns if it can. */
export function refuseUnfit(
  collection: CollectionBase,
  id: string,
  found: Found | undefined,
  expected: number | undefined,
): asserts found is Found {
  if (found === undefined) throw new DocumentNotFound({ collection: collection.name, id })
  if (found.isDeleted) throw new DocumentDeleted({ collection: collection.name, id, version: found.version })
  if (expected !== undefined) refuseOther(collection, id, found, expected)
}

function refuseOther(collection: CollectionBase, id: string, found: Found, expected: number): void {
  if (found.version === expected) return
  collection.parts.telemetry.count('document_conflicts_total')
  throw new DocumentConflict({ collection: collection.name, id, expected, actual: found.version })
}
