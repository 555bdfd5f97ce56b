import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { identifier } from '../../src/database/sql.ts'
import { type DeclaredColumn, type DeclaredTable, TableRegistry, trustedSql } from '../../src/schema/table.ts'
import { engine } from '../support/engines.ts'
import { useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

const customers: DeclaredTable = {
  name: 'customers',
  columns: [
    { name: 'id', type: 'text collate "C"' },
    { name: 'version', type: 'bigint' },
    { name: 'data', type: 'jsonb' },
    { name: 'updated_at', type: 'timestamptz', default: trustedSql`now()` },
  ],
  primaryKey: ['id'],
  indexes: [
    { name: 'customers_data', columns: [trustedSql`data jsonb_path_ops`], method: 'gin' },
    { name: 'customers_email', columns: [trustedSql`(data ->> 'email')`], unique: true },
    { name: 'customers_recent', columns: ['updated_at', 'id'], include: ['version'], where: trustedSql`version > 1` },
  ],
  fillfactor: 70,
}

const email: DeclaredColumn = { name: 'email', type: 'text', nullable: true }
const addCustomer = `insert into ~customers (id, version, data) values ('ada', 1, '{"email": "ada@example.com"}')`

test('a declared table is planned, created with its indexes, and then the plan is empty', async () => {
  const { as, byHand, name } = make()
  const schema = as({ tables: [customers] })
  await as({}).sync()

  expect(await schema.state()).toMatchObject({
    status: 'outdated',
    pending: expect.arrayContaining(['table customers']),
  })
  await expect(schema.ensure('check')).rejects.toMatchObject({
    code: 'schema_outdated',
    pending: ['table customers', 'index customers_data', 'index customers_email', 'index customers_recent'],
  })
  const { steps } = await schema.sync()

  expect(steps[0]!.sql).toBe(`create table "${name}"."customers" (
  "id" text collate "C" not null,
  "version" bigint not null,
  "data" jsonb not null,
  "updated_at" timestamptz not null default now(),
  primary key ("id")
) with (fillfactor = 70)`)
  await byHand(addCustomer)
  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await schema.sync()).toEqual({ steps: [], problems: [] })
  expect(await schema.state()).toEqual({ status: 'current', pending: [] })
  expect(await schema.check()).toMatchObject({ isHealthy: true })
})

test('the first sync of an empty database creates migrations and declared tables together', async () => {
  const { as, byHand } = make()
  const schema = as({ tables: [customers] })

  await schema.ensure('auto')

  await byHand(addCustomer)
  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
})

test('every declared type is read back as the same type', async () => {
  const scalars = [
    'bigint',
    'integer',
    'text',
    'jsonb',
    'timestamptz',
    'boolean',
    'uuid',
    'numeric',
    'tsvector',
  ] as const
  const types = [...scalars, 'double precision', 'text collate "C"', 'numeric(12,2)'] as const
  const arrays = scalars.map(type => `${type}[]` as const)
  const columns = [...types, ...arrays].map((type, i) => ({ name: `c${i}`, type, nullable: i > 0 }))
  const { as } = make()
  const schema = as({ tables: [{ name: 'everything', columns, primaryKey: ['c0'] }] })

  await schema.sync()

  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await schema.check()).toMatchObject({ isHealthy: true })
})

test('a column can be added to a table with rows, and so can an index on it', async () => {
  const { as, byHand } = make()
  await as({ tables: [customers] }).sync()
  await byHand(addCustomer)

  const tier: DeclaredColumn = { name: 'tier', type: 'text', default: trustedSql`'basic'` }
  const indexes = [...customers.indexes!, { name: 'customers_tier', columns: ['tier', 'email'] }]
  const schema = as({ tables: [{ ...customers, columns: [...customers.columns, tier, email], indexes }] })
  const { steps, problems } = await schema.sync()

  expect(problems).toEqual([])
  expect(steps.map(step => step.object)).toEqual([
    'column customers.tier',
    'column customers.email',
    'index customers_tier',
    'index customers_tier',
  ])
  expect(await byHand('select id, tier, email from ~customers')).toEqual([{ id: 'ada', tier: 'basic', email: null }])
  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
})

