import { expect, test } from 'vitest'
import type { Runners } from '../../src/consumers/runners/runners.ts'
import { type ConsumerParts, makeEffects, openConsumerParts, recorder } from '../support/consumer-parts.ts'
import { openShop } from '../support/shop.ts'
import { waitUntil } from '../support/wait.ts'

async function openCluster(count: number): Promise<{ processes: ConsumerParts[]; runners: Runners }> {
  const shop = await openShop()
  await makeEffects(shop)
  const processes = Array.from({ length: count }, () => openConsumerParts(shop))
  for (const process of processes) for (const name of ['a', 'b']) process.register(recorder(shop, name))
  return { processes, runners: processes[0]!.runners }
}

test('a standby takes nothing while the active runner lives, and everything when that stops', async () => {
  const { processes, runners } = await openCluster(2)
  const active = await processes[0]!.start({ name: 'amsterdam' })
  const waiting = await processes[1]!.start({ name: 'berlin', standby: true })

  expect(active.holds().sort()).toEqual(['a', 'b'])
  expect(waiting.holds()).toEqual([])
  expect((await runners.list()).items).toMatchObject([
    { name: 'amsterdam', role: 'active', isAlive: true, holds: ['a', 'b'] },
    { name: 'berlin', role: 'standby', isAlive: true, holds: [] },
  ])
  await active.stop()
  await waitUntil(() => waiting.holds().length === 2)
  expect(waiting.role).toBe('active')
})

test('promoting a runner makes it active and the other one a standby; demoting it reverses that', async () => {
  const { processes, runners } = await openCluster(2)
  const amsterdam = await processes[0]!.start({ name: 'amsterdam' })
  const berlin = await processes[1]!.start({ name: 'berlin', standby: true })

  await runners.promote('berlin')
  await waitUntil(() => berlin.holds().length === 2 && amsterdam.holds().length === 0)
  expect([amsterdam.role, berlin.role]).toEqual(['standby', 'active'])
  await runners.demote('berlin')
  await waitUntil(() => amsterdam.holds().length === 2 && berlin.holds().length === 0)

  expect([amsterdam.role, berlin.role]).toEqual(['active', 'standby'])
})

test('RB-78: a second start under one name takes over, and the first runner stops', async () => {
  const { processes, runners } = await openCluster(2)
  const first = await processes[0]!.start({ name: 'amsterdam' })
  const second = await processes[1]!.start({ name: 'amsterdam', standby: true })

  await waitUntil(() => !first.isRunning && second.holds().length === 2)

  expect((await runners.list()).items).toMatchObject([{ name: 'amsterdam', role: 'active', holds: ['a', 'b'] }])
})

test('RB-79: an active runner that was away while another took over returns as a standby', async () => {
  const shop = await openShop()
  await makeEffects(shop)
  const processes = [openConsumerParts(shop), openConsumerParts(shop)]
  for (const process of processes) process.register(recorder(shop, 'a'))
  const amsterdam = await processes[0]!.start({ name: 'amsterdam' })
  const berlin = await processes[1]!.start({ name: 'berlin', standby: true })

  // As if it had been stopped longer than its lease; a running renewal may undo that once.
  await waitUntil(async () => {
    if (amsterdam.role === 'standby') return true
    await shop.query(`
      with freed as (update ~consumers set lease_until = now() - interval '1 s')
      update ~runners
      set role = 'active',
        heartbeat_at = case when name = 'berlin' then now() else now() - interval '31 s' end`)
    processes[0]!.wake.changed()
    await waitUntil(() => amsterdam.role === 'standby', { deadlineMs: 1_000 }).catch(() => {})
    return false
  })
  await waitUntil(() => berlin.role === 'active' && berlin.holds().length === 1)

  expect(amsterdam.holds()).toEqual([])
})

test('a runner that does not exist cannot be promoted', async () => {
  const { processes, runners } = await openCluster(1)
  await processes[0]!.start({ name: 'amsterdam' })

  await expect(runners.promote('amsterdan')).rejects.toMatchObject({ code: 'runner_not_found', nearest: 'amsterdam' })
})
