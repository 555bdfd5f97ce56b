/** Statements that are given up end on the server as well. The embedded engine runs on this thread, where nothing can end one. */
import { expect, onTestFinished, test } from 'vitest'
import { openPostgres } from '../../src/database/postgres/postgres.ts'
import { sql } from '../../src/database/sql.ts'
import { postgresUrl } from '../support/engines.ts'
import { connect, onServer } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

if (onServer) {
  /** The number of connections on which a slow statement of this test runs now. */
  const busy = async (mark: string): Promise<number> => {
    const client = await connect()
    const { rows } = await client.query(
      `select count(*)::integer as busy from pg_stat_activity where state = 'active' and query like $1 and pid <> pg_backend_pid()`,
      [`%${mark}%sleep%`],
    )
    return (rows as { busy: number }[])[0]!.busy
  }
  const slow = (mark: string) => ({ label: 'shop.slow', text: `/* ${mark} */ select pg_sleep(60)`, values: [] })
  const open = async (options: object) => {
    const database = await openPostgres({ url: postgresUrl(), maxConnections: 2, ...options })
    onTestFinished(() => database.close(1_000))
    return database
  }

  test('statements that are given up do not run on: a pool of 2 never has more than 2 busy backends', async () => {
    const mark = `slow-${process.pid}-statements`
    const database = await open({ answerTimeoutMs: 300 })

    const calls = Array.from({ length: 8 }, () => database.run(slow(mark)))
    const outcomes = Promise.allSettled(calls)
    let isOver = false
    void outcomes.then(() => {
      isOver = true
    })
    const seen: number[] = []
    while (!isOver) seen.push(await busy(mark))

    expect(Math.max(...seen)).toBeLessThanOrEqual(2)
    for (const call of calls)
      await expect(call).rejects.toMatchObject({ code: 'statement_cancelled', retryable: false })
    expect(await busy(mark)).toBe(0)
    expect(await database.run(sql`/* shop.one */ select 1 as one`)).toEqual([{ one: 1 }])
  })

  test('a transaction that is given up ends its statement on the server', async () => {
    const mark = `slow-${process.pid}-transaction`
    const database = await open({})

    const late = database.transaction(tx => tx.query(slow(mark).text), { timeoutMs: 300 })

    await expect(late).rejects.toMatchObject({ code: 'transaction_timeout' })
    await waitUntil(async () => (await busy(mark)) === 0)
  })

  test('the sessions of the store limit the time of a statement on the server, and notice a client that is gone', async () => {
    const database = await open({ answerTimeoutMs: 5_000 })

    const [settings] = await database.run(sql`/* shop.settings */
      select current_setting('statement_timeout') as limit, current_setting('client_connection_check_interval') as check`)

    expect(settings).toEqual({ limit: '6s', check: '5s' })
  })

  test('a statement with a longer time of its own is not cut off, and the limit holds again after it', async () => {
    const database = await open({ answerTimeoutMs: 200, maxConnections: 1 })

    const text = `select pg_sleep(1.5)`
    await database.run({ label: 'shop.long', text, values: [], unprepared: true, alone: { timeoutMs: 30_000 } })

    const [settings] = await database.run(sql`/* shop.settings */ select current_setting('statement_timeout') as limit`)
    expect(settings).toEqual({ limit: '1200ms' })
  })
}
