/** Processes that are killed in the middle of their batches. */
import { expect, test } from 'vitest'
import { waitUntil } from '../../support/wait.ts'
import { long } from '../chaos.ts'
import { deadlineMs, holding, limitMs, openScenario } from './scenario.ts'

test(
  'when a process is killed in the middle of a batch, others take over, and each event is applied once, in order',
  async () => {
    await using scenario = await openScenario({ consumers: 4 })
    let [victim, other] = [scenario.start({ name: 'worker-0' }), scenario.start({ name: 'worker-1' })]
    await holding([victim, other], [2, 2])

    for (let round = 0; round < (long ? 30 : 1); round++) {
      await isAtWork(`worker-${round}`)
      await victim.kill()
      const joining = scenario.start({ name: `worker-${round + 2}` })
      await holding([other, joining], [2, 2])
      ;[victim, other] = [other, joining]
    }
    await victim.kill()
    await holding([other], [4])

    expect(await scenario.finish()).toEqual([])

    async function isAtWork(worker: string): Promise<void> {
      const what = 'work to be killed in'
      await waitUntil(async () => (await scenario.effects({ worker })) > 50, { deadlineMs, what })
    }
  },
  limitMs,
)
