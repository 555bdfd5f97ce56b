/** A holder whose read never ends: it must not keep other runners out. */
import { expect, onTestFinished, test } from 'vitest'
import type { Database } from '../../src/database/database.ts'
import type { Statement } from '../../src/database/sql.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { openDatabase } from '../support/engines.ts'
import { onServer, openShop, placed, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

/** A database on which the reads of pages never end. */
async function openStuck() {
  const database = await openDatabase()
  const reads = { stuck: 0 }
  const isPage = ({ label }: Statement): boolean => label === 'events.read_log'
  const never = (): Promise<never> => new Promise(() => void reads.stuck++)
  const stuckDatabase: Database = {
    ...database,
    run: statement => (isPage(statement) ? never() : database.run(statement)),
    runArrays: statement => (isPage(statement) ? never() : database.runArrays(statement)),
  }
  return { database, stuckDatabase, reads }
}

test('a holder of partitions that makes no progress loses them, and another runner delivers their events', async () => {
  const delivered: number[] = []
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    from: 'start',
    leaseMs: 500,
    partitions: 2,
    run: event => void delivered.push(event.position),
  })
  const { database, stuckDatabase, reads } = await openStuck()
  const { store, sibling } = await openShop({ database: stuckDatabase, subscriptions: [mailer] })
  const other = await sibling({ subscriptions: [mailer], ...(onServer ? {} : { database }) })
  const first = await store.start({ only: ['subscriptions'] })
  onTestFinished(() => first.stop({ timeoutMs: 0 }))
  const leases = async (): Promise<unknown[]> => first.holds() as unknown[]
  await waitUntil(async () => (await leases()).length === 2, { what: 'the leases' })

  for (let n = 0; n < 4; n++) await other.events.append(`order-${n}`, placed())
  await waitUntil(() => reads.stuck > 0, { what: 'the read that never ends' })
  await using _second = await other.start({ only: ['subscriptions'] })
  await waitUntil(() => delivered.length >= 4, { what: 'the deliveries', deadlineMs: 60_000 })

  expect([...new Set(delivered)].sort()).toEqual([1, 2, 3, 4])
})

test('a holder that makes no progress does not renew its lease, and another runner continues', async () => {
  const applied: number[] = []
  const counted = defineProjection('counted', {
    events: shopEvents,
    leaseMs: 500,
    on: { OrderPlaced: event => void applied.push(event.position) },
  })
  const { database, stuckDatabase, reads } = await openStuck()
  const { store, sibling } = await openShop({ database: stuckDatabase, projections: [counted] })
  const other = await sibling({ projections: [counted], ...(onServer ? {} : { database }) })
  const first = await store.start({ only: ['projections'] })
  onTestFinished(() => first.stop({ timeoutMs: 0 }))
  await waitUntil(async () => (await store.consumers.status(counted)).lease !== undefined, { what: 'the lease' })

  const { position } = await other.events.append('order-1', [placed(), placed()])
  await waitUntil(() => reads.stuck > 0, { what: 'the read that never ends' })
  await using _second = await other.start({ only: ['projections'] })
  await other.consumers.waitFor(counted, position, { timeoutMs: 60_000 })

  expect(applied).toEqual([1, 2])
})
