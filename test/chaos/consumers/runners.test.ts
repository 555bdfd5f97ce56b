/** Named runners, of which one is active and the others are standbys. */
import { expect, test } from 'vitest'
import { waitUntil } from '../../support/wait.ts'
import { deadlineMs, holding, limitMs, openScenario, type Scenario } from './scenario.ts'

test(
  'RB-79: the active runner does all the work; one that lost its leases returns as a standby, and becomes active again',
  async () => {
    await using scenario = await openScenario({ consumers: 3, leaseMs: 5_000 })
    const a = scenario.start({ name: 'a', node: 'a' })
    await a.ready
    const b = scenario.start({ name: 'b', node: 'b', standby: true })
    await b.ready
    await roles(scenario, { a: 'active', b: 'standby' })
    await holding([a, b], [3, 0])

    await scenario.store.runners.promote('b')
    await holding([b], [3])
    await roles(scenario, { a: 'standby', b: 'active' })
    await scenario.store.runners.demote('b')
    await holding([a], [3])
    await roles(scenario, { a: 'active', b: 'standby' })
    a.freeze()
    await holding([b], [3])
    a.thaw()
    await roles(scenario, { a: 'standby', b: 'active' })
    await holding([a, b], [0, 3])
    await scenario.progress(20)
    await b.kill()
    await holding([a], [3])
    await roles(scenario, { a: 'active' })

    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)

test(
  'RB-78: a runner that is started again under its name takes over, whether the previous one has ended or not',
  async () => {
    // The lease is so long that only the name can have passed it on.
    await using scenario = await openScenario({ consumers: 3, leaseMs: 600_000 })
    const first = scenario.start({ name: 'first', node: 'a' })
    await holding([first], [3])
    await scenario.progress(20)
    await first.kill()

    const second = scenario.start({ name: 'second', node: 'a' })
    await holding([second], [3])
    await scenario.progress(20)
    const third = scenario.start({ name: 'third', node: 'a' })
    await holding([third], [3])
    await roles(scenario, { a: 'active' })
    await waitUntil(async () => !(await second.ask({ kind: 'holds' })).isRunning, {
      deadlineMs,
      what: 'the second to stop',
    })

    expect((await second.ask({ kind: 'holds' })).holds).toEqual([])
    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)

/** Resolves when the live runners have these roles. */
async function roles({ store }: Scenario, wanted: Record<string, string>): Promise<void> {
  await waitUntil(
    async () => {
      const alive = (await store.runners.list()).items.filter(each => each.isAlive)
      const seen = Object.fromEntries(alive.map(({ name, role }) => [String(name), String(role)]))
      expect(seen).toEqual(wanted)
      return true
    },
    { deadlineMs, what: `the roles ${JSON.stringify(wanted)}` },
  )
}
