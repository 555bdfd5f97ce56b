/** Indexes on tables that are in use. */
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { identifier } from '../../src/database/sql.ts'
import { type DeclaredTable, trustedSql } from '../../src/schema/table.ts'
import { engine } from '../support/engines.ts'
import { waitUntil } from '../support/wait.ts'
import { useDatabase } from './schema-fixture.ts'

const { make } = useDatabase()

const customers: DeclaredTable = {
  name: 'customers',
  columns: [
    { name: 'id', type: 'bigint' },
    { name: 'email', type: 'text', nullable: true },
  ],
  primaryKey: ['id'],
}
const byEmail = { ...customers, indexes: [{ name: 'customers_email', columns: ['email'], unique: true }] }

test('an index is added to a table with rows, and a second sync finds nothing to do', async () => {
  const { as, byHand } = make()
  await as({ tables: [customers] }).sync()
  await byHand(`insert into ~customers select n, 'mail' || n from generate_series(1, 100) as n`)

  const schema = as({ tables: [byEmail] })
  const { steps } = await schema.sync()

  expect(steps.some(step => step.sql.includes('concurrently'))).toBe(engine !== 'pglite')
  expect(await schema.plan()).toEqual({ steps: [], problems: [] })
  expect(await schema.check()).toMatchObject({ isHealthy: true })
})

test('a table without rows gets its index with everything else, in one transaction', async () => {
  const { as } = make()
  await as({ tables: [customers] }).sync()

  const { steps } = await as({ tables: [byEmail] }).sync()

  expect(steps.some(step => step.isAlone === true)).toBe(false)
})

test('an index whose build was interrupted is reported by the check, and built when possible', async () => {
  const { as, byHand } = make()
  await as({ tables: [customers] }).sync()
  await byHand(`insert into ~customers values (1, 'ada'), (2, 'ada')`)
  const schema = as({ tables: [byEmail] })

  await expect(schema.sync()).rejects.toMatchObject({ code: 'database_failed', sqlState: '23505' })
  expect((await schema.check()).problems).toMatchObject([{ kind: 'index_missing', object: 'index customers_email' }])

  await byHand('delete from ~customers where id = 2')
  await schema.sync()
  expect(await schema.check()).toMatchObject({ isHealthy: true })
  await expect(byHand(`insert into ~customers values (3, 'ada')`)).rejects.toMatchObject({ code: '23505' })
})

if (engine !== 'pglite') {
  test('writers write while an index is built, and two concurrent syncs build it once', async () => {
    const { as, byHand, database, name } = make()
    await as({ tables: [customers] }).sync()
    await byHand(`insert into ~customers select n, 'mail' || n from generate_series(1, 100) as n`)
    const held = deferred<void>()
    const release = deferred<void>()
    // The build waits for this transaction, which has written to the table before.
    const earlier = database.transaction(async tx => {
      await tx.query(`insert into ${identifier(name, 'customers')} values (1001, 'earlier')`)
      held.resolve()
      await release.promise
    })
    await held.promise

    const builds = [as({ tables: [byEmail] }).sync(), as({ tables: [byEmail] }).sync()]
    await waitForBuild(byHand)
    await byHand(`insert into ~customers values (1002, 'meanwhile')`)
    release.resolve()
    await earlier
    await Promise.all(builds)

    const schema = as({ tables: [byEmail] })
    expect(await schema.check()).toMatchObject({ isHealthy: true })
    expect(await byHand('select count(*) from ~customers')).toEqual([{ count: 102 }])
  })

  test('a new column and an index on it are added one after the other', async () => {
    const { as, byHand } = make()
    await as({ tables: [customers] }).sync()
    await byHand(`insert into ~customers values (1, 'ada')`)
    const tier = { name: 'tier', type: 'text', default: trustedSql`'free'` } as const
    const indexes = [{ name: 'customers_tier', columns: ['tier'] }]
    const schema = as({ tables: [{ ...customers, columns: [...customers.columns, tier], indexes }] })

    await schema.sync()

    expect(await schema.check()).toMatchObject({ isHealthy: true })
  })
}

async function waitForBuild(byHand: (text: string) => Promise<object[]>): Promise<void> {
  await waitUntil(async () => {
    const waiting = await byHand(`
      select from pg_stat_activity
      where query like 'create unique index concurrently%' and wait_event_type = 'Lock'`)
    return waiting.length > 0
  })
}
