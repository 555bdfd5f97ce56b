import { expect, test } from 'vitest'
import { deferred } from '../../../src/core/abort.ts'
import { isRillflowError } from '../../../src/core/errors.ts'
import type { Database, Transaction } from '../../../src/database/database.ts'
import { sql } from '../../../src/database/sql.ts'
import { waitUntil } from '../../support/wait.ts'
import { useShop } from './shop.ts'

const never = new Promise<never>(() => {})

export function exerciseTransactions(open: () => Promise<Database>): void {
  const shop = useShop(open)

  test('a transaction commits its writes and returns the result of its function', async () => {
    const { database, place, placed } = shop()

    const result = await database.transaction(async tx => {
      await place(tx, 1)
      await place(tx, 2)
      return 'both'
    })

    expect(result).toBe('both')
    expect(await placed()).toEqual([1, 2])
  })

  test('a transaction whose function fails is undone and fails with the same error', async () => {
    const { database, place, placed } = shop()
    const error = new Error('out of tea')

    const failing = database.transaction(async tx => {
      await place(tx, 1)
      throw error
    })

    await expect(failing).rejects.toBe(error)
    expect(await placed()).toEqual([])
  })

  test('a function that throws before its first await is undone like any other', async () => {
    const { database, placed } = shop()
    const error = new Error('out of tea')

    const failing = database.transaction(() => {
      throw error
    })

    await expect(failing).rejects.toBe(error)
    expect(await placed()).toEqual([])
  })

  test('a transaction sees its own writes, and others do not before the commit', async () => {
    const { database, orders, place, placed } = shop()

    const seen = await database.transaction(async tx => {
      await place(tx, 1)
      return tx.runArrays(sql`select id from ${orders}`)
    })

    expect(seen).toEqual([[1]])
    expect(await placed()).toEqual([1])
  })

  test('a transaction is read committed unless it asks for more', async () => {
    const level = (isolation?: 'read committed' | 'repeatable read' | 'serializable') =>
      shop().database.transaction(tx => tx.runArrays(sql`select current_setting('transaction_isolation')`), {
        isolation,
      })

    expect(await level()).toEqual([['read committed']])
    expect(await level('repeatable read')).toEqual([['repeatable read']])
    expect(await level('serializable')).toEqual([['serializable']])
  })

  test('each transaction has its own id', async () => {
    const idOf = () => shop().database.transaction(async tx => tx.id)

    expect(await idOf()).not.toBe(await idOf())
  })

  test('a setting made for a transaction ends with it', async () => {
    const { database } = shop()
    const read = sql`select current_setting('rillflow.shop', true) as shop`

    await database.transaction(tx => tx.run(sql`select set_config('rillflow.shop', 'open', true)`))

    for (const rows of await Promise.all([database.run(read), database.run(read)]))
      expect(rows[0]!.shop || null).toBeNull()
  })

  test('a statement that was not awaited is part of the transaction', async () => {
    const { database, place, placed } = shop()

    await database.transaction(async tx => {
      void place(tx, 1)
      void place(tx, 2)
    })

    expect(await placed()).toEqual([1, 2])
  })

  test('statements sent at once run in the order they were sent', async () => {
    const { database, orders, place } = shop()

    const counts = await database.transaction(tx =>
      Promise.all(
        [1, 2, 3].map(async id => {
          void place(tx, id)
          return tx.runArrays(sql`select count(*) from ${orders}`)
        }),
      ),
    )

    expect(counts).toEqual([[[1]], [[2]], [[3]]])
  })

  test('a savepoint that fails is undone, and the transaction continues', async () => {
    const { database, place, placed } = shop()

    await database.transaction(async tx => {
      await place(tx, 1)
      const failing = tx.savepoint(async () => {
        await place(tx, 2)
        await place(tx, 1)
      })
      await expect(failing).rejects.toMatchObject({ sqlState: '23505' })
      await place(tx, 3)
    })

    expect(await placed()).toEqual([1, 3])
  })

  test('a savepoint within a savepoint is undone alone, or with the outer one', async () => {
    const { database, place, placed } = shop()
    const fail = async () => {
      throw new Error('out of tea')
    }

    await database.transaction(async tx => {
      await tx.savepoint(async () => {
        await place(tx, 1)
        await tx.savepoint(() => place(tx, 2).then(fail)).catch(() => {})
        await place(tx, 3)
      })
      const outer = tx.savepoint(async () => {
        await tx.savepoint(() => place(tx, 4))
        await fail()
      })
      await outer.catch(() => {})
      await tx.savepoint(() => place(tx, 5))
    })

    expect(await placed()).toEqual([1, 3, 5])
  })

  test('a savepoint returns the result of its function', async () => {
    const result = await shop().database.transaction(tx => tx.savepoint(async () => 'tea'))

    expect(result).toBe('tea')
  })

  test('a savepoint whose function swallowed a failed statement fails, and the transaction continues', async () => {
    const { database, place, placed } = shop()

    await database.transaction(async tx => {
      await place(tx, 1)
      const swallowed = tx.savepoint(() => place(tx, 1).catch(() => {}))
      await expect(swallowed).rejects.toThrow()
      await place(tx, 2)
    })

    expect(await placed()).toEqual([1, 2])
  })

  test('the commit of a transaction whose failed statement was swallowed rejects', async () => {
    const { database, place, placed } = shop()
    const hooks: string[] = []

    const swallowing = database.transaction(async tx => {
      tx.afterCommit(() => hooks.push('committed'))
      await place(tx, 1)
      await tx.run(sql`/* shop.share */ select 1 / 0`).catch(() => {})
      return 'fine'
    })

    await expect(swallowing).rejects.toMatchObject({ code: 'database_failed', sqlState: '25P02', statement: 'commit' })
    expect(await placed()).toEqual([])
    expect(hooks).toEqual([])
  })

  test('a commit that a deferred constraint refuses rejects', async () => {
    const { database, orders, place, placed } = shop()
    await database.run(sql`alter table ${orders} add constraint one_note unique (note) deferrable initially deferred`)

    const colliding = database.transaction(async tx => {
      await place(tx, 1, 'same')
      await place(tx, 2, 'same')
    })

    await expect(colliding).rejects.toMatchObject({ code: 'database_failed', sqlState: '23505', statement: 'commit' })
    expect(await placed()).toEqual([])
  })

  test('hooks run after the commit, before the caller continues, and never after a rollback', async () => {
    const { database, place } = shop()
    const log: string[] = []

    await database.transaction(async tx => {
      tx.afterCommit(() => log.push('hook'))
      await place(tx, 1)
      log.push('work')
    })
    log.push('caller')
    const failing = database.transaction(async tx => {
      tx.afterCommit(() => log.push('never'))
      throw new Error('out of tea')
    })

    await expect(failing).rejects.toThrow('out of tea')
    expect(log).toEqual(['work', 'hook', 'caller'])
  })

  test("a user's statement takes parameters and returns the same types of values", async () => {
    const rows = await shop().database.transaction(tx =>
      tx.query('select $1::bigint as id, $2::jsonb as data, $3::text[] as tags', [42, { total: 9 }, ['new', 'vip']]),
    )

    expect(rows).toEqual([{ id: 42, data: { total: 9 }, tags: ['new', 'vip'] }])
  })

  test("an error of a user's statement is passed on as the driver made it", async () => {
    const { database, orders } = shop()

    const error = await database
      .transaction(async tx => {
        await tx.query(`insert into ${orders} (id) values ($1)`, [1])
        await tx.query(`insert into ${orders} (id) values ($1)`, [1])
      })
      .catch((raised: unknown) => raised)

    expect(isRillflowError(error)).toBe(false)
    expect(error).toMatchObject({ code: '23505', constraint: 'orders_pkey', table: 'orders' })
  })

  test('the handle of a transaction that has ended is refused', async () => {
    const { database, orders, place, placed } = shop()
    let kept!: Transaction
    await database.transaction(async tx => {
      kept = tx
    })

    const uses = [
      place(kept, 1),
      kept.runArrays(sql`select 1`),
      kept.query('select 1'),
      kept.savepoint(async () => 1),
      kept.copyIn(orders.quoted, ['id'], '1\n'),
    ]

    for (const use of uses) await expect(use).rejects.toMatchObject({ code: 'transaction_closed' })
    expect(await placed()).toEqual([])
  })

  test('the handle of a transaction that failed is refused', async () => {
    const { database, place } = shop()
    let kept!: Transaction
    const failing = database.transaction(async tx => {
      kept = tx
      throw new Error('out of tea')
    })
    await expect(failing).rejects.toThrow('out of tea')

    await expect(place(kept, 1)).rejects.toMatchObject({ code: 'transaction_closed' })
  })

  test('a transaction that takes too long is undone, and its handle revoked', async () => {
    const { database, place, placed } = shop()
    let kept: Transaction | undefined
    const slow = (): Promise<void> =>
      database.transaction(
        async tx => {
          kept = tx
          await place(tx, 1)
          await never
        },
        { timeoutMs: 100 },
      )

    // On a busy machine the time limit may be reached before it has even begun.
    while (kept === undefined)
      await expect(slow()).rejects.toMatchObject({ code: 'transaction_timeout', timeoutMs: 100 })
    await expect(place(kept, 2)).rejects.toMatchObject({ code: 'transaction_closed' })
    expect(await placed()).toEqual([])
  })

  test('code that outlives its timed-out transaction can no longer write', async () => {
    const { database, place, placed } = shop()
    const late = deferred<void>()
    let hasBegun = false
    let outcome: unknown
    const slow = (): Promise<void> =>
      database.transaction(
        async tx => {
          hasBegun = true
          await late.promise
          await place(tx, 1).catch(error => {
            outcome = error
          })
        },
        { timeoutMs: 50 },
      )

    while (!hasBegun) await expect(slow()).rejects.toMatchObject({ code: 'transaction_timeout' })
    late.resolve()

    await waitUntil(() => outcome !== undefined)
    expect(outcome).toMatchObject({ code: 'transaction_closed' })
    expect(await placed()).toEqual([])
  })

  test('an aborted transaction is undone, and reports the reason', async () => {
    const { database, place, placed } = shop()
    const controller = new AbortController()
    let kept!: Transaction

    const aborted = database.transaction(
      async tx => {
        kept = tx
        await place(tx, 1)
        controller.abort('the shop closes')
        await never
      },
      { signal: controller.signal },
    )

    await expect(aborted).rejects.toMatchObject({ code: 'aborted', cause: 'the shop closes' })
    await expect(place(kept, 2)).rejects.toMatchObject({ code: 'transaction_closed' })
    expect(await placed()).toEqual([])
  })

  test('a transaction that waits for a connection can be aborted, and takes none', async () => {
    const { database } = shop()
    const finish = deferred<void>()
    const busy = Array.from({ length: database.maxConnections }, () => database.transaction(() => finish.promise))
    const controller = new AbortController()

    const waiting = database.transaction(async () => 'never', { signal: controller.signal })
    controller.abort('too long')

    await expect(waiting).rejects.toMatchObject({ code: 'aborted', cause: 'too long' })
    finish.resolve()
    await Promise.all(busy)
    const after = Array.from({ length: database.maxConnections + 1 }, () => database.runArrays(sql`select 1`))
    expect(await Promise.all(after)).toHaveLength(database.maxConnections + 1)
  })

  test('a transaction whose signal has already aborted never begins', async () => {
    let hasBegun = false

    const aborted = shop().database.transaction(
      async () => {
        hasBegun = true
      },
      { signal: AbortSignal.abort() },
    )

    await expect(aborted).rejects.toMatchObject({ code: 'aborted' })
    expect(hasBegun).toBe(false)
  })

  test('a signal that aborts after the commit changes nothing', async () => {
    const { database, place, placed } = shop()
    const controller = new AbortController()

    await database.transaction(tx => place(tx, 1), { signal: controller.signal })
    controller.abort()

    expect(await placed()).toEqual([1])
  })

  test('many transactions at once all commit', async () => {
    const { database, place, placed } = shop()
    const ids = Array.from({ length: 50 }, (_, id) => id)

    await Promise.all(ids.map(id => database.transaction(tx => place(tx, id))))

    expect(await placed()).toEqual(ids)
  })
}
