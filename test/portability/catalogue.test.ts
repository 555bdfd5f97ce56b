import { beforeAll, expect, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import { library } from '../../src/parts.ts'
import { renderMigration } from '../../src/schema/migration.ts'
import { openStore } from '../../src/store.ts'
import { freshSchema, openDatabase } from '../support/engines.ts'
import { shopEvents } from '../support/shop.ts'
import { statementsDuring } from '../support/statement-recording.ts'
import { offencesIn } from './catalogue.ts'
import { lint } from './lint.ts'
import { provision } from './sample-usage.ts'
import { readCatalogue } from './volatility.ts'

const schema = freshSchema()
let database: Database
let sent: string[]

beforeAll(async () => {
  database = await openDatabase()
  sent = await statementsDuring(async () => {
    await using store = await openStore({ events: shopEvents, database, schema })
    await provision(store)
  })
  return () => database.transaction(tx => tx.query(`drop schema "${schema}" cascade`))
})

test('a schema contains nothing that Citus refuses', async () => {
  expect(await offencesIn(database, schema)).toEqual([])
})

test('the body of every function, with counters, consists of statements that run on Citus', async () => {
  const catalogue = await readCatalogue(database, schema)
  const broken = library.functions.flatMap(each =>
    lint(each.create(schema, 'counter'), catalogue).map(
      ({ rule, what }) => `${each.name} breaks rule ${rule}: ${what}`,
    ),
  )

  expect(library.functions.length).toBeGreaterThan(30)
  expect(broken).toEqual([])
})

test('a schema with counters has no sequence', () => {
  const made = library.migrations.flatMap(each => renderMigration(each, schema, 'counter'))

  expect(made.length).toBeGreaterThan(30)
  expect(made.filter(text => /\bsequence\b/i.test(text))).toEqual([])
})

test('creating one takes one statement per call, each of a portable kind', async () => {
  const catalogue = await readCatalogue(database, schema)
  const making = sent.filter(text =>
    /^\s*(create (?!or replace function)|(alter|drop|comment|insert|do)\b)/i.test(text),
  )

  expect(making.length).toBeGreaterThan(50)
  expect(making.flatMap(text => lint(text, catalogue).map(({ rule, what }) => [rule, what, text]))).toEqual([])
})

test('objects that Citus refuses are detected', async () => {
  const bad = freshSchema()
  const statements = [
    `create schema "${bad}"`,
    `create table "${bad}".keyless (a integer)`,
    `create table "${bad}".numbered (id bigint generated always as identity primary key)`,
    `create table "${bad}".counted (id bigserial primary key, at xid8)`,
    `create table "${bad}".heir (primary key (id)) inherits ("${bad}".numbered)`,
    `create table "${bad}".parted (a integer primary key) partition by range (a)`,
    `create table "${bad}".part partition of "${bad}".parted for values from (1) to (9) partition by range (a)`,
    `create table "${bad}".leaving (name text primary key references "${schema}".consumers (name))`,
    `create function "${bad}".tell() returns trigger language plpgsql as 'begin return new; end'`,
    `create trigger told before insert on "${bad}".keyless for each row execute function "${bad}".tell()`,
    `create rule ruled as on delete to "${bad}".keyless do instead nothing`,
  ]
  for (const text of statements) await database.transaction(tx => tx.query(text))

  const offences = await offencesIn(database, bad)
  await database.transaction(tx => tx.query(`drop schema "${bad}" cascade`))

  expect(offences).toEqual([
    'default from a sequence: counted.id',
    'foreign key that leaves the schema: leaving.leaving_name_fkey',
    'identity: numbered.id',
    'inheritance: heir',
    'no primary key: keyless',
    'partitions of a partition: part',
    'rule: keyless.ruled',
    'trigger: keyless.told',
    'xid: counted.at',
  ])
})
