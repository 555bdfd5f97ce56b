/** Many consumers over several processes that come and go. */
import { expect, test } from 'vitest'
import { long } from '../chaos.ts'
import { flawless } from './judge.ts'
import { holding, limitMs, openScene } from './scene.ts'

test(
  'twelve consumers are spread evenly over three processes, whoever leaves or joins',
  async () => {
    await using scene = await openScene({ consumers: 12, maxPauseMs: 100 })
    const workers = ['a', 'b', 'c'].map(name => scene.start({ name }))
    await holding(workers, [4, 4, 4])

    for (let round = 0; round < (long ? 20 : 1); round++) {
      await workers.shift()!.kill()
      await holding(workers, [6, 6])
      workers.push(scene.start({ name: `d-${round}` }))
      await holding(workers, [4, 4, 4])
    }

    expect(await scene.finish()).toEqual(flawless)
  },
  limitMs,
)
