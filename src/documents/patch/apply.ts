/** Applying patches: one statement, for one document or for all that meet a condition. */

import type { Executor } from '../../database/database.ts'
import { SerializationFailed } from '../../database/errors.ts'
import { type Statement, sql } from '../../database/sql.ts'
import { checkExpected, checkId, checkStored, checkUserId, maxBytesOf, readBody } from '../body.ts'
import { type OpenCollection, preparedToWrite, type WriteOptions } from '../collection.ts'
import { PatchMismatch } from '../errors.ts'
import { atomically, runWrite } from '../execute.ts'
import { withVersions } from '../history.ts'
import { layoutOf } from '../indexes.ts'
import { type Condition, checked } from '../query/condition.ts'
import { documentScope, type Field, fieldsOf, type MetaFields, metaFields } from '../query/field.ts'
import { Parameters } from '../query/operand.ts'
import { renderCondition, startWriting } from '../query/render.ts'
import { attempt, type ExpectedOptions, refuseUnlessLive } from '../write.ts'
import { type PatchSql, renderPatch } from './render.ts'
import { mergeTreeOf, type PatchNode, treeOf } from './tree.ts'

export async function patchDocument(
  collection: OpenCollection,
  id: string,
  patch: object,
  options: ExpectedOptions = {},
): Promise<number> {
  return patchOne(collection, id, treeOf(patch, maxBytesOf(collection)), options)
}

/** A JSON Merge Patch (RFC 7396). */
export async function mergeDocument(
  collection: OpenCollection,
  id: string,
  patch: unknown,
  options: ExpectedOptions = {},
): Promise<number> {
  return patchOne(collection, id, mergeTreeOf(patch, maxBytesOf(collection)), options)
}

async function patchOne(
  collection: OpenCollection,
  id: string,
  tree: PatchNode,
  options: ExpectedOptions,
): Promise<number> {
  checkId(id)
  const expected = checkExpected(options.expected)
  const userId = checkUserId(options.userId)
  const executor = await preparedToWrite(collection, options)
  const patch = async (within: Executor): Promise<number> => {
    const statement = withVersions(collection, patchStatement(collection, tree, { id, expected, userId }))
    for (let tries = 0; tries < maxTries; tries++) {
      const version = await attempt(collection, within, { id, statement, signal: options.signal }, found => {
        refuseUnlessLive(collection, id, found, expected)
        return mismatch
      })
      if (version !== mismatch) return version
      await refuseMismatch(collection, within, tree, { text: 'd.id = $1::text', values: [id] })
    }
    throw new SerializationFailed({ reason: `document ${id} was changed by other writers ${maxTries} times meanwhile` })
  }
  if (collection.options.schema === undefined) return patch(executor)
  return atomically(collection, options, async within => {
    const version = await patch(within)
    await checkPatched(collection, within, [id])
    return version
  })
}

const maxTries = 10

/** Not a version: the document exists, but the patch does not fit it. */
const mismatch = 0

function patchStatement(
  collection: OpenCollection,
  tree: PatchNode,
  { id, expected, userId }: { id: string; expected: number | undefined; userId: string | null },
): Statement {
  const values: unknown[] = []
  const bind = (value: unknown): string => `$${values.push(value)}`
  const patch = renderPatch(tree, 'd.body', bind)
  const version = expected === undefined ? '' : `\n      and d.version = ${bind(expected)}::bigint`
  const text = `/* documents.patch */
    update ${collection.table} as d
    set version = d.version + 1,
      updated_at = ${collection.clock}(d.id),
      updated_by = ${bind(userId)}::text,
      body = ${bodyWithin(collection, patch)}
    where d.id = ${bind(id)}::text
      and d.deleted_at is null${version}
      and ${allOf(patch)}`
  return { label: 'documents.patch', text, values, shapeOf: shapeOf(collection) }
}

/**
 * The new body, or null, which the column refuses, if it is larger than a document may be. The size that comes back is that
 * of the text, which takes as long to make as to read, so it is made only where it may be too large: a number takes 26 times
 * as many bytes in the text as in the column, a character 6 times. The text has a space after each comma and colon.
 */
function bodyWithin(collection: OpenCollection, { body }: PatchSql): string {
  const maxBytes = Math.floor(maxBytesOf(collection) * 1.5)
  return `(
        select case when pg_column_size(patched.body) < ${Math.floor(maxBytes / 40)} or octet_length(patched.body::text) <= ${maxBytes} then patched.body end
        from (select ${body} as body offset 0) as patched)`
}