test('a required column is added to an empty table, and is a problem for a table with rows', async () => {
  const { as, byHand } = make()
  await as({ tables: [customers] }).sync()
  const withColumn = (name: string): DeclaredTable => ({
    ...customers,
    columns: [
      ...customers.columns,
      ...[...new Set(['city', name])].map(each => ({ name: each, type: 'text' }) as const),
    ],
    indexes: [...customers.indexes!, { name: `customers_${name}`, columns: [name] }],
  })

  await as({ tables: [withColumn('city')] }).sync()
  await byHand(`insert into ~customers (id, version, data, city) values ('ada', 1, '{}', 'London')`)
  const schema = as({ tables: [withColumn('street')] })
  const { steps, problems } = await schema.sync()

  expect(steps).toEqual([])
  expect(problems).toMatchObject([
    { kind: 'column_missing', object: 'column customers.street' },
    { kind: 'index_missing', object: 'index customers_street' },
  ])
  expect(await byHand('select city from ~customers')).toEqual([{ city: 'London' }])
  expect((await schema.check()).isHealthy).toBe(false)
})

test('another type, nullability, default or key, and undeclared columns, are reported and not changed', async () => {
  const { as, byHand } = make()
  await as({ tables: [{ ...customers, columns: [...customers.columns, email] }] }).sync()
  await byHand(addCustomer)

  const changed: DeclaredTable = {
    ...customers,
    columns: [
      { name: 'id', type: 'text collate "C"' },
      { name: 'version', type: 'integer' },
      { name: 'data', type: 'jsonb', nullable: true },
      { name: 'updated_at', type: 'timestamptz' },
    ],
    primaryKey: ['id', 'version'],
  }
  const schema = as({ tables: [changed] })
  const { steps, problems } = await schema.sync()

  expect(steps).toEqual([])
  expect(problems.map(each => [each.kind, each.object])).toEqual([
    ['column_changed', 'column customers.version'],
    ['column_changed', 'column customers.data'],
    ['column_changed', 'column customers.updated_at'],
    ['column_extra', 'column customers.email'],
    ['primary_key_changed', 'table customers'],
  ])
  expect(problems[0]!.problem).toBe('is bigint not null, declared is integer not null')
  expect(await byHand(`select pg_typeof(version)::text as type, email from ~customers`)).toEqual([
    { type: 'bigint', email: null },
  ])
  expect(await schema.check()).toMatchObject({ isHealthy: false, problems })
})

test('an index with another definition, or made by hand, is reported and not changed', async () => {
  const { as, byHand } = make()
  await as({ tables: [customers] }).sync()
  await byHand('drop index ~customers_recent')
  await byHand('create index customers_recent on ~customers (id)')

  const [data, mail, recent] = customers.indexes!
  const indexes = [data!, { ...mail!, unique: false }, recent!]
  const schema = as({ tables: [{ ...customers, indexes }] })
  const { steps, problems } = await schema.sync()

  expect(steps).toEqual([])
  expect(problems.map(each => [each.kind, each.object])).toEqual([
    ['index_changed', 'index customers_email'],
    ['index_changed', 'index customers_recent'],
  ])
  expect(problems[1]!.problem).toContain('btree (id)')
})

test('an index whose build was interrupted is built again', async () => {
  const { as, byHand } = make()
  const schema = as({ tables: [customers] })
  await schema.sync()
  await byHand(`update pg_index set indisvalid = false where indexrelid = '~customers_email'::regclass`)

  const { steps } = await schema.sync()

  expect(new Set(steps.map(step => step.object))).toEqual(new Set(['index customers_email']))
  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
})

test('an index is not planned if its column has another type or its name is taken', async () => {
  const { as, byHand } = make()
  await as({ tables: [customers] }).sync()
  await byHand('create table ~customers_version (id integer)')
  await byHand('drop index ~customers_data')
  await byHand('drop index ~customers_email')
  await byHand('alter table ~customers alter column data type text')

  const gin = { name: 'customers_tags', columns: [trustedSql`(data -> 'tags')`], method: 'gin' } as const
  const indexes = [...customers.indexes!, gin, { name: 'customers_version', columns: ['version'] }]
  const { steps, problems } = await as({ tables: [{ ...customers, indexes }] }).sync()

  expect(steps).toEqual([])
  expect(problems).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ kind: 'index_missing', object: 'index customers_tags' }),
      expect.objectContaining({ kind: 'index_missing', object: 'index customers_version' }),
    ]),
  )
})

test('another object with the name of a declared table is reported and not changed', async () => {
  const { as, byHand } = make()
  await as({}).sync()
  await byHand('create view ~customers as select 1 as id')
  const schema = as({ tables: [{ ...customers, indexes: [] }] })

  const { steps, problems } = await schema.sync()

  expect(steps).toEqual([])
  expect(problems).toMatchObject([{ kind: 'table_changed', object: 'table customers' }])
})

