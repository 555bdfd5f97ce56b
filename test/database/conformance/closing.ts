import { beforeEach, expect, test } from 'vitest'
import { deferred } from '../../../src/core/abort.ts'
import type { Database, Transaction } from '../../../src/database/database.ts'
import { sql } from '../../../src/database/sql.ts'

/** Each test closes the database it is given, and leaves it closed. */
export function exerciseClosing(open: () => Promise<Database>): void {
  let database: Database
  beforeEach(async () => {
    database = await open()
  })

  test('closing waits for running work, once, and refuses new work', async () => {
    const finish = deferred<void>()
    const begun = deferred<void>()
    const running = database.transaction(async tx => {
      await tx.run(sql`select 1`)
      begun.resolve()
      await finish.promise
      return tx.runArrays(sql`select 'finished'`)
    })
    await begun.promise

    const closing = database.close(30_000)
    const calls = [
      database.run(sql`select 1`),
      database.runArrays(sql`select 1`),
      database.copyOut('select 1'),
      database.transaction(async () => 'late'),
    ]
    for (const call of calls) await expect(call).rejects.toMatchObject({ code: 'store_closed' })
    finish.resolve()

    expect(await running).toEqual([['finished']])
    await closing
    await Promise.all([database.close(0), database.close(1_000)])
    await expect(database.run(sql`select 1`)).rejects.toMatchObject({ code: 'store_closed' })
  })

  test('calls made just before closing are answered, also more of them than there are connections', async () => {
    const calls = Array.from({ length: 30 }, (_, n) => database.runArrays(sql`select ${n}::integer`))
    const copied = database.copyOut('select 1')

    await database.close(30_000)

    expect(await Promise.all(calls)).toEqual(calls.map((_, n) => [[n]]))
    expect(String(await copied)).toBe('1\n')
  })

  test('closing cuts off work that does not end in time', async () => {
    const begun = deferred<void>()
    let kept!: Transaction
    const running = database.transaction(async tx => {
      kept = tx
      await tx.run(sql`select 1`)
      begun.resolve()
      await new Promise<never>(() => {})
    })
    running.catch(() => {})
    await begun.promise

    await database.close(50)

    await expect(running).rejects.toMatchObject({ code: 'store_closed' })
    await expect(kept.run(sql`select 1`)).rejects.toMatchObject({ code: 'transaction_closed' })
  })
}
