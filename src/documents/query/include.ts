/** Related documents, read in the statement of the documents they belong to, whatever their number. */
import { InvalidQuery } from '../errors.ts'
import { toDocument } from '../read.ts'
import { jsonAt, metaColumns, short } from './expression.ts'
import { documentScope, type Place } from './field.ts'
import { isIndexed, readAs, startWriting, type Writing } from './render.ts'
import { type Included, renderFrom } from './state.ts'

/** A subquery that returns the related documents as one JSON array, in the order of their ids. */
export function renderIncluded({ source, state, local, foreign, many }: Included, outer: Writing): string {
  const alias = `j${outer.prefix}`
  const inner = startWriting(outer.binder, source.layout, source.collection.name, alias)
  const value = readAs(foreign, 'text', inner)
  if (value === undefined) throw new InvalidQuery({ reason: 'include compares fields that hold texts' })
  const ids = idsIn(local, outer)
  const joins = [`${value} = any(${ids})`]
  if (isIndexed(foreign, 'text', inner))
    joins.unshift(`${short(value)} = any(array(select ${short('each')} from unnest(${ids}) as each))`)
  const ms = (column: string): string => `extract(epoch from ${alias}${column}) * 1000`
  return `(
    select jsonb_agg(each.value order by each.id)
    from (
      select ${alias}id as id, jsonb_build_array(${alias}id, ${alias}body, ${alias}version, ${ms('created_at')},
        ${ms('updated_at')}, ${alias}created_by, ${alias}updated_by, ${ms('deleted_at')}) as value
      ${renderFrom(source, state, inner, joins)}
      order by ${alias}id
      ${many ? '' : 'limit 1'}) as each)`
}

/** The texts that a field holds: one, or those of its array. */
function idsIn(place: Place, writing: Writing): string {
  if (place.scope !== documentScope) throw new InvalidQuery({ reason: 'include takes fields of the document' })
  if (place.meta !== undefined) {
    if (metaColumns[place.meta].kind !== 'text')
      throw new InvalidQuery({ reason: 'include compares fields that hold texts' })
    return `array[${writing.prefix}${metaColumns[place.meta].column}]`
  }
  const json = jsonAt(`${writing.prefix}body`, place.path)
  return `(case jsonb_typeof(${json})
      when 'string' then array[${json} #>> '{}']
      when 'array' then array(
        select each #>> '{}'
        from jsonb_array_elements(case when jsonb_typeof(${json}) = 'array' then ${json} else '[]' end) as each
        where jsonb_typeof(each) = 'string')
      else '{}' end)`
}

/** The documents in the result of the subquery. */
export function takeIncluded({ source, many }: Included, value: unknown): unknown {
  const rows = (value ?? []) as unknown[][]
  const documents = rows.map(([id, body, version, createdAt, updatedAt, createdBy, updatedBy, deletedAt]) =>
    toDocument(source.collection, [
      ...[id, body, version, dateOf(createdAt), dateOf(updatedAt), createdBy, updatedBy, dateOf(deletedAt)],
    ]),
  )
  return many ? documents : documents[0]
}

function dateOf(ms: unknown): Date | null {
  return ms === null ? null : new Date(Math.floor(ms as number))
}
