/**
 * Many writes to one collection in one statement, with an outcome for each: what bulk calls, the batch writer and
 * sessions are made of.
 *
 * The statement locks what is there, in the order of the ids, judges each change by it, and then writes. If any is
 * refused nothing is written, unless `partial` is asked for. One refusal can only be found while writing: an insert
 * of an id that another transaction commits just then. So a call with inserts belongs into a transaction that is rolled
 * back when an outcome is a refusal.
 */

import { InvalidOption } from '../core/errors.ts'
import type { Executor } from '../database/database.ts'
import { type Statement, sql } from '../database/sql.ts'
import { moment } from '../schema/clock.sql.ts'
import type { CollectionBase } from './collection.ts'
import { firstVersion, keepingVersions } from './keep.ts'
import { runRows, tellDocuments } from './run.ts'

/** A change of one document. `body` is JSON text, as `checkedBody` gives it. */
export interface Change {
  readonly kind: ChangeKind
  readonly id: string
  readonly body?: string | undefined
  readonly expected?: number | undefined
}

/**
 * `insert`: there must be none. `put`: whatever is there; with `expected` like update. `update`: there must be one.
 * `delete`: for good; one that is not there is no refusal unless a version was expected. `softDelete`, `restore`: there
 * must be one; what is so already stays as it is.
 */
export type ChangeKind = 'insert' | 'put' | 'update' | 'delete' | 'softDelete' | 'restore'

export interface ChangeOutcome {
  readonly id: string
  /** `withheld`: nothing stood against it, but something did against another, so none was written. */
  readonly outcome: 'written' | 'withheld' | 'missing' | 'exists' | 'deleted' | 'conflict'
  /** The version it has now (a deleted one: had); undefined if there is none, or it is not known. */
  readonly version: number | undefined
}

export interface WriteManyOptions {
  readonly userId?: string | null | undefined
  /** Write what can be written, even if some cannot. Default false. */
  readonly partial?: boolean | undefined
}

/** Each id at most once. The outcomes are in the order of the changes. */
export async function writeDocuments(
  executor: Executor,
  collection: CollectionBase,
  changes: readonly Change[],
  options: WriteManyOptions = {},
): Promise<ChangeOutcome[]> {
  if (changes.length === 0) return []
  if (new Set(changes.map(change => change.id)).size < changes.length)
    throw new InvalidOption({ option: 'changes', reason: 'has an id twice' })
  const userId = options.userId ?? null
  // Only of a single one the value that is there already can be told.
  const bodies = changes.length === 1 && changes[0]!.body !== undefined ? [changes[0]!.body] : []
  const blind = changes.every(change => change.kind === 'put' && change.expected === undefined)
  const statement = blind
    ? keepingVersions(collection, putAll(collection, changes, userId))
    : judgeAll(collection, changes, userId, options.partial ?? false)
  const rows = await runRows(collection, executor, statement, bodies)
  const byId = new Map<string, Judged>()
  for (const row of rows) byId.set(row[0] as string, row as Judged)
  const judged = changes.map(change => outcomeOf(change, byId.get(change.id)!))
  const outcomes = blind ? judged : conclude(changes, judged, options.partial ?? false)
  tellDocuments(collection, 'written', statement.label, outcomes.filter(each => each.outcome === 'written').length)
  return outcomes
}

/** If one is refused and not all that can be is to be written, nothing was. */
function conclude(changes: readonly Change[], judged: readonly ChangeOutcome[], partial: boolean): ChangeOutcome[] {
  const isRefused = !partial && changes.some((change, i) => isRefusal(change, judged[i]!))
  if (!isRefused) return judged.map((each, i) => madeMeanwhile(changes[i]!, each))
  return judged.map(each => (each.outcome === 'written' ? { ...each, outcome: 'withheld' } : each))
}

function outcomeOf({ id }: Change, [, version, outcome = 'written', before]: Judged): ChangeOutcome {
  const reached = version ?? before ?? undefined
  return { id, outcome, version: reached === undefined ? undefined : Number(reached) }
}

/** An insert that was judged well and yet made nothing: somebody else's was committed in between. */
function madeMeanwhile(change: Change, each: ChangeOutcome): ChangeOutcome {
  const isMissed = change.kind === 'insert' && each.outcome === 'written' && each.version === undefined
  return isMissed ? { ...each, outcome: 'exists' } : each
}

type Judged = [string, number | null, ChangeOutcome['outcome'] | undefined, number | null | undefined]

/** Whether an outcome is a refusal of this change. */
export function isRefusal(change: Change, { outcome }: ChangeOutcome): boolean {
  if (outcome === 'written' || outcome === 'withheld') return false
  return !(outcome === 'missing' && change.kind === 'delete' && change.expected === undefined)
}

/** Upserts need no judging. */
function putAll(collection: CollectionBase, changes: readonly Change[], userId: string | null): Statement {
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

/** As one array, null where there is none: an array of texts would be quoted and read again, at three times the cost. */
function bodiesOf(changes: readonly Change[]): string {
  return `[${changes.map(change => change.body ?? 'null').join(',')}]`
}

function judgeAll(
  collection: CollectionBase,
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
  const keeping =
    historyTable === undefined
      ? ''
      : `, kept as (
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
    )${keeping}
    select judged.id, coalesce(written.version, gone.version),
      case judged.outcome when 'absent' then 'missing' when 'same' then 'written' else judged.outcome end, judged.before
    from judged
    left join written on written.id = judged.id
    left join gone on gone.id = judged.id`
  return { label: 'documents.write_many', text, values }
}