test('check reports what a declared table lacks', async () => {
  const { as } = make()
  await as({ tables: [{ ...customers, indexes: [] }] }).sync()
  const orders: DeclaredTable = { name: 'orders', columns: [{ name: 'id', type: 'uuid' }], primaryKey: ['id'] }

  const { isHealthy, problems } = await as({
    tables: [{ ...customers, columns: [...customers.columns, email] }, orders],
  }).check()

  expect(isHealthy).toBe(false)
  expect(problems.map(each => `${each.kind} ${each.object}`)).toEqual([
    'column_missing column customers.email',
    'index_missing index customers_data',
    'index_missing index customers_email',
    'index_missing index customers_recent',
    'table_missing table orders',
  ])
})

test('names chosen by users are quoted everywhere', async () => {
  const odd = `o'dd "$$"; drop table x --`
  const table: DeclaredTable = {
    name: odd,
    columns: [
      { name: 'select', type: 'bigint' },
      { name: `${odd}?`, type: 'text', nullable: true },
    ],
    primaryKey: ['select'],
    indexes: [
      { name: `${odd} i`, columns: [`${odd}?`, trustedSql`lower(${identifier(`${odd}?`)})`], include: ['select'] },
    ],
  }
  const { as } = make()
  const schema = as({ tables: [table] })

  await schema.sync()

  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await schema.check()).toMatchObject({ isHealthy: true })
})

test('declaring a table twice is accepted; another table under its name, or a name of the store, is refused', () => {
  const registry = new TableRegistry()
  registry.register(customers)
  registry.register({ ...customers })
  const refused = expect.objectContaining({ code: 'invalid_option' })

  expect(registry.list()).toEqual([customers])
  expect(() => registry.register({ ...customers, fillfactor: 80 })).toThrow(refused)
  for (const name of ['events', 'streams_pkey', 'events_position', 'customers_email'])
    expect(() => registry.register({ ...customers, name, indexes: [] })).toThrow(refused)
  expect(() => registry.register({ ...customers, name: 'buyers' })).toThrow(
    /customers_data.*belongs to table customers/,
  )
  expect(registry.list()).toEqual([customers])
})

const [id] = customers.columns
const untrusted = { text: 'now(); drop table events' } as never
const nonsense: Record<string, Partial<DeclaredTable>> = {
  'a type that is not on the list': { columns: [{ name: 'id', type: 'text; drop table events' as never }] },
  'a type inherited from Object': { columns: [{ name: 'id', type: 'constructor' as never }] },
  'a default that is not trusted SQL': { columns: [{ name: 'id', type: 'text', default: untrusted }] },
  'a condition that is not trusted SQL': { indexes: [{ name: 'i', columns: ['id'], where: untrusted }] },
  'an expression that is not trusted SQL': { indexes: [{ name: 'i', columns: [untrusted] }] },
  'a method that is not on the list': { indexes: [{ name: 'i', columns: ['id'], method: 'btree (id)' as never }] },
  'an index without columns': { indexes: [{ name: 'i', columns: [] }] },
  'an index on a column that is not there': { indexes: [{ name: 'i', columns: ['nowhere'] }] },
  'a key on a column that is not there': { primaryKey: ['nowhere'] },
  'no key': { primaryKey: [] },
  'a nullable key': { columns: [{ ...id!, nullable: true }] },
  'two columns of one name': { columns: [id!, id!] },
  'a fillfactor that is none': { fillfactor: 5 },
}

for (const [what, part] of Object.entries(nonsense)) {
  test(`a declaration with ${what} is refused before it reaches any SQL`, () => {
    const registry = new TableRegistry()
    const table = { name: 'customers', columns: [id!], primaryKey: ['id'], ...part }

    expect(() => registry.register(table)).toThrow(expect.objectContaining({ code: 'invalid_option' }))
    expect(registry.list()).toEqual([])
  })
}

test('trusted SQL takes no values', () => {
  expect(() => trustedSql`${'now()' as never}`).toThrow(TypeError)
})

if (engine !== 'pglite') {
  test('a step that waits too long for a table in use fails, and has changed nothing', async () => {
    const { as, database, name } = make()
    await as({ tables: [customers] }).sync()
    const schema = as({ tables: [{ ...customers, columns: [...customers.columns, email] }] })

    const held = deferred<void>()
    const release = deferred<void>()
    const reader = database.transaction(async tx => {
      await tx.query(`select from ${identifier(name, 'customers')}`)
      held.resolve()
      await release.promise
    })
    await held.promise
    const sync = schema.sync({ lockMs: 50 })

    const lock = { code: 'timed_out', what: 'Getting the lock for column customers.email', timeoutMs: 50 }
    await expect(sync).rejects.toMatchObject(lock)
    release.resolve()
    await reader
    expect((await schema.plan()).steps).toHaveLength(1)
  })
}
