/** Many consumers over several processes that come and go. */
import { expect, test } from 'vitest'
import { long } from '../chaos.ts'
import { holding, limitMs, openScenario } from './scenario.ts'

test(
  'twelve consumers are spread evenly over three processes as processes leave and join',
  async () => {
    await using scenario = await openScenario({ consumers: 12, maxPauseMs: 100 })
    const workers = ['a', 'b', 'c'].map(name => scenario.start({ name }))
    await holding(workers, [4, 4, 4])

    for (let round = 0; round < (long ? 20 : 1); round++) {
      await workers.shift()!.kill()
      await holding(workers, [6, 6])
      workers.push(scenario.start({ name: `d-${round}` }))
      await holding(workers, [4, 4, 4])
    }

    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)
