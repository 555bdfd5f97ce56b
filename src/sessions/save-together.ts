/**
 * Several saves in one statement, each with its own outcome: those that are only events and documents that are inserted,
 * put or replaced.
 *
 *     append_check ──► a CTE for each collection and kind of write ──► append_store
 *
 * A save that is alone, of one stream, goes without the arrays that several need: `append_check_one`.
 *
 * It is written for the usual case, in which every document is as its save expects it. If one is not, the statement
 * fails, names the saves it was for, and nothing is stored: those then continue in a transaction each, which finds the
 * exact fault. Saves that write in the same ways to the same collections share a statement.
 */
import { type Fragment, fragment, type Identifier, identifier, joinFragments, sql } from '../database/sql.ts'
import type { OpenCollection } from '../documents/collection.ts'
import { reportDocuments } from '../documents/execute.ts'
import type { Change } from '../documents/write-many.ts'
import { expectedVersion, expectedWord } from '../events/append/prepare.ts'
import {
  type Alongside,
  type Answer,
  type Append,
  batchArguments,
  byBytes,
  eventArguments,
  eventNumbers,
  eventParts,
  type Outcome,
  type OutcomeKind,
  outcomesOf,
} from '../events/append/send.ts'
import type { Log } from '../events/log.ts'

/** The documents of one save, by collection and kind of write. */
export interface GroupableWrites {
  readonly targets: readonly WriteTarget[]
  readonly userId: string | undefined
  /** The versions that the documents have now, in the order of the targets; set when they are written together. */
  versions?: readonly number[]
}

export interface WriteTarget {
  readonly collection: OpenCollection
  readonly kind: 'insert' | 'put' | 'replace'
  readonly changes: readonly Change[]
}

type CollectionChanges = { readonly collection: OpenCollection; readonly changes: readonly Change[] }

/** The changes by collection and kind; undefined if one of them cannot be written together with those of other saves. */
export function targetsOf(documents: readonly CollectionChanges[]): WriteTarget[] | undefined {
  const targets: WriteTarget[] = []
  let count = 0
  for (const { collection, changes } of documents) {
    for (const kind of ['insert', 'put', 'replace'] as const) {
      const some = changes.filter(change => kindOf(collection, change) === kind)
      if (some.length > 0) targets.push({ collection, kind, changes: some })
      count += some.length
    }
  }
  return count === documents.reduce((sum, { changes }) => sum + changes.length, 0) ? targets : undefined
}

function kindOf({ historyTable }: OpenCollection, { kind, expected }: Change): WriteTarget['kind'] | undefined {
  if (historyTable !== undefined) return undefined
  if (kind === 'insert') return 'insert'
  if (kind === 'put') return expected === undefined ? 'put' : 'replace'
  return undefined
}

/** How an append with these writes shares a statement with others of its shape. */
export function writeTogether(log: Log, writes: GroupableWrites): NonNullable<Alongside['together']> & HasWrites {
  const shape = writes.targets.map(({ collection, kind }) => `${kind} ${collection.tableName}`).join(',')
  return { shape, writes, send: appends => sendSaves(log, appends) }
}

interface HasWrites {
  readonly writes: GroupableWrites
}

