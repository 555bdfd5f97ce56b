import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { isRillflowError } from '../../src/core/errors.ts'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { lockKey } from '../../src/schema/migrate.ts'
import type { Migration } from '../../src/schema/migration.ts'
import { engine, freshSchema, postgresUrl } from '../support/engines.ts'
import { makeFixture, migrations, useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

const notes: Migration = {
  id: migrations.length + 1,
  name: 'notes',
  breaking: false,
  statements: [
    `create table ~notes (id integer primary key)`,
    `alter table ~streams add column note text`,
    `create index streams_note on ~streams (note)`,
  ],
}

const broken: Migration = {
  id: migrations.length + 1,
  name: 'broken',
  breaking: false,
  statements: ['create table ~half (id integer primary key)', 'select 1 / 0'],
}

test('a plan shows the SQL and runs none of it', async () => {
  const { schema, byHand, name } = make()

  const { steps, problems } = await schema.plan()

  expect(steps.map(step => step.object)).toEqual(
    expect.arrayContaining([`schema ${name}`, 'migration 1 (baseline)', 'function append_one']),
  )
  expect(steps[0]).toMatchObject({ kind: 'schema', sql: `create schema if not exists "${name}"` })
  expect(steps.map(step => step.sql).join('\n')).toContain(`create table "${name}"."events"`)
  expect(problems).toEqual([])
  expect(await byHand(`select from pg_namespace where nspname = '${name}'`)).toEqual([])
})

test('RB-56: after a sync the plan is empty, the state is current and the check finds nothing', async () => {
  const { schema } = make()

  const done = await schema.sync()

  expect(done.steps.length).toBeGreaterThan(migrations.length)
  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await schema.state()).toEqual({ status: 'current', pending: [] })
  expect(await schema.check()).toEqual({ isHealthy: true, problems: [], newer: [] })
})

test('a second sync changes nothing', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  const before = await byHand('select xmin::text, id, applied_at from ~migrations')

  const again = await schema.sync()

  expect(again).toEqual({ steps: [], problems: [] })
  expect(await byHand('select xmin::text, id, applied_at from ~migrations')).toEqual(before)
})

test('the SQL of a plan, run by hand, creates the same as a sync', async () => {
  const { schema, byHand } = make()

  for (const { sql } of (await schema.plan()).steps) await byHand(sql)

  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await schema.check()).toMatchObject({ isHealthy: true })
})

test('RB-50: the schema enforces keys and ids by itself, without a trigger that could be forgotten', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  const key = `insert into ~idempotency_keys (key, digest, event_ids) values ('checkout-1', 'x', '{}')`
  const event = (position: number, stream: string): string => `
    insert into ~events (position, version, created_at, event_id, schema_version, stream, type, correlation_id, data)
    values (${position}, 1, now(), '00000000-0000-7000-8000-000000000001', 1, '${stream}', 'OrderPlaced', 'c', '{}')`

  await byHand(key)
  await byHand(event(1, 'order-1'))

  await expect(byHand(key)).rejects.toMatchObject({ code: '23505' })
  await expect(byHand(event(2, 'order-2'))).rejects.toMatchObject({ code: '23505' })
  expect(await byHand(`select from pg_trigger where tgrelid = '~events'::regclass and not tgisinternal`)).toEqual([])
})

test('RB-54: a later migration keeps the data and every invariant of a schema in use', async () => {
  const { schema, as, byHand } = make()
  await schema.sync()
  await byHand(placeOrder)

  const later = as({ migrations: [...migrations, notes] })
  expect((await later.state()).pending).toEqual([`migration ${notes.id} (notes)`])
  const done = await later.sync()

  expect(new Set(done.steps.map(step => step.object))).toEqual(new Set([`migration ${notes.id} (notes)`]))
  expect(await byHand('select position, stream, version, data from ~events')).toEqual([
    { position: 1, stream: 'order-1', version: 1, data: { total: 99 } },
  ])
  expect(await later.plan()).toEqual({ steps: [], problems: [] })
  expect(await later.check()).toMatchObject({ isHealthy: true })
})

const placeOrder = `select * from ~append_one(
  'order-1', 'empty', null, false, '{00000000-0000-7000-8000-000000000001}', '{OrderPlaced}', null,
  '[{"total": 99}]', null, null, null, null)`

const names = [
  `we'ird "$$" name`,
  'Схема ☕',
  'UPPER',
  'select',
  'back\\slash',
  'a.b',
  ' USING btree (',
  '%I',
  'é'.repeat(31),
]

