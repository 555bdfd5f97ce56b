/** Processes that get a tenth of the CPU: each runs for a moment, and is stopped for nine times as long. */
import { expect, test } from 'vitest'
import { waitUntil } from '../../support/wait.ts'
import { long, show } from '../chaos.ts'
import { limitMs, openScenario, type Scenario } from './scenario.ts'
import type { Worker } from './worker-process.ts'

const leaseMs = 2_000
/** How long each process runs, and how long it is stopped. */
const [runMs, stoppedMs] = [30, 270]

test(
  'three starved processes, while events keep coming: the checkpoint never stands still for more than a few leases',
  async () => {
    await using scenario = await openScenario({ consumers: 1, leaseMs, maxPauseMs: 50 })
    // A backlog: a full batch of one statement for each event takes longer than the lease.
    for (let at = 0; at < 15; at++) await scenario.store.events.append(`backlog-${at}`, orders(200))
    const workers = ['a', 'b', 'c'].map(name => scenario.start({ name, batchSize: 2_000 }))
    await Promise.all(workers.map(worker => worker.ready))

    const starving = starve(workers)
    const longestMs = await longestStandstill(scenario, long ? 100 : 4)
    starving.end()

    expect(longestMs).toBeLessThan(5 * leaseMs)
    expect(await scenario.finish()).toEqual([])
  },
  limitMs,
)

function orders(count: number): { type: string; data: object }[] {
  return Array.from({ length: count }, (_, total) => ({ type: 'OrderPlaced', data: { total } }))
}

/** Lets the processes run in turn, each for a tenth of the time. */
function starve(workers: readonly Worker[]): { end(): void } {
  let isOver = false
  for (const worker of workers)
    void (async () => {
      while (!isOver) {
        worker.freeze()
        await new Promise(resolve => setTimeout(resolve, stoppedMs))
        worker.thaw()
        await new Promise(resolve => setTimeout(resolve, runMs))
      }
    })()
  return {
    end() {
      isOver = true
      for (const worker of workers) worker.thaw()
    },
  }
}

/** How long the checkpoint stood still at most, until it has moved so often, or it is clear that it stands still. */
async function longestStandstill(scenario: Scenario, wantedMoves: number): Promise<number> {
  let [checkpoint, since, longest, moves] = [0, performance.now(), 0, 0]
  await waitUntil(
    async () => {
      const [row] = await scenario.query<{ checkpoint: string }>('select checkpoint::text from ~consumers')
      const now = performance.now()
      longest = Math.max(longest, now - since)
      if (row !== undefined && Number(row.checkpoint) > checkpoint) {
        ;[checkpoint, since] = [Number(row.checkpoint), now]
        moves++
      }
      return moves >= wantedMoves || longest > 5 * leaseMs
    },
    { deadlineMs: limitMs, everyMs: 50 },
  )
  show({ longest, checkpoint, moves })
  return longest
}