/** Saves of one shape, with no document twice among them. */
async function sendSaves(log: Log, appends: readonly Append[]): Promise<Outcome[]> {
  const saves = appends.map(append => (append.alongside!.together as unknown as HasWrites).writes)
  if (saves.length === 1 && isSmall(appends[0]!, saves[0]!)) return [await sendSaveAlone(log, appends[0]!, saves[0]!)]
  const { targets } = saves[0]!
  const documents = saves.flatMap((save, at) =>
    save.targets.flatMap((target, n) => target.changes.map(({ id }) => ({ id, save: at + 1, target: n + 1 }))),
  )
  const parts = appends.flatMap(append => append.parts)
  const events = parts.flatMap(part => part.events)
  const ctes = targets.map(
    (_, at) => fragment`, ${targetName(at)} as (
      ${writing(saves, at)}
      returning d.id, d.version)`,
  )
  const written = targets.map(
    (_, at) => fragment`select ${at + 1}::integer as target, id, version
      from ${targetName(at)}`,
  )
  const [row] = await log.database.runArrays(sql`/* sessions.save */
    with items as materialized (
      select save, target, id, number
      from unnest(
        ${documents.map(each => each.save)}::integer[],
        ${documents.map(each => each.target)}::integer[],
        ${documents.map(each => each.id)}::text[]) with ordinality as i(save, target, id, number)
    ), checked as materialized (
      select outcomes, failed_parts, versions, base, created_at
      from ${log.names.append_check}(
      ${batchArguments(appends, false)},
      p_runs_inline => false,
      p_ids => null,
      p_types => ${events.map(event => event.type)}::text[],
      p_data => null)
    )${joinFragments(ctes, '')}, written as materialized (
      ${joinFragments(written, '\n      union all\n      ')}
    ), refused as materialized (
      select string_agg(distinct items.save::text, ',') as saves
      from checked
      cross join items
      where checked.outcomes[items.save] = 'appended'
        and not exists (
          select
          from written
          where written.target = items.target
            and written.id = items.id)
    )
    select checked.outcomes::text, checked.failed_parts::text, checked.versions::text, stored.positions,
      checked.created_at, (
        select jsonb_agg(written.version order by items.number)
        from items
        left join written
          on written.target = items.target
          and written.id = items.id)
    from checked
    cross join refused
    cross join lateral ${log.names.append_store}(
      p_refused => refused.saves,
      p_streams => ${parts.map(part => part.stream)}::text[],
      p_base => checked.base,
      p_created_at => checked.created_at,
      p_event_parts => ${eventParts(parts)}::integer[],
      p_event_numbers => ${eventNumbers(parts)}::integer[],
      ${eventArguments(events)}) as stored`)
  const versions = row!.at(-1) as (number | null)[] | null
  const answers = outcomesOf(appends, row as unknown as Answer)
  let read = 0
  for (const [at, save] of saves.entries()) {
    const count = save.targets.reduce((sum, { changes }) => sum + changes.length, 0)
    if (answers[at]!.kind === 'appended') {
      save.versions = (versions ?? []).slice(read, read + count).map(Number)
      for (const { collection, kind, changes } of save.targets)
        reportDocuments(collection, 'written', `sessions.${kind}`, changes.length)
    }
    read += count
  }
  return answers
}

/** Whether a save has one stream, and at most one document of each kind of write. */
function isSmall({ parts }: Append, { targets }: GroupableWrites): boolean {
  return parts.length === 1 && targets.every(({ changes }) => changes.length === 1)
}

async function sendSaveAlone(log: Log, { parts }: Append, writes: GroupableWrites): Promise<Outcome> {
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
    select checked.outcome, checked.version, stored.positions, written.versions, checked.created_at
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
  const [kind, version, positions, made, at] = row as [OutcomeKind, number, number[] | null, number[], Date | null]
  if (kind === 'appended') {
    writes.versions = made
    for (const { collection, kind: write } of targets) reportDocuments(collection, 'written', `sessions.${write}`, 1)
  }
  const last = positions?.slice(-1) ?? []
  return { kind, failedPart: 0, versions: [Number(version)], positions: last, at: at ?? undefined }
}

/**
 * Writes the documents of one target, those of all saves, in the order of their ids, in which every transaction locks
 * them.
 */
function writing(saves: readonly GroupableWrites[], at: number): Fragment {
  const { collection, kind } = saves[0]!.targets[at]!
  const items = saves.flatMap(({ targets, userId = null }, save) =>
    targets[at]!.changes.map(change => ({ ...change, save: save + 1, userId })),
  )
  if (items.length > 1) items.sort((a, b) => byBytes(a.id, b.id))
  const rows = fragment`rows from (
        unnest(
          ${items.map(item => item.save)}::integer[],
          ${items.map(item => item.id)}::text[],
          ${items.map(item => item.userId)}::text[],
          ${items.map(item => item.expected ?? null)}::bigint[]),
        jsonb_array_elements(${`[${items.map(item => item.body).join(',')}]`}::jsonb)) as item(save, id, by, expected, body)
      where checked.outcomes[item.save] = 'appended'`
  return kind === 'replace' ? replaceDocument(collection, rows) : insertDocument(collection, kind, rows)
}

/** The name of the CTE that writes one target. */
function targetName(at: number): Identifier {
  return identifier(`target_${at + 1}`)
}

/** `rows`: the documents as `item(id, by, expected, body)`, with the condition under which they are written. */
function replaceDocument({ table }: OpenCollection, rows: Fragment): Fragment {
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

function insertDocument({ table }: OpenCollection, kind: 'insert' | 'put', rows: Fragment): Fragment {
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