for (const name of names) {
  test(`RB-55: a schema called ${name} is created in one sync, works, and the second sync plans nothing`, async () => {
    const { schema, byHand } = make(name)
    await byHand(`drop schema if exists "${name.replaceAll('"', '""')}" cascade`)

    await schema.sync()
    await byHand(placeOrder)

    expect(await byHand('select head, settled from ~settle()')).toEqual([{ head: 1, settled: 1 }])
    expect(await schema.sync()).toEqual({ steps: [], problems: [] })
    expect(await schema.check()).toMatchObject({ isHealthy: true, problems: [] })
    await byHand(`drop schema "${name.replaceAll('"', '""')}" cascade`)
  })
}

test('names that PostgreSQL cannot store or reserves are refused immediately', () => {
  for (const name of ['', 'x'.repeat(64), 'nul\0', 'pg_store', 'information_schema'])
    expect(() => make(name)).toThrow(expect.objectContaining({ code: 'invalid_name' }))
})

test('two schemas of one database are independent', async () => {
  const [one, other] = [make(), make()]

  await one.schema.sync()

  expect(await other.schema.state()).toMatchObject({ status: 'missing' })
  await other.schema.sync()
  await other.byHand('drop table ~events cascade')
  expect(await one.schema.check()).toMatchObject({ isHealthy: true })
})

test('of eight concurrent syncs one migrates and the others find nothing to do', async () => {
  const { database, name } = make()

  const all = await Promise.all(Array.from({ length: 8 }, () => makeFixture(database, name).schema.sync()))

  expect(all.filter(plan => plan.steps.length > 0)).toHaveLength(1)
})

test('progress is reported before each step', async () => {
  const { schema } = make()
  const told: string[] = []

  const { steps } = await schema.sync({
    onProgress: ({ step, done, total }) => told.push(`${done}/${total} ${step.object}`),
  })

  expect(told).toEqual(steps.map((step, i) => `${i}/${steps.length} ${step.object}`))
})

test('a sync that fails, is aborted, or whose onProgress throws has done nothing', async () => {
  const { schema, as, byHand, name } = make()
  const controller = new AbortController()
  const isGone = async (): Promise<boolean> =>
    (await byHand(`select from pg_namespace where nspname = '${name}'`)).length === 0

  await expect(as({ migrations: [...migrations, broken] }).sync()).rejects.toMatchObject({
    code: 'database_failed',
    sqlState: '22012',
    statement: `migration ${broken.id} (broken)`,
  })
  expect(await isGone()).toBe(true)

  const abortHalfWay = ({ done }: { done: number }): void => (done === 5 ? controller.abort() : undefined)
  const aborted = schema.sync({ signal: controller.signal, onProgress: abortHalfWay })
  await expect(aborted).rejects.toMatchObject({ code: 'aborted' })
  expect(await isGone()).toBe(true)

  const refuse = (): never => {
    throw new Error('not today')
  }
  await expect(schema.sync({ onProgress: refuse })).rejects.toThrow('not today')
  expect(await isGone()).toBe(true)
})

test('mode auto creates the schema, and costs two queries, or four on a server, when there is nothing to do', async () => {
  const { schema, database, name } = make()
  await schema.ensure('auto')
  expect(await schema.state()).toMatchObject({ status: 'current' })

  const sent: string[] = []
  const noted = { ...database }
  noted.run = statement => {
    sent.push(statement.label)
    return database.run(statement)
  }
  noted.runArrays = statement => {
    sent.push(statement.label)
    return database.runArrays(statement)
  }
  await makeFixture(noted, name).schema.ensure('auto')

  const onServer = ['schema.used', expect.stringMatching(/^schema\.drawn_/)]
  expect(sent).toEqual(['schema.migrations', 'schema.functions', ...(database.engine === 'postgres' ? onServer : [])])
})

test('mode check changes nothing, and reports whether the schema is missing or outdated', async () => {
  const { schema, as, name, byHand } = make()

  await expect(schema.ensure('check')).rejects.toMatchObject({ code: 'schema_missing', schema: name })
  await byHand(`create schema "${name}"`)
  await expect(schema.ensure('check')).rejects.toMatchObject({ code: 'schema_missing', schema: name })

  await schema.sync()
  await schema.ensure('check')
  await expect(as({ migrations: [...migrations, notes] }).ensure('check')).rejects.toMatchObject({
    code: 'schema_outdated',
    pending: [`migration ${notes.id} (notes)`],
  })
})

test('mode manual sends no query', async () => {
  const { database, name } = make()
  const run = (): never => {
    throw new Error('looked')
  }

  await makeFixture({ ...database, run, transaction: run }, name).schema.ensure('manual')
})

test('a schema with a breaking migration of a newer library is refused by every mode that checks', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  await byHand(`insert into ~migrations (id, name, checksum, breaking) values (99, 'future', 'x', true)`)

  const newer = { code: 'schema_newer', found: 99, known: migrations.length }
  await expect(schema.ensure('auto')).rejects.toMatchObject(newer)
  await expect(schema.ensure('check')).rejects.toMatchObject(newer)
  await expect(schema.sync()).rejects.toMatchObject(newer)
  await expect(schema.plan()).rejects.toMatchObject(newer)
  expect(await schema.check()).toMatchObject({ isHealthy: false, problems: [{ kind: 'schema_newer' }] })
})

