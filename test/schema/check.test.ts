import { expect, test } from 'vitest'
import type { ProblemKind } from '../../src/schema/difference.ts'
import { migrations, useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

interface Drift {
  readonly byHand: string
  readonly kind: ProblemKind
  readonly object: string
  /** An object that is not there, or a function without a revision, is made again by the next sync. */
  readonly isMadeAgain?: true
}

const drifts: Record<string, Drift> = {
  'a table that is gone': {
    byHand: 'drop table ~stream_aliases',
    kind: 'table_missing',
    object: 'table stream_aliases',
    isMadeAgain: true,
  },
  'a table that others refer to': {
    byHand: 'drop table ~streams',
    kind: 'table_missing',
    object: 'table streams',
  },
  'a view in the place of a table': {
    byHand: 'alter table ~imports rename to kept; create view ~imports as select * from ~kept',
    kind: 'table_changed',
    object: 'table imports',
  },
  'a table that a crash would empty': {
    byHand: 'alter table ~events set unlogged',
    kind: 'table_changed',
    object: 'table events',
  },
  'a column that is gone': {
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
  'a column that may be empty now': {
    byHand: 'alter table ~events alter column data drop not null',
    kind: 'column_changed',
    object: 'column events.data',
  },
  'a default that is gone': {
    byHand: 'alter table ~streams alter column created_at drop default',
    kind: 'column_changed',
    object: 'column streams.created_at',
  },
  'an index that is gone': {
    byHand: 'drop index ~events_event_id',
    kind: 'index_missing',
    object: 'index events_event_id',
    isMadeAgain: true,
  },
  'a unique index that is not unique any more': {
    byHand: 'drop index ~events_stream_version; create index events_stream_version on ~events (stream, version)',
    kind: 'index_changed',
    object: 'index events_stream_version',
  },
  'a primary key that is gone': {
    byHand: 'alter table ~streams drop constraint streams_pkey',
    kind: 'index_missing',
    object: 'index streams_pkey',
  },
  'an index that was not built to its end': {
    byHand: `update pg_index set indisvalid = false where indexrelid = '~events_correlation'::regclass`,
    kind: 'index_invalid',
    object: 'index events_correlation',
    isMadeAgain: true,
  },
  'a function that is gone': {
    byHand: 'drop function ~settle()',
    kind: 'function_missing',
    object: 'function settle',
    isMadeAgain: true,
  },
  'a function with another body': {
    byHand: `create or replace function ~announce() returns void language plpgsql volatile as 'begin end'`,
    kind: 'function_changed',
    object: 'function announce',
    isMadeAgain: true,
  },
  'a function with another body in place of an expression': {
    byHand: 'create or replace function ~signed32(value bigint) returns integer language sql immutable return 1',
    kind: 'function_changed',
    object: 'function signed32',
    isMadeAgain: true,
  },
  'a function that now reads the locks and the events of one moment': {
    byHand: 'alter function ~settle() stable',
    kind: 'function_changed',
    object: 'function settle',
  },
  'a second function of the same name': {
    byHand: `create function ~announce(bound text) returns void language sql as ''`,
    kind: 'function_changed',
    object: 'function announce',
  },
  'a sequence that is gone': {
    byHand: 'drop sequence ~events_position',
    kind: 'sequence_missing',
    object: 'sequence events_position',
  },
  'a sequence that hands out positions in blocks of 32': {
    byHand: 'alter sequence ~events_position cache 32',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence that goes up in steps of 2': {
    byHand: 'alter sequence ~events_position increment by 2',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence that starts over at its end': {
    byHand: 'alter sequence ~events_position cycle',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence of smaller numbers': {
    byHand: 'alter sequence ~events_position as integer maxvalue 2147483647',
    kind: 'sequence_changed',
    object: 'sequence events_position',
  },
  'a sequence that goes away with a column': {
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

for (const [what, { byHand, kind, object, isMadeAgain }] of Object.entries(drifts)) {
  test(`RB-56: ${what} is found, named and not hidden by an empty plan`, async () => {
    const fixture = make()
    await fixture.schema.sync()
    for (const statement of byHand.split(/;\s*(?=create view|create index|create trigger)/))
      await fixture.byHand(statement)

    const { isHealthy, problems } = await fixture.schema.check()

    expect(isHealthy).toBe(false)
    expect(problems.map(each => [each.kind, each.object])).toEqual([[kind, object]])
    expect(problems[0]!.problem).not.toBe('')
    expect(problems[0]!.fix).not.toBe('')
    const { steps, problems: left } = await fixture.schema.plan()
    expect([...new Set(steps.map(step => step.object))]).toEqual(isMadeAgain ? [object] : [])
    // Whether the numbers of a sequence are used is not a difference of objects.
    if (kind !== 'sequence_behind') expect(left).toEqual(isMadeAgain ? [] : problems)
    if (!isMadeAgain) return
    await fixture.schema.sync()
    expect(await fixture.schema.check()).toMatchObject({ isHealthy: true })
  })
}

test('the fix for a sequence that is behind can be run as printed', async () => {
  const { schema, byHand } = make(`shop's "check" ${Date.now()}`)
  await schema.sync()
  await byHand(drifts['a sequence behind the last event']!.byHand)
  const { problems } = await schema.check()

  await byHand(problems[0]!.fix.split(': ')[1]!)

  expect(await schema.check()).toMatchObject({ isHealthy: true })
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

  expect(await schema.check()).toEqual({ isHealthy: true, problems: [], newer: [] })
})

test('a schema that is missing, or lacks migrations, is reported as such and not object by object', async () => {
  const { schema, as, name } = make()

  expect(await schema.check()).toMatchObject({
    isHealthy: false,
    problems: [{ kind: 'schema_missing', object: `schema ${name}` }],
  })

  await as({ migrations: [], functions: [] }).sync()
  expect((await schema.check()).problems.map(each => [each.kind, each.object])).toEqual(
    migrations.map(each => ['migration_pending', `migration ${each.id} (${each.name})`]),
  )
})

test('a check during appends never reports the sequence as behind', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  const append = (i: number): Promise<unknown> =>
    byHand(`select ~append_one(
      'order-${i}', 'empty', null, false, '{00000000-0000-7000-8000-${String(i).padStart(12, '0')}}', '{OrderPlaced}', null, '[{}]',
      null, null, null, null)`)

  const appends = Array.from({ length: 100 }, (_, i) => append(i))
  const checks = await Promise.all(Array.from({ length: 20 }, () => schema.check()))
  await Promise.all(appends)

  expect(checks.filter(check => !check.isHealthy)).toEqual([])
})

test('a damaged schema is mended by a sync, with its rows kept, and the plan lists the rest', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  await byHand(drifts['a sequence behind the last event']!.byHand)
  await byHand('drop index ~events_correlation')
  await byHand('drop index ~events_stream_version')
  await byHand('drop table ~dead_letters')
  await byHand('drop table ~idempotency_keys')
  await byHand('drop function ~settle()')
  await byHand('alter table ~streams drop column reason')

  const before = await schema.plan()
  await schema.sync()
  const after = await schema.plan()

  expect([...new Set(before.steps.map(step => step.object))].sort()).toEqual([
    'function settle',
    'index events_correlation',
    'index events_stream_version',
    'table dead_letters',
    'table idempotency_keys',
  ])
  expect(before.problems.map(each => each.object)).toEqual(['column streams.reason'])
  expect(after.steps).toEqual([])
  expect(after.problems.map(each => each.object)).toEqual(['column streams.reason'])
  expect(await byHand('select position from ~events')).toEqual([{ position: 7 }])
  const { problems } = await schema.check()
  expect(problems.map(each => each.kind)).toEqual(['column_missing', 'sequence_behind'])
})
