/**
 * The last part of every statement that writes: it tells which versions were made and, where a history is kept, keeps
 * them, so that a version and its place in the history are one statement's work.
 *
 * The history has every version, the newest too. Keeping only what is replaced would need a look at the row before it is
 * written, and an upsert has no such look: a row that came in meanwhile would be replaced unseen.
 */

import { Identifier, type Statement } from '../database/sql.ts'
import { moment } from '../schema/clock.sql.ts'
import type { CollectionBase } from './collection.ts'

/** Completes an insert or update of `d`: gives back id and version of each row. */
export function keepingVersions(collection: CollectionBase, statement: Statement): Statement {
  const { historyTable } = collection
  const { label, text, values } = statement
  if (historyTable === undefined) return { label, text: `${text}\n    returning d.id, d.version`, values }
  return {
    label,
    text: `/* ${label} */
    with written as (
      ${text}
      returning ${columns.map(column => `d.${column}`).join(', ')}
    ), kept as (
      insert into ${historyTable} (${columns.join(', ')})
      select ${columns.join(', ')}
      from written
    )
    select id, version
    from written`,
    values,
  }
}

/** Completes a delete of `d`: its end is a version too, one without a body. */
export function keepingEnd(collection: CollectionBase, statement: Statement, userId: string | null): Statement {
  const { historyTable } = collection
  const { label, text, values } = statement
  if (historyTable === undefined) return { label, text: `${text}\n    returning d.id, d.version`, values }
  return {
    label,
    text: `/* ${label} */
    with written as (
      ${text}
      returning d.id, d.version, d.created_at, d.created_by
    ), kept as (
      insert into ${historyTable} (id, version, created_at, created_by, updated_at, updated_by, deleted_at)
      select id, version + 1, created_at, created_by, moment.at, $${values.length + 1}::text, moment.at
      from written
      cross join ${moment(collection.clock)}
    )
    select id, version
    from written`,
    values: [...values, userId],
  }
}

/** The version of a new document of this id: 1, or one more than its history has. `id` is SQL for the id. */
export function firstVersion({ historyTable }: CollectionBase, id: string): Identifier {
  if (historyTable === undefined) return one
  return new Identifier(`(select coalesce(max(h.version), 0) + 1 from ${historyTable} as h where h.id = ${id})`)
}

const one = new Identifier('1')

/** What a version consists of, in the history as in the collection. */
const columns = ['id', 'version', 'created_at', 'created_by', 'updated_at', 'updated_by', 'deleted_at', 'body']
