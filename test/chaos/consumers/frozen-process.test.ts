/** Processes that are stopped past their lease, and return as if they still held it. */
import { expect, test } from 'vitest'
import { waitUntil } from '../../support/wait.ts'
import { long } from '../chaos.ts'
import { deadlineMs, holding, limitMs, openScenario, type Scenario } from './scenario.ts'
import type { Worker } from './worker-process.ts'

test(
  'a process stopped past its lease does no harm when it continues, and gets its share again',
  async () => {
    await using scenario = await openScenario({ consumers: 4 })
    const workers = [scenario.start({ name: 'a' }), scenario.start({ name: 'b' })]
    await holding(workers, [2, 2])

    for (let round = 0; round < (long ? 30 : 1); round++) {
      const [frozen, other] = [workers[round % 2]!, workers[(round + 1) % 2]!]
      await scenario.progress(20)
      frozen.freeze()
      await holding([other], [4])
      await scenario.progress(20)
      frozen.thaw()
      await holding(workers, [2, 2])
    }

    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)

test(
  'a batch that was read before its process was stopped, and begun after another process took over, is refused',
  async () => {
    await using scenario = await openScenario({ consumers: 1, isBusy: false })

    const ends = await beginLate(scenario, { isUnfenced: false })

    expect(ends).toEqual(['lease_lost'])
    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)

test(
  'the judge detects the harm of such a batch without its fence',
  async () => {
    await using scenario = await openScenario({ consumers: 1, isBusy: false })

    const ends = await beginLate(scenario, { isUnfenced: true })
    const problems = (await scenario.finish()).join('\n')

    expect(ends).toEqual(['committed'])
    expect(problems).toMatch(/^totals-00 got again position \d+/m)
    expect(problems).toMatch(/^totals-00 got out of order position \d+/m)
  },
  limitMs,
)

/**
 * The first worker has read ten events and is stopped before it applies them; the second takes over, and has applied
 * four of them when the first continues. Returns how the first one's batch ended.
 */
async function beginLate(scenario: Scenario, { isUnfenced }: { isUnfenced: boolean }): Promise<readonly string[]> {
  const order = Array.from({ length: 10 }, (_, total) => ({ type: 'OrderPlaced', data: { total } }))
  // Before it starts: a consumer that follows the log during appends may read the first few events alone.
  await scenario.store.events.append('order-1', order)
  const frozen = scenario.start({ name: 'frozen', batchSize: 10, pauseAfterBatches: 0, isUnfenced })
  await hasPausedBatch(frozen)
  frozen.freeze()
  const other = scenario.start({ name: 'other', batchSize: 5, pauseAfterBatches: 1 })
  await hasPausedBatch(other)
  // After a lost lease the first batch is small.
  expect(await scenario.effects({ worker: 'other' })).toBe(4)

  // A message to a stopped process is the first that it receives when it continues.
  const opened = frozen.ask({ kind: 'resume batches' })
  frozen.thaw()
  await opened
  let ends: readonly string[] = []
  await waitUntil(
    async () => {
      ends = (await frozen.ask({ kind: 'holds' })).ends
      return ends.length > 0
    },
    { deadlineMs, what: 'the end of the late batch' },
  )
  await other.ask({ kind: 'resume batches' })
  return ends
}

function hasPausedBatch(worker: Worker): Promise<void> {
  const what = 'a paused batch'
  return waitUntil(async () => (await worker.ask({ kind: 'holds' })).paused === 1, { deadlineMs, what })
}
