/** Reading what projections keep, or would keep: the same call whatever the lifecycle. */
import { checkName } from '../core/name.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { readStream } from '../events/read/read.ts'
import type { DocumentProjection } from './document.ts'
import type { Projection } from './projection.ts'
import { tableNames } from './table.ts'

/** The document under this id, as far as the projection has come. */
export async function readDocument(
  log: Log,
  executor: Executor,
  projection: DocumentProjection<unknown>,
  id: string,
): Promise<unknown> {
  checkName('Stream', id)
  const documents = tableNames(log.schema, projection)(projection.documentTable)
  const [row] = await executor.runArrays(sql`/* projections.get */
    select body
    from ${documents}
    where id = ${id}::text
      and deleted_at is null`)
  return row?.[0]
}

/** Folds a stream as it is now. */
export async function foldStream(
  log: Log,
  executor: Executor,
  projection: Projection,
  stream: string,
): Promise<unknown> {
  const types = projection.filter.types === undefined ? undefined : new Set(projection.filter.types)
  let document: unknown
  for await (const event of readStream(log, executor, stream, {})) {
    if (types === undefined || types.has(event.type)) document = projection.fold!(document, event)
  }
  return document
}
