/** Processes that are stopped past their lease, and come back in the belief that they hold it still. */
import { expect, test } from 'vitest'
import { waitUntil } from '../../support/wait.ts'
import { long } from '../chaos.ts'
import { flawless } from './check-effects.ts'
import { deadlineMs, holding, limitMs, openScene, type Scene } from './scenario.ts'
import type { Worker } from './worker-process.ts'

test(
  'a process stopped past its lease does no harm when it continues, and gets its share again',
  async () => {
    await using scene = await openScene({ consumers: 4 })
    const workers = [scene.start({ name: 'a' }), scene.start({ name: 'b' })]
    await holding(workers, [2, 2])

    for (let round = 0; round < (long ? 30 : 1); round++) {
      const [zombie, other] = [workers[round % 2]!, workers[(round + 1) % 2]!]
      await scene.progress(20)
      zombie.freeze()
      await holding([other], [4])
      await scene.progress(20)
      zombie.thaw()
      await holding(workers, [2, 2])
    }

    expect(await scene.finish()).toEqual(flawless)
  },
  limitMs,
)

test(
  'a batch that was read before its process was stopped, and begun after another process took over, is refused',
  async () => {
    await using scene = await openScene({ consumers: 1, isBusy: false })

    const ends = await beginLate(scene, { isUnfenced: false })

    expect(ends).toEqual(['lease_lost'])
    expect(await scene.finish()).toEqual(flawless)
  },
  limitMs,
)

test(
  'the checker detects the harm of such a batch without its fence',
  async () => {
    await using scene = await openScene({ consumers: 1, isBusy: false })

    const ends = await beginLate(scene, { isUnfenced: true })
    const verdict = await scene.finish()

    expect(ends).toEqual(['committed'])
    expect(verdict.repeated).toBeGreaterThan(0)
    expect(verdict.outOfOrder).toBeGreaterThan(0)
  },
  limitMs,
)

/**
 * The first worker has read ten events and is stopped before it begins with them; the second takes over, and has applied
 * five of them when the first goes on. Returns how the first one's batch ended.
 */
async function beginLate(scene: Scene, { isUnfenced }: { isUnfenced: boolean }): Promise<readonly string[]> {
  const order = Array.from({ length: 10 }, (_, total) => ({ type: 'OrderPlaced', data: { total } }))
  // Before it starts: who follows the log while it is appended to may see the first few of them alone.
  await scene.store.events.append('order-1', order)
  const zombie = scene.start({ name: 'zombie', batchSize: 10, closeGateAfter: 0, isUnfenced })
  await isAtGate(zombie)
  zombie.freeze()
  const other = scene.start({ name: 'other', batchSize: 5, closeGateAfter: 1 })
  await isAtGate(other)
  expect(await scene.effects({ worker: 'other' })).toBe(5)

  // What it is told while it is stopped, it hears first when it goes on.
  const opened = zombie.ask({ kind: 'open' })
  zombie.thaw()
  await opened
  let ends: readonly string[] = []
  await waitUntil(
    async () => {
      ends = (await zombie.ask({ kind: 'holds' })).ends
      return ends.length > 0
    },
    { deadlineMs, what: 'the end of the late batch' },
  )
  await other.ask({ kind: 'open' })
  return ends
}

function isAtGate(worker: Worker): Promise<void> {
  const what = 'a batch at the gate'
  return waitUntil(async () => (await worker.ask({ kind: 'holds' })).waiting === 1, { deadlineMs, what })
}
