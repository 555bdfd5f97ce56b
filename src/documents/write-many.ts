/**
 * Many writes to one collection in one statement, with an outcome for each. Bulk calls, batches and sessions use it.
 *
 *     lock the documents, in the order of their ids ──► judge each change ──► write, unless one is refused
 *
 * If any change is refused nothing is written, unless `partial` says otherwise. One refusal shows only while writing: an
 * insert of an id that another transaction commits at that moment. So a call with inserts belongs into a transaction that
 * is rolled back when an outcome is a refusal.
 */

import { InvalidOption } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { type Statement, sql } from '../database/sql.ts'
import { moment } from '../schema/clock.sql.ts'
import type { OpenCollection } from './collection.ts'
import { reportDocuments, runRows } from './execute.ts'
import { firstVersion, withVersions } from './history.ts'

/** A change of one document. `body` is JSON text, from `checkedBody`. */
export interface Change {
  readonly kind: ChangeKind
  readonly id: string
  readonly body?: string | undefined
  readonly expected?: number | undefined
}

/**
 * `insert`: refused if the document exists. `put`: makes or replaces it; with `expected` like `update`. `update`: refused if it
 * does not exist. `delete`: for good; refused only if a version was expected and there is none. `softDelete`, `restore`:
 * refused if it does not exist; one that is deleted, or visible, already is not changed.
 */
export type ChangeKind = 'insert' | 'put' | 'update' | 'delete' | 'softDelete' | 'restore'

export interface ChangeOutcome {
  readonly id: string
  /** `withheld`: it was not written because another change of the call was refused. */
  readonly outcome: 'written' | 'withheld' | 'missing' | 'exists' | 'deleted' | 'conflict'
  /** The version it has now, or had when it was deleted; undefined if there is none, or it is not known. */
  readonly version: number | undefined
}

export interface WriteManyOptions {
  readonly userId?: string | null | undefined
  /** Write the changes that are not refused, even if others are. Default false. */
  readonly partial?: boolean | undefined
}

/** Each id at most once. The outcomes are in the order of the changes. */
export async function writeDocuments(
  executor: Executor,
  collection: OpenCollection,
  changes: readonly Change[],
  options: WriteManyOptions = {},
): Promise<ChangeOutcome[]> {
  if (changes.length === 0) return []
  if (new Set(changes.map(change => change.id)).size < changes.length)
    throw new InvalidOption({
      option: 'changes',
      reason: 'The changes of one statement have an id twice. Divide them.',
    })
  const userId = options.userId ?? null
  // An error can name the value that exists already only if there is a single document.
  const bodies = changes.length === 1 && changes[0]!.body !== undefined ? [changes[0]!.body] : []
  const blind = changes.every(change => change.kind === 'put' && change.expected === undefined)
  const statement = blind
    ? withVersions(collection, putAll(collection, changes, userId))
    : judgeAll(collection, changes, userId, options.partial ?? false)
  const rows = await runRows(collection, executor, statement, bodies)
  const byId = new Map<string, Judged>()
  for (const row of rows) byId.set(row[0] as string, row as Judged)
  const judged = changes.map(change => outcomeOf(change, byId.get(change.id)!))
  const outcomes = blind ? judged : withRefusals(changes, judged, options.partial ?? false)
  reportDocuments(collection, 'written', statement.label, outcomes.filter(each => each.outcome === 'written').length)
  return outcomes
}

/** If a change was refused, and not `partial`, nothing was written. */
function withRefusals(changes: readonly Change[], judged: readonly ChangeOutcome[], partial: boolean): ChangeOutcome[] {
  const isRefused = !partial && changes.some((change, i) => isRefusal(change, judged[i]!))
  if (!isRefused) return judged.map((each, i) => insertedMeanwhile(changes[i]!, each))
  return judged.map(each => (each.outcome === 'written' ? { ...each, outcome: 'withheld' } : each))
}

function outcomeOf({ id }: Change, [, version, outcome = 'written', before]: Judged): ChangeOutcome {
  const reached = version ?? before ?? undefined
  return { id, outcome, version: reached === undefined ? undefined : Number(reached) }
}

/** An insert that was not refused and yet made nothing: another transaction has committed the same id in between. */
function insertedMeanwhile(change: Change, each: ChangeOutcome): ChangeOutcome {
  const isMissed = change.kind === 'insert' && each.outcome === 'written' && each.version === undefined
  return isMissed ? { ...each, outcome: 'exists' } : each
}

type Judged = [string, number | null, ChangeOutcome['outcome'] | undefined, number | null | undefined]

/** Whether an outcome is a refusal of this change. */
export function isRefusal(change: Change, { outcome }: ChangeOutcome): boolean {
  if (outcome === 'written' || outcome === 'withheld') return false
  return !(outcome === 'missing' && change.kind === 'delete' && change.expected === undefined)
}

