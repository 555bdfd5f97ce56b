/** The rules detect what was seen to fail on Citus, and nothing else. */
import { beforeAll, expect, test } from 'vitest'
import { freshSchema, openDatabase } from '../support/engines.ts'
import { generalised, labelOf } from '../support/statement-recording.ts'
import { lint } from './lint.ts'
import { type Catalogue, readCatalogue } from './volatility.ts'

let catalogue: Catalogue

beforeAll(async () => {
  const database = await openDatabase()
  const schema = freshSchema()
  await database.transaction(tx => tx.query(`create schema "${schema}"`))
  const columns = 'id text primary key, run_at timestamptz, data jsonb, note text, total bigint'
  await database.transaction(tx => tx.query(`create table "${schema}".orders (${columns})`))
  await database.transaction(tx =>
    tx.query(`create table "${schema}".counted (id text primary key, made_at timestamptz default now())`),
  )
  catalogue = await readCatalogue(database, schema)
  return () => database.transaction(tx => tx.query(`drop schema "${schema}" cascade`))
})

const plpgsql = (body: string): string =>
  `create function s.f() returns void language plpgsql as 'begin ${body.replaceAll("'", "''")}; end'`

/** By rule: statements that violate it, with the reported part. */
const caught: Record<number, Record<string, string>> = {
  5: {
    'create table s.a (id text primary key); create index on s.a (id)': 'several statements',
    'create schema s create table a (id text primary key)': 'a schema with its tables',
  },
  6: {
    'alter table s.orders add column a text, add constraint c check (total > 0)': 'changes of several kinds',
    'create table s.p partition of s.q for values in (1) partition by list (a)': 'partitions of a partition',
  },
  16: {
    'select * from s.orders where id = $1': 'a parameter without a cast',
    'select * from s.orders where id = $1::text limit $2': 'a parameter without a cast',
  },
  19: {
    'select pg_current_xact_id()': 'pg_current_xact_id()',
    'select pg_snapshot_xmin(pg_current_snapshot())': 'pg_snapshot_xmin()',
    'select xmin from s.orders': 'xmin',
    'delete from s.orders as o where o.ctid = any($1::tid[])': 'ctid',
    'create table s.a (id text primary key, tx xid8)': 'xid8',
    [plpgsql('perform 1 from s.orders where xmin = $1')]: 'xmin',
  },
  20: {
    'create trigger t after insert on s.orders for each row execute function s.f()': 'a trigger',
    'create rule r as on delete to s.orders do instead nothing': 'a rule',
    'create table s.a (primary key (id)) inherits (s.orders)': 'inheritance',
    'merge into s.orders as o using s.b on o.id = b.id when matched then delete': 'merge',
    [plpgsql('merge into s.orders as o using s.b on o.id = b.id when matched then delete')]: 'merge',
  },
  21: {
    'update s.orders set run_at = clock_timestamp()': 'clock_timestamp()',
    'delete from s.orders where total < random()': 'random()',
    "update s.orders set total = nextval('s.fence')": 'nextval()',
    'update s.orders set total = 1 where id in (select id from s.orders where run_at < clock_timestamp())':
      'clock_timestamp()',
    'update s.orders set run_at = coalesce(run_at, now())': 'now()',
    'update s.orders set run_at = case when total = 1 then now() end': 'now()',
    [plpgsql('update s.orders set run_at = clock_timestamp()')]: 'clock_timestamp()',
    'insert into s.orders (id) values ($1::text) on conflict (id) do update set run_at = now()': 'now()',
    "insert into s.orders as o (id) values ($1::text) on conflict (id) do update set total = 1 where o.run_at < excluded.run_at - '1 s'::interval":
      '-',
    'insert into s.orders (id) values ($1::text) returning gen_random_uuid()': 'gen_random_uuid()',
    'insert into s.orders (id) values ($1::text) returning run_at::text': '::text',
    "delete from s.orders where id = $1::text returning pg_notify('a', id)": 'pg_notify()',
  },
  22: {
    "update s.orders set run_at = run_at + interval '1 s'": '+',
    'update s.orders set data = to_jsonb(note)': 'to_jsonb()',
    "update s.orders set data = jsonb_build_object('note', note)": 'jsonb_build_object()',
    'update s.orders set note = concat(note, total)': 'concat()',
    'delete from s.orders where run_at::text = $1::text': '::text',
    'update s.orders set run_at = coalesce(run_at, $1::timestamptz) - make_interval(secs => total)': '-',
    'update s.orders as o set data = c.d from (select id, to_jsonb(note) as d from s.orders) as c where o.id = c.id':
      'to_jsonb()',
    [plpgsql('update s.orders as o set run_at = o.run_at + make_interval(secs => o.total)')]: '+',
  },
  23: {
    'insert into s.counted (id) select id from s.orders': 'the default of made_at',
    'insert into s.counted (id, made_at) select id, now() from s.orders': 'now() in an insert from a table',
    "insert into s.counted (id, made_at) select id, run_at + interval '1 s' from s.orders":
      '+ in an insert from a table',
    'insert into s.orders (id, data) select u.id, jsonb_build_object() from unnest($1::text[]) as u(id) cross join s.counted':
      'jsonb_build_object() in an insert from a table',
    [plpgsql('insert into s.orders (id, run_at) select id, at + make_interval(secs => 1) from s.counted')]:
      '+ in an insert from a table',
  },
  24: {
    'insert into s.orders (id) values ((select max(id) from s.others))': 'a subquery in values',
    'insert into s.orders (id) select id from unnest($1::text[]) as u(id) on conflict (id) do update set note = $2::text':
      'a parameter in on conflict with unnest',
  },
  25: {
    "do 'begin create table s.a (id text primary key); end'": 'do',
    [plpgsql('create table s.a (id text primary key)')]: 'create table in a function',
    [plpgsql("execute 'create unlogged table s.a (id text primary key)'")]: 'create table in a function',
  },
  26: {
    "select pg_notify('a', id) from s.orders": 'pg_notify()',
    'select pg_advisory_xact_lock($1::bigint)': 'pg_advisory_xact_lock() without a table',
    'select s.tell(id) from s.orders': 'tell()',
    'with gone as (delete from s.orders returning id) select s.tell(array_agg(id)) from gone': 'tell()',
    [plpgsql('perform s.tell(id) from s.orders')]: 'tell()',
  },
  27: {
    "select nextval('s.events_position')": 'nextval()',
    "insert into s.orders (id) select nextval('s.fence')::text from s.others": 'nextval()',
    [plpgsql("perform setval('s.fence', 7)")]: 'setval()',
  },
  30: { 'drop index s.a, s.b': 'several objects dropped at once' },
  28: {
    'set search_path = s': 'search_path',
    "set local app.tenant = 'acme'": 'app.tenant',
    "select set_config('app.tenant', $1::text, true)": 'app.tenant',
    "select id from s.orders where note = current_setting('app.tenant')": 'app.tenant',
  },
  29: {
    'select o.id from s.orders as o join other.orders as b on b.id = o.id': 'several schemas',
    'select other.f(id) from s.orders': 'several schemas',
  },
}

