import { expect, test } from 'vitest'
import { ensureConsumer } from '../../src/consumers/consumer.ts'
import { type Lease, newOwner, release as releaseLeases, save, take as takeLease } from '../../src/consumers/row.ts'
import { runOnce } from '../../src/consumers/run/run.ts'
import { enter, heartbeat, servesNothing } from '../../src/consumers/runners/row.ts'
import { deferred } from '../../src/core/abort.ts'
import { systemClock } from '../../src/core/clock.ts'
import { type ConsumerParts, effectsOf, makeEffects, openConsumerParts, recorder } from '../support/consumer-parts.ts'
import { onServer, openShop, outcome, paid, placed, type Shop } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

const leaseMs = 60_000

async function openLeases(): Promise<{
  shop: Shop
  consumers: ConsumerParts
  take(owner: string): Promise<Lease | string>
}> {
  const shop = await openShop()
  const consumers = openConsumerParts(shop)
  await ensureConsumer(consumers.log, { name: 'totals', kind: 'projection', from: 'start' })
  return { shop, consumers, take: owner => takeLease(consumers.log, 'totals', owner, leaseMs) }
}

const expire = ({ query }: Shop): Promise<unknown> =>
  query(`update ~consumers set lease_until = now() - interval '1 s'`)

test('a held lease is refused, an expired one is taken under a higher fence', async () => {
  const { shop, consumers, take } = await openLeases()
  const [a, b] = [newOwner(consumers.log), newOwner(consumers.log)]

  const first = (await take(a)) as Lease
  expect(await take(b)).toBe('leasedByOther')
  await expire(shop)
  const second = (await take(b)) as Lease

  expect(second.fence).toBeGreaterThan(first.fence)
})

test('RB-09: a holder that lost its lease without noticing can write nothing', async () => {
  const { shop, consumers, take } = await openLeases()
  const stale = (await take(newOwner(consumers.log))) as Lease
  await expire(shop)
  const held = (await take(newOwner(consumers.log))) as Lease
  await save(consumers.log, held, { from: 0, checkpoint: 5 }, consumers.log.database)

  const late = save(consumers.log, stale, { from: 0, checkpoint: 9 }, consumers.log.database)

  await expect(late).rejects.toMatchObject({ code: 'lease_lost', consumer: 'totals' })
  expect(await shop.query('select checkpoint from ~consumers')).toEqual([{ checkpoint: 5 }])
})

test('a checkpoint never goes back', async () => {
  const { consumers, take } = await openLeases()
  const lease = (await take(newOwner(consumers.log))) as Lease
  await save(consumers.log, lease, { from: 0, checkpoint: 5 }, consumers.log.database)

  const back = save(consumers.log, lease, { from: 5, checkpoint: 4 }, consumers.log.database)

  await expect(back).rejects.toMatchObject({ code: 'lease_lost' })
})

test('RB-11: a renewal by a former owner changes nothing', async () => {
  const { shop, consumers, take } = await openLeases()
  const [a, b] = [newOwner(consumers.log), newOwner(consumers.log)]
  const entered = await enter(consumers.log, { id: a, name: undefined, role: 'active', leaseMs, serves: servesNothing })
  await enter(consumers.log, { id: b, name: undefined, role: 'active', leaseMs, serves: servesNothing })
  const stale = (await take(a)) as Lease
  await expire(shop)
  await take(b)
  const [before] = await shop.query('select owner, fence, lease_until from ~consumers')

  await heartbeat(consumers.log, { ...entered, leaseMs }, ['totals'], [{ lease: stale, leaseMs: 600_000 }])

  expect(await shop.query('select owner, fence, lease_until from ~consumers')).toEqual([before])
})

test.each([-10, 10])('RB-12: a process clock that is %i minutes off decides nothing', async minutes => {
  const { shop, consumers } = await openLeases()
  const clock = { ...systemClock, now: () => new Date(Date.now() + minutes * 60_000) }
  const astray = openConsumerParts(shop, { clock })

  const lease = await takeLease(astray.log, 'totals', newOwner(astray.log), leaseMs)

  const [row] = await shop.query<{ left: number }>(
    'select extract(epoch from lease_until - clock_timestamp())::float8 as left from ~consumers',
  )
  expect(lease).toMatchObject({ consumer: 'totals' })
  expect(row!.left).toBeGreaterThan(leaseMs / 1000 - 30)
  expect(row!.left).toBeLessThanOrEqual(leaseMs / 1000)
  expect(await takeLease(consumers.log, 'totals', newOwner(consumers.log), leaseMs)).toBe('leasedByOther')
  await expire(shop)
  expect(await takeLease(astray.log, 'totals', newOwner(astray.log), leaseMs)).toMatchObject({ consumer: 'totals' })
})

test('a release by a former owner does not affect the new one', async () => {
  const { shop, consumers, take } = await openLeases()
  const stale = (await take(newOwner(consumers.log))) as Lease
  await expire(shop)
  const held = (await take(newOwner(consumers.log))) as Lease

  await releaseLeases(consumers.log, [stale])

  expect(await shop.query('select owner from ~consumers')).toEqual([{ owner: held.owner }])
})

test.runIf(onServer)('RB-10: two processes that run at once apply each of 1000 events once', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  for (let n = 0; n < 10; n++)
    await shop.store.events.append(
      `order-${n}`,
      Array.from({ length: 100 }, () => placed()),
    )
  const processes = [openConsumerParts(shop), openConsumerParts(shop)]
  const workers = processes.map(consumers => ({ consumers, consumer: recorder(shop, 'totals', { batchSize: 20 }) }))

  await Promise.all(
    workers.map(({ consumers, consumer }) =>
      waitUntil(async () => (await runOnce(consumers, consumer)).result === 'idle', { deadlineMs: 60_000 }),
    ),
  )

  const positions = (await effectsOf(shop, 'totals')).map(effect => effect.position)
  expect(positions).toEqual(Array.from({ length: 1000 }, (_, n) => Number(n + 1)))
})

test.runIf(onServer)(
  'RB-09: a worker that is frozen in its batch past the lease is refused when it wakes',
  async () => {
    const shop = await openShop()
    await makeEffects(shop)
    await shop.store.events.append('order-1', [placed(), paid])
    const [frozen, other] = [openConsumerParts(shop), openConsumerParts(shop)]
    const [entered, wake] = [deferred<void>(), deferred<void>()]
    const sleeper = recorder(shop, 'totals', {
      before: async () => {
        entered.resolve()
        await wake.promise
      },
    })

    const late = outcome(runOnce(frozen, sleeper))
    await entered.promise
    await expire(shop)
    const tick = await runOnce(other, recorder(shop, 'totals'))
    wake.resolve()

    expect(tick).toEqual({ result: 'processed', count: 2 })
    expect(await late).toMatchObject({ error: { code: 'lease_lost' } })
    expect(await effectsOf(shop, 'totals')).toHaveLength(2)
  },
)

test('embedded, the leases of the previous process are free immediately', async () => {
  const { shop, consumers, take } = await openLeases()
  await take(newOwner(consumers.log))
  const sign = consumers.log.database.soleUser
  await shop.query(`update ~consumers set owner = 'gone/' || owner`)

  const taken = await take(newOwner(consumers.log))

  if (sign === undefined) expect(taken).toBe('leasedByOther')
  else expect(taken).toMatchObject({ consumer: 'totals' })
})
