import { expect, test } from 'vitest'
import { administerDaemons } from '../../src/consumers/runners/runners.ts'
import { type ConsumerParts, makeEffects, openConsumerParts, recorder } from '../support/consumer-parts.ts'
import { openShop } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function openCluster(
  count: number,
): Promise<{ hosts: ConsumerParts[]; daemons: ReturnType<typeof administerDaemons> }> {
  const shop = await openShop()
  await makeEffects(shop)
  const hosts = Array.from({ length: count }, () => openConsumerParts(shop))
  for (const host of hosts) for (const name of ['a', 'b']) host.register(recorder(shop, name))
  return { hosts, daemons: administerDaemons(hosts[0]!) }
}

test('a standby takes nothing while the active runner lives, and everything when that stops', async () => {
  const { hosts, daemons } = await openCluster(2)
  const hot = hosts[0]!.daemon({ node: 'amsterdam' })
  const cold = hosts[1]!.daemon({ node: 'berlin', standby: true })
  await hot.start()
  await cold.start()

  expect(hot.holds().sort()).toEqual(['a', 'b'])
  expect(cold.holds()).toEqual([])
  expect(await daemons.list()).toMatchObject([
    { node: 'amsterdam', role: 'hot', isAlive: true, leases: ['a', 'b'] },
    { node: 'berlin', role: 'standby', isAlive: true, leases: [] },
  ])
  await hot.stop()
  await waitUntil(() => cold.holds().length === 2)
  expect(cold.role).toBe('hot')
})

test('promoting a runner makes it active and the other one a standby; demoting it reverses that', async () => {
  const { hosts, daemons } = await openCluster(2)
  const [amsterdam, berlin] = [
    hosts[0]!.daemon({ node: 'amsterdam' }),
    hosts[1]!.daemon({ node: 'berlin', standby: true }),
  ]
  await amsterdam.start()
  await berlin.start()

  await daemons.promote('berlin')
  await waitUntil(() => berlin.holds().length === 2 && amsterdam.holds().length === 0)
  expect([amsterdam.role, berlin.role]).toEqual(['standby', 'hot'])
  await daemons.demote('berlin')
  await waitUntil(() => amsterdam.holds().length === 2 && berlin.holds().length === 0)

  expect([amsterdam.role, berlin.role]).toEqual(['hot', 'standby'])
})

test('RB-78: a second start under one name takes over, and the first runner stops', async () => {
  const { hosts, daemons } = await openCluster(2)
  const first = hosts[0]!.daemon({ node: 'amsterdam' })
  const second = hosts[1]!.daemon({ node: 'amsterdam', standby: true })
  await first.start()

  await second.start()
  await waitUntil(() => !first.isRunning && second.holds().length === 2)

  expect(await daemons.list()).toMatchObject([{ node: 'amsterdam', role: 'hot', leases: ['a', 'b'] }])
})

test('RB-79: an active runner that was away while another took over returns as a standby', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  const hosts = [openConsumerParts(shop), openConsumerParts(shop)]
  for (const host of hosts) host.register(recorder(shop, 'a'))
  const [amsterdam, berlin] = [
    hosts[0]!.daemon({ node: 'amsterdam' }),
    hosts[1]!.daemon({ node: 'berlin', standby: true }),
  ]
  await amsterdam.start()
  await berlin.start()

  // As if it had been stopped longer than its lease; a running renewal may undo that once.
  await waitUntil(async () => {
    if (amsterdam.role === 'standby') return true
    await shop.query(`
      with freed as (update ~consumers set lease_until = now() - interval '1 s')
      update ~daemons
      set role = 'hot',
        heartbeat_at = case when node = 'berlin' then now() else now() - interval '31 s' end`)
    hosts[0]!.wake.changed()
    await waitUntil(() => amsterdam.role === 'standby', { deadlineMs: 1_000 }).catch(() => {})
    return false
  })
  await waitUntil(() => berlin.role === 'hot' && berlin.holds().length === 1)

  expect(amsterdam.holds()).toEqual([])
})

test('a runner that does not exist cannot be promoted', async () => {
  const { hosts, daemons } = await openCluster(1)
  await hosts[0]!.daemon({ node: 'amsterdam' }).start()

  await expect(daemons.promote('amsterdan')).rejects.toMatchObject({ code: 'node_not_found', nearest: 'amsterdam' })
})
