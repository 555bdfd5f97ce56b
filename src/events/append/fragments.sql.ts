/**
 * The blocks that the functions which append share. Each is written here and nowhere else: a new column of an event is
 * one more line in `eventArguments` and two in `insertEvents`, whatever number of functions append.
 *
 *     refuseInline ──► advanceStream ──► draw() ──► insertEvents
 *     no user's code     lock, check       a bound first,     positions are drawn last,
 *     has to run         and advance       see order/         after all that can refuse
 *
 * All of these functions follow one order: idempotency keys, streams (locked, each sorted), event ids, versions; then
 * announce, draw positions, insert. Nothing that can refuse an append comes after the first position is drawn. A
 * refusal is an outcome, not an exception, so that the other appends of a batch, and a user's own transaction,
 * continue:
 *
 *     appended     the events are stored
 *     conflict     the stream is not at the expected version
 *     archived     the stream is archived, and the caller did not allow that
 *     tombstoned   the stream was deleted; its name cannot be used again
 *     busy         another transaction holds the stream, and the caller does not wait
 *     repeated     the idempotency key was used before, for the same content
 *     mismatched   the idempotency key was used before, for other content
 *     stored       these very events are stored already
 *     taken        an event id belongs to another event
 *     inline       an inline projection wants one of the events: send it through `append_check` and `append_store`
 *
 * With every outcome but `appended` nothing of the append was written and no position was drawn. The expected version
 * of a stream is a word, too: `any`, `empty`, `exists`, or `exact` with a version at its side.
 */
import { type Fragment, fragment } from '../../database/sql.ts'
import { byNumbers, pieceByNumbers, plpgsql, type SqlFunction } from '../../schema/plpgsql.ts'
import { positions } from '../order/order.sql.ts'

/**
 * The events of one call, by column. Null stands for a column in which every event has the default. (Reading 640 events
 * that way takes 6.5 ms; as one jsonb array of objects 10.9, and 7.3 for the data alone as text to be cast.)
 */
export const eventArguments: Fragment = fragment`
  p_ids uuid[],
  p_types text[],
  p_schema_versions integer[],
  p_data jsonb,
  p_headers jsonb,
  p_correlations text[],
  p_causations text[],
  p_users text[]`

/**
 * Rows from arrays that an insert stores, and the first of its conditions. With counters the row of `inline_changes` is
 * joined to them: Citus sends an insert from a table as it is, and copies the rows of one from arrays.
 */
export const withOneRow = (rows: Fragment): Fragment =>
  pieceByNumbers({ announced: rows, counter: fragment`~inline_changes as one\ncross join ${rows}` })
export const ofOneRow = (condition: Fragment): Fragment =>
  pieceByNumbers({ announced: condition, counter: fragment`one.id = 1\n  and ${condition}` })

/** Ahead of `insertEvents`: draws the positions into the variable `drawn`, or announces a bound of those to be drawn. */
export const beforeInsert: Fragment = positions.before(fragment`cardinality(p_ids)`)

/**
 * Says when the events were stored, in a setting of the transaction: a caller that knows it needs not read its own events
 * back. (Another result would be another signature, which processes of two versions cannot share.) On Citus the caller may
 * be on another node, which has no such setting: there it reads them.
 */
export const sayWhen: Fragment = pieceByNumbers({
  announced: fragment`perform set_config('rillflow.appended_at', moment::text, true);`,
  counter: fragment`-- A caller on another node would not know a setting.`,
})

/** For the statement that has called one of these functions; null of a refused append. */
export const appendedAt: SqlFunction = byNumbers({
  announced: plpgsql({ revision: 1 })`
    create function ~appended_at(out moment timestamptz)
    begin
      moment := nullif(current_setting('rillflow.appended_at', true), '')::timestamptz;
    end`,
  counter: plpgsql({ revision: 1 })`
    create function ~appended_at(out moment timestamptz)
    begin
    end`,
})

/**
 * Stores the events under the positions drawn for them. Nothing follows but the commit: with counters, other appends
 * wait for it. The caller's streams are locked and advanced, and `moment` is the time that the events get. Events are
 * numbered from 1 by `e.number`; those whose version is null are skipped, and no event has their position. [order-2]
 */