/** Statements that look like a violation, and run. */
const passed = [
  "insert into s.orders (id, run_at, data) values ($1::text, clock_timestamp(), '{}'::jsonb || $2::jsonb)",
  'insert into s.orders (id, run_at) values ($1::text, now()) on conflict (id) do update set run_at = excluded.run_at',
  'insert into s.orders (id) values ($1::text) on conflict (id) do update set note = $2::text',
  'insert into s.orders (id, note) select u.id, u.note from unnest($1::text[], $2::text[]) as u(id, note)',
  'insert into s.orders (id) values ($1::text) returning run_at, total + 1, xmax = 0',
  "update s.orders set run_at = now(), data = data || $1::jsonb, note = note || 'x', total = greatest(total, 1)",
  "update s.orders set data = jsonb_set(data, '{a}', $1::jsonb) where total + 1 = $2::bigint",
  "update s.orders set run_at = now() + interval '1 s', data = to_jsonb($1::text)",
  'with c as (select id from s.orders order by id limit 1 for update skip locked) update s.orders as o set total = 1 from c where o.id = c.id returning o.id',
  'with gone as (delete from s.orders where id = $1::text returning id) delete from s.others where id in (select id from gone)',
  'select clock_timestamp(), to_jsonb(o), run_at::text from s.orders as o where id = $1::text for update',
  "select pg_notify('a', $1::text)",
  "select set_config('lock_timeout', '1s', true)",
  'select * from s.append_one($1::text)',
  'select s.append_one($1::text) from (select 1) as once',
  'with i as (insert into s.orders (id) values ($1::text) returning id) select id from i',
  'with i as (insert into s.orders (id) values ($1::text) returning id) select s.tell(id) from i',
  'insert into s.orders (id) select id from s.others',
  'insert into s.orders (id) select $1::text where not exists (select from s.orders)',
  'insert into s.counted (id, made_at) select id, $1::timestamptz from s.orders',
  'with c as (select id, now() as at from s.orders for update) update s.orders as o set run_at = c.at from c where o.id = c.id',
  "update s.orders as o set data = (select jsonb_agg(jsonb_build_object('a', x.note)) from s.orders as x)",
  'select pg_advisory_xact_lock(total) from s.orders',
  'insert into s.orders (id) select u.id from s.others cross join unnest($1::text[]) as u(id) on conflict (id) do update set note = $2::text',
  'select count(*) from pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace join s.orders as o on o.id = n.nspname',
  'select slot_name, xmin from pg_replication_slots',
  'alter table s.orders add column a text, add column b text',
  'create table s.part partition of s.orders for values in (1)',
  plpgsql("update s.orders set run_at = now(); perform pg_notify('a', 'b')"),
]

for (const [rule, examples] of Object.entries(caught)) {
  test(`rule ${rule} detects its violations`, () => {
    for (const [text, what] of Object.entries(examples))
      expect(lint(text, catalogue), text).toContainEqual({ rule: Number(rule), what })
  })
}

test('statements that run on Citus are accepted', () => {
  for (const text of passed) expect(lint(text, catalogue), text).toEqual([])
})

test('a statement is identified by its leading comment, and is one in any schema, with any numbers', () => {
  const text = (schema: string): string => `
    /* events.get */ select "t"."a" from "${schema}"."events" as "t", "${schema}"."streams"`

  expect(labelOf(text('shop'))).toBe('events.get')
  expect(labelOf(`copy (${text('shop')}) to stdout`)).toBe('events.get')
  expect(labelOf('select 1 /* events.get */')).toBeUndefined()
  expect(generalised(text('shop'))).toBe(generalised(text('a "b" c'.replaceAll('"', '""'))))
  expect(generalised('"a"."x" "b"."x" "a"."y"')).toBe('"s1"."x" "s2"."x" "s1"."y"')
  expect(generalised(`limit 12 offset $2 + t1.a - '3 s'`)).toBe(`limit 0 offset $2 + t1.a - '3 s'`)
})