/** Upserts are never refused. */
function putAll(collection: OpenCollection, changes: readonly Change[], userId: string | null): Statement {
  return sql`/* documents.put_many */
    insert into ${collection.table} as d (version, created_at, updated_at, id, created_by, updated_by, body)
    select ${firstVersion(collection, 'item.id')}, moment.at, moment.at, item.id, ${userId}::text, ${userId}::text,
      item.body
    from rows from (
      unnest(${changes.map(change => change.id)}::text[]),
      jsonb_array_elements(${bodiesOf(changes)}::jsonb)) as item(id, body)
    cross join ${moment(collection.clock)}
    order by item.id collate "C"
    on conflict (id) do update
    set version = d.version + 1,
      updated_at = excluded.updated_at,
      deleted_at = null,
      updated_by = excluded.updated_by,
      body = excluded.body`
}

/** All bodies as one JSON array, null where there is none: an array of texts would be quoted and parsed, at three times the cost. */
function bodiesOf(changes: readonly Change[]): string {
  return `[${changes.map(change => change.body ?? 'null').join(',')}]`
}

function judgeAll(
  collection: OpenCollection,
  changes: readonly Change[],
  userId: string | null,
  partial: boolean,
): Statement {
  const { table, historyTable } = collection
  const first = firstVersion(collection, 'fine.id')
  const written = 'd.id, d.version, d.created_at, d.created_by, d.updated_at, d.updated_by, d.deleted_at, d.body'
  const columns = written.replaceAll('d.', '')
  const values = [
    changes.map(change => change.id),
    changes.map(change => change.kind),
    changes.map(change => change.expected ?? null),
    bodiesOf(changes),
    userId,
    partial,
  ]
  const storing =
    historyTable === undefined
      ? ''
      : `, stored as (
      insert into ${historyTable} (${columns})
      select ${columns} from written
      union all
      select id, version + 1, created_at, created_by, moment.at, $5::text, moment.at, null from gone cross join moment
    )`
  const text = `/* documents.write_many */
    with moment as materialized (
      select moment.at from ${moment(collection.clock)}
    ), item as materialized (
      select id, kind, expected, nullif(body, 'null') as body
      from rows from (
        unnest($1::text[], $2::text[], $3::bigint[]),
        jsonb_array_elements($4::jsonb)) as item(id, kind, expected, body)
    ), found as materialized (
      select id, version, deleted_at is not null as is_deleted
      from ${table}
      where id = any($1::text[])
      order by id
      for update
    ), judged as materialized (
      select item.id, item.kind, item.body, found.version as before,
        case
          when item.kind = 'insert' then
            case when found.id is null then 'written' when found.is_deleted then 'deleted' else 'exists' end
          when item.kind = 'put' and item.expected is null then 'written'
          when found.id is null then
            case when item.kind = 'delete' and item.expected is null then 'absent' else 'missing' end
          when found.is_deleted and item.kind in ('put', 'update') then 'deleted'
          when item.expected <> found.version then 'conflict'
          when item.kind = 'softDelete' and found.is_deleted then 'same'
          when item.kind = 'restore' and not found.is_deleted then 'same'
          else 'written'
        end as outcome
      from item
      left join found on found.id = item.id
    ), fine as materialized (
      select id, kind, body, before
      from judged
      where outcome = 'written'
        and ($6::boolean or not exists (select from judged where outcome not in ('written', 'absent', 'same')))
    ), gone as (
      delete from ${table} as d
      using fine
      where d.id = fine.id
        and fine.kind = 'delete'
      returning ${written}
    ), changed as (
      update ${table} as d
      set version = d.version + 1,
        updated_at = moment.at,
        deleted_at = case when fine.kind = 'softDelete' then moment.at end,
        updated_by = $5::text,
        body = coalesce(fine.body, d.body)
      from fine
      cross join moment
      where d.id = fine.id
        and fine.before is not null
        and fine.kind <> 'delete'
      returning ${written}
    ), made as (
      insert into ${table} as d (version, created_at, updated_at, id, created_by, updated_by, body)
      select ${first}, moment.at, moment.at, fine.id, $5::text, $5::text, fine.body
      from fine
      cross join moment
      where fine.before is null
        and fine.kind = 'put'
      order by fine.id collate "C"
      on conflict (id) do update
      set version = d.version + 1,
        updated_at = excluded.updated_at,
        deleted_at = null,
        updated_by = excluded.updated_by,
        body = excluded.body
      returning ${written}
    ), inserted as (
      insert into ${table} as d (version, created_at, updated_at, id, created_by, updated_by, body)
      select ${first}, moment.at, moment.at, fine.id, $5::text, $5::text, fine.body
      from fine
      cross join moment
      where fine.before is null
        and fine.kind = 'insert'
      order by fine.id collate "C"
      on conflict (id) do nothing
      returning ${written}
    ), written as (
      select * from changed
      union all
      select * from made
      union all
      select * from inserted
    )${storing}
    select judged.id, coalesce(written.version, gone.version),
      case judged.outcome when 'absent' then 'missing' when 'same' then 'written' else judged.outcome end, judged.before
    from judged
    left join written on written.id = judged.id
    left join gone on gone.id = judged.id`
  return { label: 'documents.write_many', text, values }
}
