import { expect, test } from 'vitest'
import type { ProblemKind } from '../../src/schema/difference.ts'
import { migrations } from '../../src/schema/migrations.ts'
import { useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

interface Drift {
  readonly byHand: string
  readonly kind: ProblemKind
  readonly object: string
}

const drifts: Record<string, Drift> = {
  'a missing table': {
    byHand: 'drop table ~stream_aliases',
    kind: 'table_missing',
    object: 'table stream_aliases',
  },
  'a view in the place of a table': {
    byHand: 'alter table ~imports rename to kept; create view ~imports as select * from ~kept',
    kind: 'table_changed',
    object: 'table imports',
  },
  'an unlogged table': {
    byHand: 'alter table ~events set unlogged',
    kind: 'table_changed',
    object: 'table events',
  },
  'a missing column': {
    byHand: 'alter table ~events drop column user_id',
    kind: 'column_missing',
    object: 'column events.user_id',
  },
  'a column of another type': {
    byHand: 'alter table ~events alter column schema_version type bigint',
    kind: 'column_changed',
    object: 'column events.schema_version',
  },
  'a column of another collation': {
    byHand: 'alter table ~events alter column type type text collate "default"',
    kind: 'column_changed',
    object: 'column events.type',
  },
  'a column that became nullable': {
    byHand: 'alter table ~events alter column data drop not null',
    kind: 'column_changed',
    object: 'column events.data',
  },
  'a missing default': {
    byHand: 'alter table ~streams alter column created_at drop default',
    kind: 'column_changed',
    object: 'column streams.created_at',
  },
  'a missing index': {
    byHand: 'drop index ~events_event_id',
    kind: 'index_missing',
    object: 'index events_event_id',
  },
  'a unique index that is no longer unique': {
    byHand: 'drop index ~events_stream_version; create index events_stream_version on ~events (stream, version)',
    kind: 'index_changed',
    object: 'index events_stream_version',
  },
  'a missing primary key': {
    byHand: 'alter table ~streams drop constraint streams_pkey',
    kind: 'index_missing',
    object: 'index streams_pkey',
  },
  'an index whose build was interrupted': {
    byHand: `update pg_index set indisvalid = false where indexrelid = '~events_correlation'::regclass`,
    kind: 'index_invalid',
    object: 'index events_correlation',
  },
  'a missing function': { byHand: 'drop function ~settle()', kind: 'function_missing', object: 'function settle' },
  'a function with another body': {
    byHand: `create or replace function ~announce() returns void language plpgsql volatile as 'begin end'`,
    kind: 'function_changed',
    object: 'function announce',
  },
  'a function with another body in place of an expression': {
    byHand: 'create or replace function ~signed32(value bigint) returns integer language sql immutable return 1',
    kind: 'function_changed',
    object: 'function signed32',
  },
  'a function that reads the locks and the events in one snapshot': {
    byHand: 'alter function ~settle() stable',
    kind: 'function_changed',
    object: 'function settle',
  },
  'a second function with the same name': {
    byHand: `create function ~announce(bound text) returns void language sql as ''`,
    kind: 'function_changed',
    object: 'function announce',
  },
  'a missing sequence': {
    byHand: 'drop sequence ~events_position',
    kind: 'sequence_missing',
    object: 'sequence events_position',
  },
  'a sequence with a cache of 32': {
    byHand: 'alter sequence ~events_position cache 32',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence with an increment of 2': {
    byHand: 'alter sequence ~events_position increment by 2',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence that cycles': {
    byHand: 'alter sequence ~events_position cycle',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence of smaller numbers': {
    byHand: 'alter sequence ~events_position as integer',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence owned by a column': {
    byHand: 'alter sequence ~events_position owned by ~events.position',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence behind the last event': {
    byHand: `insert into ~events
        (position, version, created_at, event_id, schema_version, stream, type, correlation_id, data)
      values (7, 1, now(), '00000000-0000-7000-8000-000000000007', 1, 'order-7', 'OrderPlaced', 'c', '{}')`,
    kind: 'sequence_behind',
    object: 'sequence events_position',
  },
  'a trigger': {
    byHand: `create function ~loud() returns trigger language plpgsql as 'begin return new; end';
      create trigger shout after insert on ~events for each row execute function ~loud()`,
    kind: 'trigger',
    object: 'trigger shout',
  },
  'a rule': {
    byHand: 'create rule silence as on delete to ~streams do instead nothing',
    kind: 'rule',
    object: 'rule silence',
  },
}

for (const [what, { byHand, kind, object }] of Object.entries(drifts)) {
  test(`RB-56: ${what} is found, named and not hidden by an empty plan`, async () => {
    const fixture = make()
    await fixture.schema.sync()
    for (const statement of byHand.split(/;\s*(?=create view|create index|create trigger)/))
      await fixture.byHand(statement)

    const { ok, problems } = await fixture.schema.check()

    expect(ok).toBe(false)
    expect(problems.map(each => [each.kind, each.object])).toEqual([[kind, object]])
    expect(problems[0]!.problem).not.toBe('')
    expect(problems[0]!.fix).not.toBe('')
    expect(await fixture.schema.plan()).toEqual({ steps: [], problems: [] })
  })
}

test('the fix for a sequence that is behind can be run as printed', async () => {
  const { schema, byHand } = make(`shop's "check" ${Date.now()}`)
  await schema.sync()
  await byHand(drifts['a sequence behind the last event']!.byHand)
  const { problems } = await schema.check()

  await byHand(problems[0]!.fix.split(': ')[1]!)

  expect(await schema.check()).toMatchObject({ ok: true })
})

test('several drifts are all reported', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  await byHand('drop index ~events_correlation')
  await byHand('drop function ~settle()')
  await byHand('alter table ~streams drop column reason')
  await byHand('alter sequence ~events_position cache 32')
  await byHand(drifts['a sequence behind the last event']!.byHand)

  const { problems } = await schema.check()

  expect(problems.map(each => each.object).sort()).toEqual([
    'column streams.reason',
    'function settle',
    'index events_correlation',
    'sequence events_position',
    'sequence events_position',
  ])
})

test('additions and tuning by an administrator are not drift', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  await byHand('create index events_by_type on ~events (type)')
  await byHand('alter table ~events set (autovacuum_vacuum_scale_factor = 0.01)')
  await byHand('create table ~reports (id integer)')
  await byHand('alter table ~streams add column remark text')

  expect(await schema.check()).toEqual({ ok: true, problems: [], newer: [] })
})

test('a schema that is missing, or lacks migrations, is reported as such and not object by object', async () => {
  const { schema, as, name } = make()

  expect(await schema.check()).toMatchObject({
    ok: false,
    problems: [{ kind: 'schema_missing', object: `schema ${name}` }],
  })

  await as({ migrations: migrations.slice(0, 1) }).sync()
  expect((await schema.check()).problems.map(each => [each.kind, each.object])).toEqual(
    migrations.slice(1).map(each => ['migration_pending', `migration ${each.id} (${each.name})`]),
  )
})

test('a check during appends never reports the sequence as behind', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  const append = (i: number): Promise<unknown> =>
    byHand(`select ~append_one(
      'order-${i}', 0, false, '{00000000-0000-7000-8000-${String(i).padStart(12, '0')}}', '{OrderPlaced}', null, '[{}]',
      null, null, null, null)`)

  const appends = Array.from({ length: 100 }, (_, i) => append(i))
  const checks = await Promise.all(Array.from({ length: 20 }, () => schema.check()))
  await Promise.all(appends)

  expect(checks.filter(check => !check.ok)).toEqual([])
})
