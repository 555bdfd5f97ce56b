/**
 * One save of documents and events of one stream, when no other waits: as several of them in one statement, without the
 * arrays that several need.
 *
 *     append_check_one ──► a CTE for each document ──► append_store
 *
 * A document that is not as its save expects it fails the statement, as in `save-together.ts`.
 */
import { type Fragment, fragment, type Identifier, identifier, joinFragments, sql } from '../database/sql.ts'
import type { OpenCollection } from '../documents/collection.ts'
import { reportDocuments } from '../documents/execute.ts'
import { expectedVersion, expectedWord } from '../events/append/prepare.ts'
import { type Append, eventArguments, type Outcome, type OutcomeKind } from '../events/append/send.ts'
import type { Log } from '../events/log.ts'
import type { GroupableWrites } from './save-together.ts'

/** Whether a save has one stream, and at most one document of each kind of write. */
export function isSmall({ parts }: Append, { targets }: GroupableWrites): boolean {
  return parts.length === 1 && targets.every(({ changes }) => changes.length === 1)
}

export async function sendSaveAlone(log: Log, { parts }: Append, writes: GroupableWrites): Promise<Outcome> {
  const { stream, expected, events } = parts[0]!
  const { targets, userId = null } = writes
  const ctes = targets.map(({ collection, kind, changes: [change] }, at) => {
    const { id, body, expected: version } = change!
    const item = fragment`(
        select
          ${id}::text as id,
          ${userId}::text as by,
          ${version ?? null}::bigint as expected,
          ${body}::jsonb as body
      ) as item
      where checked.outcome = 'appended'`
    return fragment`, ${targetName(at)} as (
      ${kind === 'replace' ? replaceDocument(collection, item) : insertDocument(collection, kind, item)}
      returning d.version)`
  })
  const versions = targets.map((_, at) => fragment`(select version from ${targetName(at)})`)
  const [row] = await log.database.runArrays(sql`/* sessions.save_alone */
    with checked as materialized (
      select outcome, version, created_at
      from ${log.names.append_check_one}(
        p_stream => ${stream}::text,
        p_expected => ${expectedWord(expected)}::text,
        p_version => ${expectedVersion(expected)}::bigint,
        p_count => ${events.length}::integer,
        p_types => ${events.map(event => event.type)}::text[])
    )${joinFragments(ctes, '')}, written as materialized (
      select array[${joinFragments(versions, ', ')}] as versions
    )
    select checked.outcome, checked.version, stored.positions, written.versions
    from checked
    cross join written
    cross join lateral ${log.names.append_store}(
      p_refused => case when checked.outcome = 'appended' and array_position(written.versions, null) > 0 then '1' end,
      p_streams => array[${stream}::text],
      p_base => case when checked.outcome = 'appended' then array[checked.version - ${events.length}::integer] end,
      p_created_at => checked.created_at,
      p_event_parts => ${events.map(() => 1)}::integer[],
      p_event_numbers => ${events.map((_, n) => n + 1)}::integer[],
      ${eventArguments(events)}) as stored`)
  const [kind, version, positions, made] = row as [OutcomeKind, number, number[] | null, number[]]
  if (kind === 'appended') {
    writes.versions = made
    for (const { collection, kind: write } of targets) reportDocuments(collection, 'written', `sessions.${write}`, 1)
  }
  return { kind, failedPart: 0, versions: [Number(version)], positions: positions?.slice(-1) ?? [] }
}

/** The name of the CTE that writes one target. */
export function targetName(at: number): Identifier {
  return identifier(`target_${at + 1}`)
}

/** `rows`: the documents as `item(id, by, expected, body)`, with the condition under which they are written. */
export function replaceDocument({ table }: OpenCollection, rows: Fragment): Fragment {
  return fragment`update ${table} as d
      set version = d.version + 1,
        updated_at = checked.created_at,
        updated_by = item.by,
        body = item.body
      from checked
      cross join ${rows}
        and d.id = item.id
        and d.version = item.expected
        and d.deleted_at is null`
}

export function insertDocument({ table }: OpenCollection, kind: 'insert' | 'put', rows: Fragment): Fragment {
  return fragment`insert into ${table} as d (version, created_at, updated_at, id, created_by, updated_by, body)
      select 1, checked.created_at, checked.created_at, item.id, item.by, item.by, item.body
      from checked
      cross join ${rows}
      order by item.id collate "C"
      on conflict (id) ${kind === 'insert' ? doNothing : putOver}`
}

const doNothing: Fragment = fragment`do nothing`

const putOver: Fragment = fragment`do update
      set version = d.version + 1,
        updated_at = excluded.updated_at,
        deleted_at = null,
        updated_by = excluded.updated_by,
        body = excluded.body`
