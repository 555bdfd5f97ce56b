/** Operations on consumers while events are appended and applied. */
import { expect, test } from 'vitest'
import { waitUntil } from '../../support/wait.ts'
import { long, show } from '../chaos.ts'
import { seeded } from '../seeded-random.ts'
import { resetProblems } from './check-effects.ts'
import { deadlineMs, holding, limitMs, openScenario, type Scenario } from './scenario.ts'

test(
  'consumers paused, resumed and reset under load stop, continue, and repeat only events after a reset',
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 32)
    const random = seeded(seed)
    await using scenario = await openScenario({ consumers: 3 })
    const workers = [scenario.start({ name: 'a' }), scenario.start({ name: 'b' })]
    await holding(workers, [1, 2])
    const resets = new Map<string, number[]>(scenario.names.map(name => [name, []]))

    for (let round = 0; round < (long ? 200 : 4); round++) {
      const consumer = scenario.names[round % 3]!
      const operator = workers[Math.floor(random() * 2)]!
      await scenario.progress(3)
      if (round % 2 === 0) {
        const back = Number(Math.floor(random() * 30))
        const at = await checkpoint(scenario, consumer)
        const position = at > back ? at - back : 0
        resets.get(consumer)!.push(position)
        await operator.ask({ kind: 'reset', consumer, position: position.toString() })
        continue
      }
      await operator.ask({ kind: 'pause', consumer })
      await waitUntil(() => isGivenBack(scenario, consumer), {
        deadlineMs,
        what: 'the lease of the paused one given back',
      })
      const [applied, other] = [await scenario.effects({ consumer }), scenario.names[(round + 1) % 3]!]
      const before = await checkpoint(scenario, other)
      await waitUntil(async () => (await checkpoint(scenario, other)) > before + 5, {
        deadlineMs,
        what: 'others go on',
      })
      expect(await scenario.effects({ consumer })).toBe(applied)
      await operator.ask({ kind: 'resume', consumer })
    }
    const { log, effects } = await scenario.drain()

    for (const name of scenario.names) {
      const own = resets.get(name)!
      show({ name, events: log.length, resets: own.length })
      expect(resetProblems({ name, resets: own }, log, effects), `seed ${seed}, resets to ${own}`).toEqual([])
    }
  },
  limitMs,
)

async function checkpoint(scenario: Scenario, consumer: string): Promise<number> {
  const rows = await scenario.query<{ checkpoint: string }>('select checkpoint::text from ~consumers where name = $1', [
    consumer,
  ])
  return Number(rows[0]!.checkpoint)
}

async function isGivenBack(scenario: Scenario, consumer: string): Promise<boolean> {
  return (await scenario.query('select from ~consumers where name = $1 and owner is null', [consumer])).length === 1
}
