import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { fragment } from '../../src/database/sql.ts'
import { immutableFunctions } from '../../src/schema/immutable.sql.ts'
import { plpgsql, revisionOf, type SqlFunction } from '../../src/schema/plpgsql.ts'
import { freshSchema } from '../support/engines.ts'
import { expectFile } from './generated-file.ts'
import { type Fixture, functions, useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

const revisionsFile = 'test/schema/revisions.json'

/** By name: the revision of each function and the checksum of its text. */
type Revisions = Record<string, { revision: number; checksum: string }>

test('a function whose text has changed has a higher revision', () => {
  const recorded: Revisions = existsSync(revisionsFile) ? JSON.parse(readFileSync(revisionsFile, 'utf8')) : {}
  const current: Revisions = Object.fromEntries(
    functions.map(each => [each.name, { revision: each.revision, checksum: checksumOf(each) }]),
  )
  for (const [name, { revision, checksum }] of Object.entries(current)) {
    const before = recorded[name]
    if (before === undefined || before.checksum === checksum) continue
    expect(revision, `the text of ${name} has changed: raise its revision`).toBeGreaterThan(before.revision)
  }
  expectFile(revisionsFile, `${JSON.stringify(current, null, 2)}\n`)
})

test('each function has a name of its own', () => {
  expect(new Set(functions.map(each => each.name)).size).toBe(functions.length)
})

const shout = (revision: number): SqlFunction => plpgsql({ revision })`
  create function ~shout(out text text)
  begin
    text := ${fragment`'~shout' || '!'`};
  end`

test('a sync makes a function that is missing and replaces one of a lower revision', async () => {
  const { as, byHand } = make()
  await as({ functions: [...functions, shout(1)] }).sync()

  const later = as({ functions: [...functions, shout(2)] })
  expect(await later.state()).toEqual({ status: 'outdated', pending: ['function shout'] })
  expect(await later.check()).toMatchObject({ isHealthy: false, problems: [{ object: 'function shout' }] })
  expect((await later.sync()).steps).toMatchObject([{ kind: 'function', object: 'function shout' }])

  expect(await later.sync()).toEqual({ steps: [], problems: [] })
  expect(await revisionIn(byHand, 'shout')).toBe(2)
})

test('a process that brings a lower revision leaves the higher one, so that two versions do not replace each other', async () => {
  const { as, byHand } = make()
  const [older, newer] = [as({ functions: [...functions, shout(1)] }), as({ functions: [...functions, shout(2)] })]
  await newer.sync()

  await older.ensure('check')
  await older.ensure('auto')

  expect(await older.sync()).toEqual({ steps: [], problems: [] })
  expect(await revisionIn(byHand, 'shout')).toBe(2)
  expect(await older.check()).toEqual({ isHealthy: true, problems: [], newer: ['function shout'] })
})

test('a body without a revision counts as lower than every revision', async () => {
  const { schema, byHand } = make()
  await schema.sync()
  await byHand(`create or replace function ~announce() returns void language plpgsql as 'begin end'`)

  await schema.sync()

  expect(await revisionIn(byHand, 'announce')).toBe(functions.find(each => each.name === 'announce')!.revision)
})

test('a name of the schema is put in as an identifier, and between quotes as text', async () => {
  const name = `it's a "$body$" ${freshSchema().slice(0, 20)}`
  const fixture = make(name)
  await fixture.as({ functions: [...functions, shout(1)] }).sync()

  const [row] = await fixture.byHand<{ text: string }>('select text from ~shout()')
  await fixture.byHand(`drop schema "${name.replaceAll('"', '""')}" cascade`)

  expect(row!.text).toBe(`"${name.replaceAll('"', '""')}"."shout"!`)
})

test('a text that is not a function, or has a value in it, is refused when it is loaded', () => {
  expect(() => plpgsql({ revision: 1 })`select 1`).toThrow('create function')
  const value = 'x' as unknown as ReturnType<typeof fragment>
  expect(() => plpgsql({ revision: 1 })`create function ~a(${value})\nbegin\nend`).toThrow('not a value')
})

test('no function has its plans compiled, and each but clock, those declared so and the expressions is volatile', async () => {
  const fixture = make()
  await fixture.schema.sync()

  const rows = await fixture.byHand<FoundFunction>(`
    select p.proname::text as name, l.lanname::text as language, p.provolatile::text as volatility,
      coalesce(p.proconfig, '{}') as settings, p.prosrc as body
    from pg_proc as p
    join pg_language as l on l.oid = p.prolang
    where p.pronamespace = (select oid from pg_namespace where nspname = '${fixture.name}')
    order by 1`)

  expect(rows.map(row => row.name)).toEqual(functions.map(each => each.name).sort())
  for (const { name, language, volatility, settings, body } of rows) {
    expect(revisionOf(body), name).toBeGreaterThan(0)
    // An expression takes the place of its call. The clock runs no statement.
    if (language === 'sql' || name === 'clock' || immutable.has(name))
      expect([name, volatility, settings]).toEqual([name, 'i', []])
    else expect([name, volatility, settings]).toEqual([name, 'v', expect.arrayContaining(['jit=off'])])
  }
})

test('no function reads the time but by the clock', () => {
  const others = functions.filter(each => each.name !== 'clock')
  const readers = others.filter(each =>
    /\b(clock_timestamp|now|statement_timestamp)\(|\bcurrent_timestamp\b/.test(
      each.body('s', 'announced') + each.body('s', 'counter'),
    ),
  )

  expect(readers.map(each => each.name)).toEqual([])
})

test('the clock is read anew at every call, also in a plan that is kept, and a test can move it', async () => {
  const { schema, database, name, byHand } = make()
  await schema.sync()
  const read = `select "${name}".clock(s.version)::text as now from "${name}".streams as s`
  await byHand(`insert into ~streams (stream, version) values ('order-1', 1)`)
  const reads = await database.transaction(async tx => {
    await tx.query(`set local plan_cache_mode = force_generic_plan`)
    await tx.query(`prepare ask as ${read}`)
    const texts: string[] = []
    for (let n = 0; n < 3; n++) texts.push((await tx.query<{ now: string }>('execute ask'))[0]!.now)
    await tx.query(`set local rillflow.clock = '+86400000'`)
    texts.push((await tx.query<{ now: string }>('execute ask'))[0]!.now)
    await tx.query(`set local rillflow.clock = '2030-01-01T00:00:00.000Z'`)
    const still = (await tx.query<{ now: string }>('execute ask'))[0]!.now
    expect(Date.parse(still)).toBe(Date.parse('2030-01-01T00:00:00.000Z'))
    await tx.query('deallocate ask')
    return texts.map(text => Date.parse(text))
  })

  expect([...reads].sort((a, b) => a - b)).toEqual(reads)
  expect(reads[3]! - reads[2]!).toBeGreaterThanOrEqual(86_400_000)
  expect(reads[3]! - reads[2]!).toBeLessThan(86_460_000)
})

const immutable = new Set(immutableFunctions.map(each => each.name))

interface FoundFunction {
  readonly name: string
  readonly language: string
  readonly volatility: string
  readonly settings: string[]
  readonly body: string
}

function checksumOf(each: SqlFunction): string {
  const hasOneBody = each.body('rillflow', 'announced') === each.body('rillflow', 'counter')
  const text = each.create('rillflow', 'announced') + (hasOneBody ? '' : each.create('rillflow', 'counter'))
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}

async function revisionIn(byHand: Fixture['byHand'], name: string): Promise<number> {
  const [row] = await byHand<{ body: string }>(`select prosrc as body from pg_proc where oid = '~${name}'::regproc`)
  return revisionOf(row!.body)
}
