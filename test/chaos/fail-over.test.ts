/**
 * An asynchronous standby behind a floating address. It is cut off from its primary while the store works on, promoted, and
 * gets the address: it has the events, and neither the last checkpoints nor the read models that were stored with them. It
 * lacks the last events, too, one of which is just being delivered.
 *
 *     store ──► address ──► primary ──► link ──╳──► standby
 *                   └────────────────────────────────► promoted
 */
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { deferred } from '../../src/core/abort.ts'
import { defineProjection } from '../../src/projections/projection.ts'
import { openStore } from '../../src/store.ts'
import { defineSubscription } from '../../src/subscriptions/subscription.ts'
import { deliveryProblems } from '../../src/verify/check-appends.ts'
import { readLog } from '../../src/verify/record-appends.ts'
import { freshSchema } from '../support/engines.ts'
import { giveTo, serverAccount } from '../support/postgres-binaries.ts'
import { startServer } from '../support/postgres-server.ts'
import { paid, placed, shipped, shopEvents } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'
import { connect, connections, major } from './chaos.ts'
import { startProxy } from './tcp-proxy.ts'

test('after a fail-over that lost the last writes no projection and no subscription misses an event', async () => {
  await using primary = await startServer({ major })
  await using link = await startProxy(primary.url)
  await using address = await startProxy(primary.url)
  const schema = freshSchema()
  const made = await connect(primary.url)
  await openStore({ url: primary.url, schema, migrate: true, logger: false }).then(store => store.close())
  await made.query(`create table "${schema}".applied (position bigint not null)`)
  await made.end()
  await using standby = await startStandby(primary, link.url)
  await using admins = connections(standby.url)

  const [gate, labelled] = [deferred<void>(), deferred<void>()]
  const delivered: number[] = []
  const parcels: string[] = []
  const insert = `insert into "${schema}".applied (position) values ($1)`
  const sales = defineProjection('sales', {
    events: shopEvents,
    timeoutMs: 120_000,
    on: {
      async OrderPlaced({ position }, { tx }) {
        if (position > 1) await gate.promise
        await tx.query(insert, [position])
      },
    },
  })
  const mailer = defineSubscription('mailer', {
    events: shopEvents,
    types: ['OrderPlaced'],
    async run({ position }) {
      if (position > 1) await gate.promise
      delivered.push(position)
    },
  })
  const labels = defineSubscription('labels', {
    events: shopEvents,
    types: ['OrderShipped'],
    async run({ data }) {
      parcels.push(data.parcel)
      if (data.parcel === 'lost') await labelled.promise
    },
  })
  await using store = await openStore({ url: address.url, schema, events: shopEvents, pollMs: 50, logger: false })
  await store.register(sales, mailer, labels)
  await store.start()
  await store.events.append('order-1', placed())
  await store.consumers.waitFor(sales, 1)
  await store.consumers.waitFor(mailer, 1)

  // The standby has these events, and is cut off before what is made of them is stored.
  await store.events.append('order-1', [placed(), placed()])
  const admin = await admins.open()
  const count = `select count(*)::int as n from "${schema}".events`
  await waitUntil(async () => (await admin.query(count)).rows[0].n === 3, { what: 'the events on the standby' })
  const place = `select checkpoint::int as n from "${schema}".consumers where name = 'labels/default'`
  await waitUntil(async () => (await admin.query(place)).rows[0].n === 3, { what: 'a checkpoint on the standby' })
  link.accepting = false
  for (const each of link.cutClients()) each.drop()
  await admin.query('select pg_promote()')
  // It is delivered before the fail-over, and acknowledged after it, where another event has its position.
  await store.events.append('order-1', shipped('lost'))
  await waitUntil(() => parcels.includes('lost'))
  gate.resolve()
  await store.consumers.waitFor(sales, 3)
  await store.consumers.waitFor(mailer, 3)
  // Neither wants this one: it moves the cursors in memory, and is lost, too.
  await store.events.append('order-1', paid)
  address.switchTo(standby.url)
  labelled.resolve()
  let last = 0
  await waitUntil(async () => {
    const events = [shipped('kept'), placed()]
    const { position } = await store.events.append('order-2', events, { idempotencyKey: 'order-2' })
    last = position
    return true
  })
  await store.consumers.waitFor(labels, last)
  await store.consumers.waitFor(sales, last)
  await store.consumers.waitFor(mailer, last)

  const applied = await admin.query(`select position::int from "${schema}".applied order by position`)
  const log = await readLog(store)
  const expected = { from: 0, cursor: last, types: ['OrderPlaced'] }
  const given = { sales: applied.rows.map(row => row.position), mailer: [...new Set(delivered)] }
  expect(log.map(({ position }) => position)).toEqual(expect.arrayContaining([1, 2, 3, last]))
  for (const [name, positions] of Object.entries(given))
    expect(deliveryProblems({ name, positions, ...expected }, log)).toEqual([])
  expect([...new Set(parcels)]).toEqual(['lost', 'kept'])
}, 180_000)

/** The data of the primary, copied while it is down; from then on it follows through the link. */
async function startStandby(
  primary: Awaited<ReturnType<typeof startServer>>,
  link: string,
): Promise<Awaited<ReturnType<typeof startServer>>> {
  const folder = await mkdtemp(join(tmpdir(), 'rf-standby-'))
  const dataDir = join(folder, 'data')
  await primary.stop()
  await cp(primary.dataDir, dataDir, { recursive: true })
  await primary.restart()
  await writeFile(join(dataDir, 'standby.signal'), '')
  await rm(join(dataDir, 'postmaster.pid'), { force: true })
  giveTo(serverAccount(), folder)
  const { hostname, port, username, password } = new URL(link)
  const settings = {
    primary_conninfo: `host=${hostname} port=${port} user=${username} password=${password}`,
    hot_standby: 'on',
  }
  const server = await startServer({ major, dataDir, settings })
  return Object.assign(server, {
    [Symbol.asyncDispose]: (dispose => async () => {
      await dispose()
      await rm(folder, { recursive: true, force: true })
    })(server[Symbol.asyncDispose].bind(server)),
  })
}
