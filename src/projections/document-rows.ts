/**
 * The documents of a projection in their table, which has the layout of a collection's, so that it can be read as one.
 * One statement reads those of a batch, one writes them, one deletes.
 */
import type { ReadStored } from '../aggregates/projected.ts'
import { isRillflowError } from '../core/errors.ts'
import { encodeJson } from '../core/json.ts'
import { nameFault } from '../core/name.ts'
import type { Executor } from '../database/database.ts'
import { type Identifier, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { InvalidProjectionValue } from './errors.ts'

export interface ProjectedDocument {
  /** Undefined: there is none. */
  readonly body: unknown
  readonly version: number
  readonly createdAt: Date
  readonly createdBy: string | undefined
  readonly updatedAt: Date
  readonly updatedBy: string | undefined
}

/**
 * The documents of these ids, which are sorted. Inline, other transactions may be folding into the same ones: the first
 * makes the row, so that there is one to lock also for a document that does not exist yet; all lock in one order.
 */
export async function loadDocuments(
  executor: Executor,
  documents: Identifier,
  ids: readonly string[],
  isInline: boolean,
): Promise<Map<string, ProjectedDocument>> {
  if (isInline)
    await executor.run(sql`/* projections.claim_documents */
      insert into ${documents} (version, created_at, updated_at, id, body)
      select 0, 'epoch', 'epoch', id, 'null'
      from unnest(${ids}::text[]) as wanted(id)
      order by id collate "C"
      on conflict do nothing`)
  const rows = await executor.runArrays(
    isInline
      ? sql`/* projections.lock_documents */
          select id, body, version, created_at, created_by, updated_at, updated_by
          from ${documents}
          where id = any(${ids}::text[])
          order by id
          for update`
      : sql`/* projections.load_documents */
          select id, body, version, created_at, created_by, updated_at, updated_by
          from ${documents}
          where id = any(${ids}::text[])`,
  )
  const loaded = new Map<string, ProjectedDocument>()
  for (const row of rows) {
    const [id, body, version, createdAt, createdBy, updatedAt, updatedBy] = row as DocumentRow
    const people = { createdBy: createdBy ?? undefined, updatedBy: updatedBy ?? undefined }
    loaded.set(id, { body: body ?? undefined, version, createdAt, updatedAt, ...people })
  }
  return loaded
}

type DocumentRow = [string, unknown, number, Date, string | null, Date, string | null]

/** Writes the documents that exist after the batch, and deletes the others. */
export async function writeDocuments(
  executor: Executor,
  table: Identifier,
  projection: string,
  documents: ReadonlyMap<string, ProjectedDocument>,
): Promise<void> {
  const live = [...documents].filter(([, document]) => document.body !== undefined)
  const gone = [...documents].filter(([, document]) => document.body === undefined).map(([id]) => id)
  for (const id of documents.keys()) checkId(projection, id)
  if (gone.length > 0)
    await executor.run(sql`/* projections.delete_documents */
      delete from ${table}
      where id = any(${gone}::text[])`)
  if (live.length === 0) return
  const column = <T>(take: (document: ProjectedDocument) => T): T[] => live.map(([, document]) => take(document))
  const bodies = live.map(([id, document]) => encodeBody(projection, id, document.body))
  await executor.run(sql`/* projections.write_documents */
    insert into ${table} (version, created_at, updated_at, id, created_by, updated_by, body)
    select version, created_at, updated_at, id, created_by, updated_by, body::jsonb
    from unnest(
      ${column(document => document.version)}::bigint[],
      ${column(document => document.createdAt.toISOString())}::timestamptz[],
      ${column(document => document.updatedAt.toISOString())}::timestamptz[],
      ${live.map(([id]) => id)}::text[],
      ${column(document => document.createdBy ?? null)}::text[],
      ${column(document => document.updatedBy ?? null)}::text[],
      ${bodies}::text[]) as document(version, created_at, updated_at, id, created_by, updated_by, body)
    on conflict (id) do update
    set version = excluded.version,
      created_at = excluded.created_at,
      updated_at = excluded.updated_at,
      deleted_at = null,
      created_by = excluded.created_by,
      updated_by = excluded.updated_by,
      body = excluded.body`)
}

function checkId(projection: string, id: string): void {
  const fault = typeof id === 'string' ? nameFault(id) : `is ${typeof id}`
  if (fault !== undefined)
    throw new InvalidProjectionValue({ projection, path: `document id ${JSON.stringify(id)}`, reason: fault })
}

const maxBytes = 64 * 1024 * 1024

function encodeBody(projection: string, id: string, body: unknown): string {
  try {
    return encodeJson(body, { what: 'document', root: 'body', maxBytes }).text
  } catch (error) {
    if (!isRillflowError(error, 'invalid_event')) throw error
    const { path, reason } = error as unknown as { path: string; reason: string }
    throw new InvalidProjectionValue({ projection, path: `document ${JSON.stringify(id)}, ${path}`, reason }, error)
  }
}

/** Reads the stored document of one stream, for an aggregate that folds the events after it. */
export function readStored(tableIn: (schema: string) => Identifier): ReadStored {
  const made = new WeakSet<Log>()
  return async (log, executor, stream) => {
    const table = tableIn(log.schema)
    if (!made.has(log)) {
      const [row] = await executor.run<{ exists: boolean }>(sql`/* projections.has_table */
        select to_regclass(${table.quoted}::text) is not null as exists`)
      if (row?.exists !== true) return undefined
      // A table that only a transaction sees may be gone with it.
      if (executor === log.database) made.add(log)
    }
    const [row] = await executor.run<{ body: unknown; version: number }>(sql`/* projections.stored */
      select body, version
      from ${table}
      where id = ${stream}::text
        and deleted_at is null
        and version > 0`)
    return row === undefined ? undefined : { state: row.body, version: row.version }
  }
}
