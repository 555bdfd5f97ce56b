import { expect, test } from 'vitest'
import { library } from '../../src/parts.ts'
import { expected } from '../../src/schema/expected.ts'
import { emptyHistory, historySteps } from '../../src/schema/history.ts'
import { checksum, type Migration } from '../../src/schema/migration.ts'
import { readNumbers } from '../../src/schema/numbers.ts'
import { bodyHashes, readShape, type SchemaShape, shapeOf } from '../../src/schema/shape.ts'
import { freshSchema } from '../support/engines.ts'
import { expectFile, printData } from './generated-file.ts'
import { type Fixture, functions, migrations, useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

/** A line here never changes once its migration is released: what is wrong with it is fixed by another one. */
const released: Record<number, string> = {
  1: 'c2acd6aab73650025d2ab5ec4cdf85655e514f3bc7a3cc64a82a822af004b74a',
}

test('RB-54: a released migration never changes', () => {
  const checksums = Object.fromEntries(migrations.map(migration => [migration.id, checksum(migration)]))

  expect(checksums).toEqual(released)
})

test('migrations are numbered from 1 without a gap, and each has its own name', () => {
  expect(migrations.map(migration => migration.id)).toEqual(migrations.map((_, i) => i + 1))
  expect(new Set(migrations.map(migration => migration.name)).size).toBe(migrations.length)
})

test('the checksum of a migration depends on every statement of it', () => {
  const [first] = migrations
  const longer: Migration = { ...first!, statements: [...first!.statements, 'select 1'] }
  const same: Migration = { ...first!, statements: [...first!.statements] }

  expect(checksum(same)).toBe(checksum(first!))
  expect(checksum(longer)).not.toBe(checksum(first!))
})

test('docs/reference/schema.sql is the SQL that a sync of a new schema runs', () => {
  const steps = historySteps(emptyHistory(library, 'announced'), 'rillflow')
  const parts = steps.map(({ object, sql }, i) => (object === steps[i - 1]?.object ? sql : `-- ${object}\n\n${sql}`))

  expectFile('docs/reference/schema.sql', `${head}${parts.map(part => `\n${part};\n`).join('')}`)
})

const head = `-- All that a new store in schema "rillflow" is made of; text to paste, generated from the folders of src.
`

test('the schema that check() expects is the one that a sync creates', async () => {
  const fixture = make()
  await fixture.schema.sync()

  const shape = shapeOf(await readShape(fixture.database, fixture.name, await namesIn(fixture)))

  const ofWorkflows = (name: string): boolean => name.startsWith('workflow')
  expectFile('src/schema/expected-workflows.ts', `${workflowsHead}${printData(partOf(shape, ofWorkflows))}\n`)
  const others = partOf(shape, name => !ofWorkflows(name))
  expectFile('src/schema/expected.ts', `${expectedHead}${printData(others)}\n${expectedEnd}`)
})

function partOf({ tables, sequences, functions }: SchemaShape, isIn: (name: string) => boolean): SchemaShape {
  const some = <T>(all: Readonly<Record<string, T>>): Record<string, T> =>
    Object.fromEntries(Object.entries(all).filter(([name]) => isIn(name)))
  return { tables: some(tables), sequences: some(sequences), functions: some(functions) }
}

const expectedHead = `/**
 * Every object of the library itself, in PostgreSQL's words. Generated: change a table or a function, then run
 * RILLFLOW_UPDATE=1 npx vitest run --project postgres-18 test/schema
 */
import { expectedWorkflows } from './expected-workflows.ts'
import type { SchemaShape } from './shape.ts'

const others: SchemaShape = `

const expectedEnd = `
export const expected: SchemaShape = {
  tables: { ...others.tables, ...expectedWorkflows.tables },
  sequences: { ...others.sequences, ...expectedWorkflows.sequences },
  functions: { ...others.functions, ...expectedWorkflows.functions },
}
`

const workflowsHead = `/** The part of workflows in \`expected.ts\`; generated with it. */
import type { SchemaShape } from './shape.ts'

export const expectedWorkflows: SchemaShape = `

test('RB-53: every table has a primary key, and uniqueness is enforced by an index of the table itself', async () => {
  const fixture = make()
  await fixture.schema.sync()
  const { tables } = shapeOf(await readShape(fixture.database, fixture.name, await namesIn(fixture)))

  for (const [name, { indexes }] of Object.entries(tables)) {
    expect(Object.values(indexes).join('; '), name).toContain('primary key')
  }
  expect(Object.values(tables.events!.indexes)).toEqual(
    expect.arrayContaining(['unique btree (stream, version)', 'unique btree (event_id)']),
  )
})

test('no trigger, rule, foreign key, view or partition is created', async () => {
  const fixture = make()
  await fixture.schema.sync()

  const found = await fixture.byHand(`
    select 'trigger' as what from pg_trigger where tgrelid in (select oid from pg_class where relnamespace = ${oid(fixture)})
    union all
    select 'foreign key' from pg_constraint where contype = 'f' and connamespace = ${oid(fixture)}
    union all
    select 'rule' from pg_rewrite where ev_class in (select oid from pg_class where relnamespace = ${oid(fixture)})
    union all
    select relkind::text from pg_class where relnamespace = ${oid(fixture)} and relkind not in ('r', 'i', 'S')`)

  expect(found).toEqual([])
})

test('the catalogue has the body of every function, so that a change of it is detected', async () => {
  const fixture = make(`bodies of "${freshSchema()}" \\ '$$'`)
  await fixture.schema.sync()
  const { objects } = await readShape(fixture.database, fixture.name, expected)
  const bodies = bodyHashes(functions, fixture.name, await readNumbers(fixture.database, fixture.name))

  for (const { kind, name, bodyHash } of objects) {
    if (kind === 'function') expect(bodies.get(name), name).toBe(bodyHash)
  }
  expect(objects.length).toBeGreaterThan(functions.length)
})

function oid({ name }: Fixture): string {
  return `(select oid from pg_namespace where nspname = '${name}')`
}

async function namesIn(fixture: Fixture): Promise<SchemaShape> {
  const named = async (text: string): Promise<string[]> =>
    (await fixture.byHand<{ name: string }>(text)).map(row => row.name)
  const relations = (kind: string): Promise<string[]> =>
    named(`select relname::text as name from pg_class
      where relkind = '${kind}' and relnamespace = ${oid(fixture)} order by 1`)
  const functions = await named(
    `select distinct proname::text as name from pg_proc where pronamespace = ${oid(fixture)}`,
  )
  const empty = { columns: {}, indexes: {} }
  return {
    tables: Object.fromEntries((await relations('r')).map(name => [name, empty])),
    sequences: Object.fromEntries((await relations('S')).map(name => [name, ''])),
    functions: Object.fromEntries(functions.map(name => [name, ''])),
  }
}