test('a migration of a newer library that is not breaking is accepted', async () => {
  const { schema, as } = make()
  await as({ migrations: [...migrations, notes] }).sync()

  await schema.ensure('check')

  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await schema.check()).toEqual({ isHealthy: true, problems: [], newer: [`migration ${notes.id} (notes)`] })
})

test('a migration that was applied with other text is refused', async () => {
  const { schema, as } = make()
  const changed = { ...notes, statements: ['select 1'] }
  await as({ migrations: [...migrations, changed] }).sync()

  const now = as({ migrations: [...migrations, notes] })
  const drift = { code: 'schema_drift', problems: [expect.stringContaining(`migration ${notes.id} (notes)`)] }
  await expect(now.sync()).rejects.toMatchObject(drift)
  await expect(now.ensure('auto')).rejects.toMatchObject(drift)
  await expect(now.ensure('check')).rejects.toMatchObject(drift)
  expect(await now.check()).toMatchObject({ isHealthy: false, problems: [{ kind: 'migration_changed' }] })
  await schema.ensure('check')
})

test('a schema whose table of migrations belongs to another program is refused', async () => {
  const { schema, byHand, name } = make()
  await byHand(`create schema "${name}"`)
  await byHand('create table ~migrations (version text)')

  await expect(schema.ensure('auto')).rejects.toMatchObject({ code: 'schema_drift' })
  await expect(schema.sync()).rejects.toMatchObject({ code: 'schema_drift' })
})

test('inside a transaction of the same database, where it would wait for itself, a sync fails immediately', async () => {
  const { schema, database } = make()

  await expect(database.transaction(() => schema.sync())).rejects.toMatchObject({ code: 'inside_transaction' })
})

if (engine !== 'pglite') {
  test('eight syncs through a pool of one connection all end', async () => {
    const database = await openPostgres({ url: postgresUrl(), maxConnections: 1 })
    const { schema } = makeFixture(database)

    const all = await Promise.all(Array.from({ length: 8 }, () => schema.sync()))
    await database.close(1000)

    expect(all.filter(plan => plan.steps.length > 0)).toHaveLength(1)
  })

  test('of two processes that start at once one migrates', async () => {
    const name = freshSchema()

    const steps = (await Promise.all([syncInProcess(name), syncInProcess(name)])).flat()

    expect(steps).toHaveLength(8)
    expect(steps.filter(count => count > 0)).toHaveLength(1)
  })

  test('a process waits while another one migrates, up to its limit', async () => {
    const { schema, database, name } = make()
    const held = deferred<void>()
    const release = deferred<void>()
    const other = database.transaction(async tx => {
      await tx.query(`select pg_advisory_xact_lock(${lockKey(name)})`)
      held.resolve()
      await release.promise
    })
    await held.promise

    await expect(schema.sync({ timeoutMs: 50 })).rejects.toMatchObject({ code: 'timed_out' })
    const controller = new AbortController()
    const impatient = schema.sync({ signal: controller.signal })
    controller.abort()
    await expect(impatient).rejects.toMatchObject({ code: 'aborted' })
    const patient = schema.sync()
    release.resolve()

    expect((await patient).steps.length).toBeGreaterThan(0)
    await other
  })

  test('a user without the right to create schemas can migrate an existing one', async () => {
    const { database, byHand, name } = make()
    const role = name.toLowerCase()
    await byHand(`create role "${role}" login password 'shop'`)
    await byHand(`create schema "${name}" authorization "${role}"`)
    const url = new URL(postgresUrl())
    Object.assign(url, { username: role, password: 'shop' })

    const limited = await openPostgres({ url: url.href })
    const { schema } = makeFixture(limited, name)
    await schema.sync()
    const checked = await schema.check()
    const elsewhere = await makeFixture(limited)
      .schema.sync()
      .catch(error => error)
    await limited.close(1000)
    await byHand(`drop schema "${name}" cascade`)
    await byHand(`drop role "${role}"`)

    expect(checked).toMatchObject({ isHealthy: true })
    expect(isRillflowError(elsewhere, 'permission_denied')).toBe(true)
    await database.run({ label: 'alive', text: 'select 1', values: [] })
  })
}

/** How many steps each of four syncs took in a process of its own. */
async function syncInProcess(name: string): Promise<number[]> {
  const program = fileURLToPath(new URL('./sync-process.ts', import.meta.url))
  const script = ['--import', 'tsx', program, postgresUrl(), name]
  const child = spawn(process.execPath, script, { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  for await (const chunk of child.stdout) output += chunk
  return JSON.parse(output) as number[]
}
