import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { deferred } from '../../../src/core/abort.ts'
import type { Database } from '../../../src/database/database.ts'
import { sql } from '../../../src/database/sql.ts'
import { useShop } from './shop.ts'

export function exerciseRefusals(open: () => Promise<Database>): void {
  const shop = useShop(open)

  test('a call on the database from inside its transaction fails at once, and the transaction continues', async () => {
    const { database, place, placed } = shop()

    await database.transaction(async tx => {
      const calls = [
        database.run(sql`/* shop.look */ select 1`),
        database.runArrays(sql`/* shop.look */ select 1`),
        database.copyOut('select 1'),
        database.transaction(async () => 'inner'),
      ]
      for (const call of calls) await expect(call).rejects.toMatchObject({ code: 'inside_transaction' })
      expect(() => database.refuseInsideTransaction('append')).toThrow('append was called inside')
      await place(tx, 1)
    })

    expect(await placed()).toEqual([1])
  })

  test('the refusal names the call', async () => {
    const refused = shop().database.transaction(() => shop().database.run(sql`/* shop.look */ select 1`))

    await expect(refused).rejects.toMatchObject({ call: 'shop.look' })
  })

  test('the check holds across timers, promises, and savepoints', async () => {
    const { database } = shop()
    const refused = () => expect(database.run(sql`select 1`)).rejects.toMatchObject({ code: 'inside_transaction' })

    await database.transaction(async tx => {
      await sleep(1)
      await refused()
      await new Promise(setImmediate)
      await refused()
      await new Promise(resolve => setTimeout(resolve, 1)).then(refused)
      await tx.savepoint(refused)
      await tx.run(sql`select 1`)
      await refused()
    })
  })

  test('code outside is not refused while another transaction is open', async () => {
    const { database, place, placed } = shop()
    const finish = deferred<void>()

    const open = database.transaction(async tx => {
      await place(tx, 1)
      await finish.promise
    })
    const outside = database.run(sql`select 'served' as answer`)
    finish.resolve()

    await open
    expect(await outside).toEqual([{ answer: 'served' }])
    expect(await placed()).toEqual([1])
  })

  test('work begun inside that outlives the transaction may call the database', async () => {
    const { database } = shop()
    const ended = deferred<void>()
    let later!: Promise<unknown>

    await database.transaction(async () => {
      later = ended.promise.then(() => database.run(sql`select 'served' as answer`))
    })
    ended.resolve()

    expect(await later).toEqual([{ answer: 'served' }])
  })

  test('after a transaction, committed or not, its caller may call the database', async () => {
    const { database } = shop()

    await database.transaction(async () => {})
    await database.transaction(() => Promise.reject(new Error('out of tea'))).catch(() => {})

    expect(() => database.refuseInsideTransaction('append')).not.toThrow()
    expect(await database.run(sql`select 1 as one`)).toEqual([{ one: 1 }])
  })
}