export function insertEvents({ stream, version }: { stream: Fragment; version: Fragment }): Fragment {
  return fragment`
    insert into ~events (
      position, stream, version, event_id, type, schema_version, data, headers,
      correlation_id, causation_id, user_id, created_at)
    select
      ${positions.each(fragment`e.number`)}, ${stream}, ${version}, e.id, e.type,
      coalesce(e.schema_version, 1), e.data, nullif(e.headers, 'null'),
      coalesce(e.correlation_id, e.id::text), e.causation_id, e.user_id, moment
    from ${withOneRow(fragment`
      rows from (
        unnest(p_ids, p_types, p_schema_versions, p_correlations, p_causations, p_users),
        jsonb_array_elements(p_data),
        jsonb_array_elements(p_headers)) with ordinality
        as e(id, type, schema_version, correlation_id, causation_id, user_id, data, headers, number)`)}
    where ${ofOneRow(fragment`${version} is not null`)}
    returning position`
}

/**
 * The first statement of every append. Reading `inline_projections` takes the lock that makes a switch of projections
 * wait. A transaction stricter than read committed still sees its old snapshot, which may not have the latest change.
 * It locks the one row that every change updates, and fails with 40001 if that was after it began. [barrier-1]
 */
export const holdInline: Fragment = fragment`
  if current_setting('transaction_isolation') <> 'read committed' then
    perform
      from ~inline_projections
      limit 0;
    perform
      from ~inline_changes
      where id = 1
      for share;
  end if;`

/** Whether an inline projection wants one of these types. [barrier-2] */
export const wantedInline: Fragment = fragment`
  exists (
    select
    from ~inline_projections as i
    where i.types is null
      or i.types && p_types)`

/**
 * Ends the call if an inline projection wants one of the events: its code has to run between the checks and the insert,
 * so the append is sent again in two calls.
 */
export const refuseInline: Fragment = fragment`
  ${holdInline}
  if ${wantedInline} then
    outcome := 'inline';
    return;
  end if;`

/**
 * Whether the version of a stream (0: it has no event) is the one that the caller expects. The parentheses are needed:
 * the `then` of a bare `case` would end the condition of an `if`.
 */
export function isExpected(version: Fragment, expected: Fragment, exact: Fragment): Fragment {
  return fragment`
    (case ${expected}
      when 'any' then true
      when 'exists' then ${version} > 0
      when 'empty' then ${version} = 0
      else ${version} = ${exact}
    end)`
}

/** Whether an append that expects this may be the first of its stream. */
export function mayCreate(expected: Fragment, exact: Fragment): Fragment {
  return fragment`(${expected} in ('any', 'empty') or ${exact} = 0)`
}

/** The mark that refuses appends to a stream; null if it has none. */
export const markOf: Fragment = fragment`
  case
    when s.tombstoned_at is not null then 'tombstoned'
    when s.archived_at is not null then 'archived'
  end`

/**
 * Locks `p_stream`, checks it, and adds `p_count` to its version, for most appends in a single update. Otherwise the
 * outcome says why not: 'tombstoned', 'archived' or 'conflict', with the present version. It needs the variables
 * `moment` and `found_stream`, and the results `outcome` and `version`.
 */
export function advanceStream({ allowArchived }: { allowArchived: Fragment }): Fragment {
  const isExpectedOf = (version: Fragment): Fragment => isExpected(version, fragment`p_expected`, fragment`p_version`)
  return fragment`
    loop
      update ~streams as s
        set version = s.version + p_count
        where s.stream = p_stream
          and ${isExpectedOf(fragment`s.version`)}
          and s.tombstoned_at is null
          and (s.archived_at is null or ${allowArchived})
        returning s.version into version;
      exit when found;
      if ${mayCreate(fragment`p_expected`, fragment`p_version`)} then
        moment := ~clock(p_stream);
        insert into ~streams as s (stream, version, created_at)
          values (p_stream, p_count, moment)
          on conflict do nothing
          returning s.version into version;
        exit when found;
      end if;
      select * into found_stream
        from ~streams as s
        where s.stream = p_stream
        for update;
      version := coalesce(found_stream.version, 0);
      if found_stream.tombstoned_at is not null then
        outcome := 'tombstoned';
        return;
      elsif found_stream.archived_at is not null and not ${allowArchived} then
        outcome := 'archived';
        return;
      elsif not ${isExpectedOf(fragment`version`)} then
        outcome := 'conflict';
        return;
      end if;
      -- Another transaction changed the stream between these statements, and now it is as expected: try again.
    end loop;`
}