function shapeOf({ parts, tableName }: OpenCollection): string {
  return `${parts.schema.name}.${tableName}`
}

/** A condition on documents, which are called `d` in it, with parameters from $1. */
interface Selecting {
  readonly text: string
  readonly values: readonly unknown[]
}

/** Patches every document that meets the condition, all or none; returns how many. */
export async function patchDocuments(
  collection: OpenCollection,
  given: Condition | ((c: Field<never>, meta: MetaFields) => Condition),
  patch: object,
  options: WriteOptions = {},
): Promise<number> {
  const condition = checked(typeof given === 'function' ? given(fieldsOf<never>(documentScope), metaFields) : given)
  const parameters = new Parameters()
  const writing = startWriting(parameters, layoutOf(collection.options), collection.name, 'd.')
  const text = `d.deleted_at is null\n          and (${renderCondition(condition, writing)})`
  return patchAll(collection, { text, values: parameters.values }, patch, options)
}

async function patchAll(
  collection: OpenCollection,
  condition: Selecting,
  patch: object,
  options: WriteOptions,
): Promise<number> {
  const tree = treeOf(patch, maxBytesOf(collection))
  const userId = checkUserId(options.userId)
  const executor = await preparedToWrite(collection, options)
  const run = async (within: Executor): Promise<string[]> => {
    const values: unknown[] = [...condition.values]
    const bind = (value: unknown): string => `$${values.push(value)}`
    const rendered = renderPatch(tree, 'd.body', bind)
    const text = `/* documents.patch_many */
      with wanted as materialized (
        select d.id, ${allOf(rendered)} as fits
        from ${collection.table} as d
        where ${condition.text}
        order by d.id
        for update
      )
      update ${collection.table} as d
      set version = d.version + 1,
        updated_at = ${collection.clock}(d.id),
        updated_by = ${bind(userId)}::text,
        body = ${bodyWithin(collection, rendered)}
      from wanted
      where d.id = wanted.id
        and not exists (select from wanted where not fits)`
    const statement = { label: 'documents.patch_many', text, values, shapeOf: shapeOf(collection) }
    const rows = await runWrite(collection, within, withVersions(collection, statement))
    if (rows.length === 0) await refuseMismatch(collection, within, tree, condition)
    return rows.map(row => row[0] as string)
  }
  if (collection.options.schema === undefined) return (await run(executor)).length
  return atomically(collection, options, async within => {
    const ids = await run(within)
    await checkPatched(collection, within, ids)
    return ids.length
  })
}

/** Throws for the first document, and the path in it, that the patch does not fit; returns if there is none. */
async function refuseMismatch(
  collection: OpenCollection,
  executor: Executor,
  tree: PatchNode,
  condition: Selecting,
): Promise<void> {
  const values: unknown[] = [...condition.values]
  const patch = renderPatch(tree, 'd.body', value => `$${values.push(value)}`)
  if (patch.conditions.length === 0) return
  // The new body is named, too, so that every parameter is used, but is never made: the patch does not fit.
  const text = `/* documents.explain_patch */
    select d.id, array[${patch.conditions.map(({ sql }) => sql).join(', ')}], case when false then ${patch.body} end is null
    from ${collection.table} as d
    where ${condition.text}
      and not (${allOf(patch)})
    limit 1`
  const [row] = await executor.runArrays({ label: 'documents.explain_patch', text, values, unprepared: true })
  if (row === undefined) return
  const [id, held] = row as [string, unknown]
  const flags = Array.isArray(held) ? held : String(held).slice(1, -1).split(',')
  const failed = patch.conditions[flags.findIndex(flag => flag === false || flag === 'f' || flag === 'false')]
  if (failed !== undefined)
    throw new PatchMismatch({ collection: collection.name, id, path: failed.path, reason: failed.reason })
}

/** A schema can check the documents only after they were patched. */
async function checkPatched(collection: OpenCollection, executor: Executor, ids: readonly string[]): Promise<void> {
  const rows = await executor.runArrays(sql`/* documents.patched */
    select id, body
    from ${collection.table}
    where id = any(${ids}::text[])`)
  for (const [id, body] of rows as [string, unknown][])
    await checkStored(collection, id, readBody(collection, id, body))
}

function allOf({ conditions }: PatchSql): string {
  return conditions.length === 0 ? 'true' : `(${conditions.map(({ sql }) => sql).join('\n        and ')})`
}
