/** Changing one document by a function of what is there, under a lock on its row. */

import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { checkExpected, checkedBody, checkId, checkUserId, readBody } from './body.ts'
import { type CollectionBase, preparedToWrite } from './collection.ts'
import { InvalidDocument } from './errors.ts'
import { type ExpectedOptions, refuseUnfit, replaceDocument } from './write.ts'

/** Two statements in one transaction; nobody else writes the document in between. */
export async function updateDocument(
  collection: CollectionBase,
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
    refuseUnfit(collection, id, found, expected)
    const data = await change(readBody(collection, id, row![2]) as never)
    if (data === undefined)
      throw new InvalidDocument({
        collection: collection.name,
        id,
        path: 'data',
        reason: 'is undefined after the update',
      })
    const body = await checkedBody(collection, id, data)
    return replaceDocument(collection, within, { id, body, userId, expected: found.version })
  }

  if (options.tx !== undefined) return work(executor)
  return collection.parts.database.transaction(work, { signal: options.signal })
}
