import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.ts'
import { sql } from '../../../src/database/sql.ts'
import { freshSchema } from '../../support/engines.ts'
import { waitUntil } from '../../support/wait.ts'
import { useShop } from './shop.ts'

export function exerciseListening(open: () => Promise<Database>): void {
  const shop = useShop(open)
  const notify = (channel: string, payload: string) => sql`select pg_notify(${channel}::text, ${payload}::text)`

  async function listen(channel: string) {
    const received: string[] = []
    // An empty payload only says that listening began: earlier notifications may have been missed.
    const listener = shop().database.listen(channel, payload => void (payload && received.push(payload)))
    await listener.ready
    return { received, listener }
  }

  test('a notification is received with its payload', async () => {
    const channel = freshSchema()
    const { received, listener } = await listen(channel)

    await shop().database.run(notify(channel, 'order-42 🫖'))

    await waitUntil(() => received.length > 0)
    expect(received).toEqual(['order-42 🫖'])
    await listener.close()
  })

  test('a notification of a transaction is received after its commit, and never after a rollback', async () => {
    const { database } = shop()
    const channel = freshSchema()
    const { received, listener } = await listen(channel)

    const failing = database.transaction(async tx => {
      await tx.run(notify(channel, 'undone'))
      throw new Error('out of tea')
    })
    await expect(failing).rejects.toThrow()
    await database.transaction(tx => tx.run(notify(channel, 'done')))

    await waitUntil(() => received.length > 0)
    expect(received).toEqual(['done'])
    await listener.close()
  })

  test('a channel may have any name, and each listener receives only its own', async () => {
    const { database } = shop()
    const channel = `Orders "${freshSchema()}" é`
    const [one, other] = [await listen(channel), await listen(freshSchema())]

    await database.run(notify(channel, 'order-42'))

    await waitUntil(() => one.received.length > 0)
    expect(one.received).toEqual(['order-42'])
    expect(other.received).toEqual([])
    await Promise.all([one.listener.close(), other.listener.close()])
  })

  test('all listeners of a channel receive notifications until they are closed', async () => {
    const { database } = shop()
    const channel = freshSchema()
    const [one, other] = [await listen(channel), await listen(channel)]

    await one.listener.close()
    await one.listener.close()
    await database.run(notify(channel, 'order-42'))

    await waitUntil(() => other.received.length > 0)
    expect(one.received).toEqual([])
    await other.listener.close()
  })

  test('a listener runs outside of any transaction', async () => {
    const { database } = shop()
    const channel = freshSchema()
    let answer: unknown
    const listener = database.listen(channel, payload => {
      if (payload === '') return
      database.run(sql`select 'served' as answer`).then(
        rows => {
          answer = rows
        },
        error => {
          answer = error
        },
      )
    })
    await listener.ready

    await database.transaction(tx => tx.run(notify(channel, 'order-42')))

    await waitUntil(() => answer !== undefined)
    expect(answer).toEqual([{ answer: 'served' }])
    await listener.close()
  })
}
