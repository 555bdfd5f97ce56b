/** Statements on connections of our own: their values, their time limits, and the connections they leave at hand. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { keepConnections } from '../../src/database/postgres/kept.ts'
import { openPostgres, type PostgresOptions } from '../../src/database/postgres/postgres.ts'
import { identifier, sql } from '../../src/database/sql.ts'
import { freshSchema, postgresUrl } from '../support/engines.ts'
import { onServer } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function openDatabase(options: PostgresOptions = {}) {
  const database = await openPostgres({ url: postgresUrl(), ...options })
  onTestFinished(() => database.close(1_000))
  const pid = async (): Promise<number> => {
    const [row] = await database.runArrays(sql`/* test.pid */ select pg_backend_pid()`)
    return row![0] as number
  }
  return { database, pid }
}

test('a text is written again for other names, and for values in other places', () => {
  const write = (one: unknown, two: unknown) => sql`select ${one}, ${two}`.text
  const [orders, customers] = [identifier('orders'), identifier('customers')]

  const texts = [write(1, orders), write(orders, 1), write(2, orders), write(2, customers), write(1, 2)]

  expect(texts).toEqual([
    ...['select $1, "orders"', 'select "orders", $1', 'select $1, "orders"'],
    ...['select $1, "customers"', 'select $1, $2'],
  ])
})

if (onServer) {
  test('every kind of value comes back as it was sent, prepared and repeated or not', async () => {
    const { database } = await openDatabase({ maxConnections: 1 })
    const texts = ['plain', '', 'NULL', 'a "quoted" \\ one', '{braces},', "it's\na line\t", 'größe 🛒', null]
    const shipped = new Date('2026-11-15T21:01:53.123Z')
    const bytes = Buffer.from([0, 255, 92])
    const read = (unprepared: boolean) =>
      database.run({
        ...sql`/* test.values */
          select ${texts}::text[] as texts, ${[1, -2, null]}::integer[] as numbers, ${[true, false]}::boolean[] as flags,
            ${'o\\"1'}::text as id, ${12.5}::float8 as total, ${null}::text as note, ${true}::boolean as paid,
            ${9007199254740991}::bigint as position, ${'{"cents":1}'}::jsonb as data`,
        unprepared,
      })
    const readOthers = () =>
      database.runArrays(sql`/* test.other_values */
        select ${shipped}::timestamptz, ${bytes}::bytea, ${{ cents: 1 }}::jsonb, ${[[1, 2]]}::integer[]::text`)

    const expected = {
      ...{ texts, numbers: [1, -2, null], flags: [true, false], id: 'o\\"1', total: 12.5, note: null, paid: true },
      ...{ position: 9007199254740991, data: { cents: 1 } },
    }
    for (const unprepared of [false, false, true]) expect(await read(unprepared)).toEqual([expected])
    for (let time = 0; time < 2; time++) expect(await readOthers()).toEqual([[shipped, bytes, { cents: 1 }, '{{1,2}}']])
  })

  test('each statement has its own limit, and the others go on', async () => {
    const { database } = await openDatabase({ answerTimeoutMs: 20_000 })
    const sleeping = (seconds: number, budgetMs?: number) =>
      database.run<{ slept: number }>({
        ...sql`/* test.sleep */ select ${seconds}::float8 as slept from pg_sleep(${seconds}::float8)`,
        budgetMs,
      })

    const ends = await Promise.allSettled([sleeping(60, 400), sleeping(1.2), sleeping(60, 200), sleeping(0.6, 10_000)])

    const reasons = ends.map(end => (end.status === 'rejected' ? end.reason.code : end.value[0]!.slept))
    expect(reasons).toEqual(['statement_cancelled', 1.2, 'statement_cancelled', 0.6])
  })

  test('a statement that fails leaves no trace in the next one', async () => {
    const { database } = await openDatabase({ maxConnections: 1 })
    const divide = (by: number) => database.runArrays(sql`/* test.divide */ select 12 / ${by}::integer`)

    expect(await divide(4)).toEqual([[3]])
    await expect(divide(0)).rejects.toMatchObject({ code: 'database_failed', sqlState: '22012' })
    expect(await divide(3)).toEqual([[4]])
  })

  test('a statement whose columns have changed is refused by the server once, and then reads the new ones', async () => {
    const { database } = await openDatabase({ maxConnections: 1 })
    const table = identifier(freshSchema())
    await database.run(sql`create table ${table} as select 1 as cents`)
    onTestFinished(() => database.run(sql`drop table ${table}`).then(() => {}))
    const read = () => database.run(sql`/* test.columns */ select * from ${table}`)

    expect(await read()).toEqual([{ cents: 1 }])
    await database.run(sql`alter table ${table} add column currency text default 'EUR'`)
    await read().catch(() => {})

    expect(await read()).toEqual([{ cents: 1, currency: 'EUR' }])
  })

  test('a connection that is lost while it is at hand is not used again', async () => {
    const { database, pid } = await openDatabase({ maxConnections: 2 })
    const other = await openDatabase()
    const before = await pid()
    expect(database.connections()).toMatchObject({ busy: 0 })

    await other.database.run(sql`select pg_terminate_backend(${before}::integer)`)
    await waitUntil(() => database.connections().idle === 0, { what: 'the end of the connection' })

    expect(await pid()).not.toBe(before)
  })

  test('a connection that is not used for a while goes back to the pool', async () => {
    const pool = new pg.Pool({ connectionString: postgresUrl(), max: 2 })
    onTestFinished(() => pool.end())
    const kept = keepConnections({ waiting: () => pool.waitingCount, maxUses: undefined, unusedMs: 100 })
    const [one, other] = [await pool.connect(), await pool.connect()]
    kept.keep(one)
    kept.keep(other)
    expect([kept.size, pool.idleCount]).toEqual([2, 0])

    // The one that is used stays.
    await waitUntil(() => {
      kept.keep(kept.take()!)
      return pool.idleCount === 1
    })
    expect(kept.take()).toBe(other)
    other.release()
    kept.close()

    expect([kept.size, pool.idleCount]).toEqual([0, 2])
  })

  test('while others wait for a connection, none is kept', async () => {
    const pool = new pg.Pool({ connectionString: postgresUrl(), max: 1 })
    onTestFinished(() => pool.end())
    const kept = keepConnections({ waiting: () => pool.waitingCount, maxUses: undefined })
    const first = await pool.connect()
    const waiting = pool.connect()

    kept.keep(first)
    const second = await waiting

    expect([second === first, kept.size]).toEqual([true, 0])
    second.release()
  })

  test('statements leave connections to transactions, and transactions to statements', async () => {
    const { database, pid } = await openDatabase({ maxConnections: 2 })

    const work = Array.from({ length: 30 }, (_, n) =>
      n % 3 === 0 ? database.transaction(tx => tx.runArrays(sql`/* test.one */ select 1`)) : pid(),
    )
    await Promise.all(work)

    expect(database.connections()).toEqual({ busy: 0, idle: 2, waiting: 0 })
  })

  test('a connection is replaced after its last use', async () => {
    const { pid } = await openDatabase({ maxConnections: 1, maxUses: 5 })

    const pids: number[] = []
    for (let n = 0; n < 20; n++) pids.push(await pid())

    expect(new Set(pids).size).toBeGreaterThanOrEqual(4)
  })

  test('a database that closes waits for the statements on its way, and leaves no connection behind', async () => {
    const { database } = await openDatabase()
    const slow = database.runArrays(sql`/* test.slow */ select 1 from pg_sleep(0.4)`)
    await database.runArrays(sql`/* test.quick */ select 1`)

    await database.close(10_000)

    expect(await slow).toEqual([[1]])
    expect(database.connections()).toEqual({ busy: 0, idle: 0, waiting: 0 })
    await expect(database.run(sql`select 1`)).rejects.toMatchObject({ code: 'store_closed' })
  })
}
