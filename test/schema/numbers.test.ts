import { expect, test } from 'vitest'
import type { Transaction } from '../../src/database/database.ts'
import { library } from '../../src/parts.ts'
import { checkSchema } from '../../src/schema/check.ts'
import { raiseDrawn, readDrawn, readNumbers } from '../../src/schema/numbers.ts'
import { makePlan } from '../../src/schema/plan.ts'
import { nameIn } from '../../src/schema/plpgsql.ts'
import { freshSchema, hasCounters, openDatabase } from '../support/engines.ts'

const kinds = ['announced', 'counter'] as const

test('a schema has the numbers that its database wants when it is made', async () => {
  await within(async ({ tx, name, make }) => {
    await make()

    expect(await readNumbers(tx, name)).toBe(hasCounters ? 'counter' : 'announced')
  })
})

test.for(kinds)('a schema keeps its numbers (%s), also where new ones would get others', async numbers => {
  await within(async ({ tx, name, make, want }) => {
    await want(numbers)
    await make()
    await want(kinds.find(each => each !== numbers)!)

    expect(await readNumbers(tx, name)).toBe(numbers)
    expect(await makePlan(tx, targetOf(name))).toEqual({ steps: [], problems: [] })
    expect(await checkSchema(tx, targetOf(name))).toEqual({ isHealthy: true, problems: [], newer: [] })
  })
})

test('a schema with counters has a row for each source, and no sequence', async () => {
  await within(async ({ tx, name, make, want }) => {
    await want('counter')
    await make()

    expect(await tx.query(`select 1 from pg_sequences where schemaname = '${name}'`)).toEqual([])
    expect(await readDrawn(tx, name, 'counter')).toEqual({
      consumers_fence: 0,
      events_position: 0,
      workflow_activity_position: 0,
      workflow_routes_id: 0,
      workflow_undos_id: 0,
    })
  })
})

test.for(kinds)('numbers (%s) ascend, and each is drawn once', async numbers => {
  await within(async ({ byHand, make, want }) => {
    await want(numbers)
    await make()

    expect(await byHand('select to_jsonb(~draw(3)) as drawn')).toEqual([{ drawn: [1, 2, 3] }])
    expect(await byHand('select to_jsonb(~draw(1)) as drawn')).toEqual([{ drawn: [4] }])
    expect(await byHand('select head from ~settle()')).toEqual([{ head: 4 }])
  })
})

test.for(kinds)('numbers (%s) can be raised, and are never lowered', async numbers => {
  await within(async ({ tx, name, byHand, make, want }) => {
    await want(numbers)
    await make()

    await raiseDrawn(tx, name, numbers, 'events_position', 70)
    await raiseDrawn(tx, name, numbers, 'events_position', 7)

    expect(await byHand('select to_jsonb(~draw(1)) as drawn')).toEqual([{ drawn: [71] }])
  })
})

test.for(kinds)(
  'numbers (%s) that are behind the log are found, with the statement that sets them right',
  async numbers => {
    await within(async ({ tx, name, byHand, make, want }) => {
      await want(numbers)
      await make()
      await byHand(`
      insert into ~events (position, version, created_at, event_id, schema_version, stream, type, correlation_id, data)
      values (9, 1, now(), gen_random_uuid(), 1, 'order-1', 'OrderPlaced', 'c', '{}')`)

      const { problems } = await checkSchema(tx, targetOf(name))

      expect(problems).toMatchObject([{ kind: 'sequence_behind', object: 'sequence events_position' }])
      await tx.query(/then: (.*)$/.exec(problems[0]!.fix)![1]!)
      expect(await checkSchema(tx, targetOf(name))).toMatchObject({ isHealthy: true })
    })
  },
)

test('a schema that announces its positions is refused where Citus is, and a new one there gets counters', async () => {
  await within(async ({ tx, name, make, want }) => {
    await want('announced')
    await make()
    await tx.query(`
      insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
      select 99999, 'citus', 10, oid, false, '13.2-1' from pg_namespace where nspname = 'pg_catalog'`)

    await expect(makePlan(tx, targetOf(name))).rejects.toMatchObject({ code: 'numbers_unsafe' })
    expect(await readNumbers(tx, freshSchema())).toBe('counter')
  })
})

interface Scene {
  readonly tx: Transaction
  readonly name: string
  byHand(text: string): Promise<Record<string, unknown>[]>
  want(numbers: string): Promise<unknown>
  make(): Promise<void>
}

/** A schema in a transaction that is rolled back: other tests see neither its settings nor a faked extension. */
async function within(work: (scene: Scene) => Promise<void>): Promise<void> {
  const database = await openDatabase()
  const name = freshSchema()
  const done = new Error('rolled back')
  const inside = database.transaction(async tx => {
    await work({
      tx,
      name,
      byHand: text => tx.query(nameIn(name, text)),
      want: numbers => tx.query(`set local rillflow.numbers = '${numbers}'`),
      make: async () => {
        const { steps } = await makePlan(tx, targetOf(name))
        for (const step of steps) await tx.query(step.sql)
      },
    })
    throw done
  })
  await expect(inside).rejects.toBe(done)
}

function targetOf(schema: string) {
  return { schema, library, tables: [] }
}
