/** A holder whose read never ends: it must not keep other runners out. */
import { expect, onTestFinished, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import type { Statement } from '../../src/database/sql.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { openDatabase } from '../support/engines.ts'
import { onServer, openShop, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

test('a holder that makes no progress does not renew its lease, and another runner continues', async () => {
  const applied: number[] = []
  const counted = defineProjection('counted', {
    events: shopEvents,
    leaseMs: 500,
    on: { OrderPlaced: event => void applied.push(event.position) },
  })
  const database = await openDatabase()
  let stuck = 0
  const isPage = ({ label }: Statement): boolean => label === 'events.read_log'
  const never = (): Promise<never> => new Promise(() => void stuck++)
  const stuckDatabase: Database = {
    ...database,
    run: statement => (isPage(statement) ? never() : database.run(statement)),
    runArrays: statement => (isPage(statement) ? never() : database.runArrays(statement)),
  }
  const { store, sibling } = await openShop({ database: stuckDatabase, projections: [counted] })
  const other = await sibling({ projections: [counted], ...(onServer ? {} : { database }) })
  const first = await store.start({ only: ['projections'] })
  onTestFinished(() => first.stop({ timeoutMs: 0 }))
  await waitUntil(async () => (await store.consumers.status(counted)).lease !== undefined, { what: 'the lease' })

  const { position } = await other.events.append('order-1', [placed(), placed()])
  await waitUntil(() => stuck > 0, { what: 'the read that never ends' })
  await using _second = await other.start({ only: ['projections'] })
  await other.consumers.waitFor(counted, position, { timeoutMs: 60_000 })

  expect(applied).toEqual([1, 2])
})
