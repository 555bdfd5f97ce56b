/**
 * Protocols that are wrong, each in one thing, to show that `verify` would find it: the database of a scratch schema is changed,
 * or something stands between the callers and the store.
 */
import { ConnectionLost } from '../database/errors.ts'
import { identifier } from '../database/sql.ts'
import type { Store } from '../store.ts'
import { checkAppendAnswers } from './appends.ts'
import { checkOrdering } from './ordering.ts'
import type { Place } from './place.ts'
import { checkTransactionOrder } from './transactions.ts'
import type { Checked } from './verify.ts'

type Check = (place: Place, ms: number) => Promise<Checked>

export const wrongProtocols: Readonly<Record<string, Check>> = {
  'nothing is announced': inDatabase(name => [announce(name, '')]),
  'an announcement is given back before the commit': inDatabase(name => [
    announce(
      name,
      `begin
         perform pg_advisory_xact_lock_shared(${oidOf(name)}::integer, (${headOf(name)})::integer);
         raise exception 'given back';
       exception when raise_exception then
       end;`,
    ),
  ]),
  'positions are drawn in advance': inDatabase(name => [`alter sequence ${name('events_position')} cache 20`]),
  'readers go up to the last position that was drawn': inDatabase(name => [settle(name, `(${headOf(name)})`)]),
  'readers look at the latest announcement only': inDatabase(name => [
    settle(
      name,
      `least((${headOf(name)}), (select max(objid::bigint) from pg_locks where locktype = 'advisory'
         and classid::bigint = ${oidOf(name)} and objsubid = 2 and mode = 'ShareLock'))`,
    ),
  ]),
  'an append is sent again with new ids': betweenCallers(({ append }) => async (stream, events, options) => {
    const again = { ...options, expected: 'any' as const, idempotencyKey: undefined }
    await append(stream, events, again)
    return append(stream, events, again)
  }),
  'a lost connection counts as a failure': betweenCallers(({ append }) => async (stream, events, options) => {
    const result = await append(stream, events, options)
    if (Math.random() < 0.1) throw new ConnectionLost({ reason: 'as if' })
    return result
  }),
  'an expected version is not checked': betweenCallers(
    ({ append }) =>
      (stream, events, options) =>
        append(stream, events, { ...options, expected: 'any' }),
  ),
  'transactions are not isolated': (place, ms) => checkTransactionOrder(place, ms, 'read committed', 'serializable'),
}

type Name = (name: string) => string

function inDatabase(statementsOf: (name: Name) => readonly string[]): Check {
  return async (place, ms) => {
    const statements = statementsOf(each => identifier(place.schema, each).quoted)
    await place.judge.transaction(async tx => {
      for (const statement of statements) await tx.query(statement)
    })
    return checkOrdering(place, ms)
  }
}

function oidOf(name: Name): string {
  return `'${name('events_position')}'::regclass::oid::bigint`
}

function headOf(name: Name): string {
  return `select case when is_called then last_value else last_value - 1 end from ${name('events_position')}`
}

function announce(name: Name, body: string): string {
  return `create or replace function ${name('announce')}() returns void language plpgsql as $$
    begin
      ${body}
    end $$`
}

function settle(name: Name, settled: string): string {
  return `create or replace function ${name('settle')}(
      out head bigint, out settled bigint, out timeline text, out session text) language plpgsql as $$
    begin
      head := (${headOf(name)});
      timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
      session := pg_backend_pid()::text;
      settled := ${settled};
    end $$`
}

type Events = Store['events']

function betweenCallers(wrong: (events: Events) => Events['append']): Check {
  return (place, ms) =>
    checkAppendAnswers(place, ms, ({ events }) => ({
      events: { ...events, append: wrong(events), appendMany: events.appendMany, read: events.read },
    }))
}
