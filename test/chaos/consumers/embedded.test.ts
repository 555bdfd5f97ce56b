/** An embedded store whose process is killed while its consumers work. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { copyStore } from '../../support/embedded.ts'
import { waitUntil } from '../../support/wait.ts'
import { long, show } from '../chaos.ts'
import { effectProblems } from './check-effects.ts'
import { deadlineMs, limitMs } from './scenario.ts'
import { startWorker } from './worker-process.ts'
import type { Answer } from './worker-program.ts'

test(
  'the next process takes the leases of a killed one immediately, and each event is applied once, in order',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rf-embedded-'))
    await copyStore(folder)
    const consumers = ['totals', 'stock']
    // Too long to expire during the test.
    const options = { folder, schema: 'shop', consumers, leaseMs: 3_600_000 }
    try {
      for (let round = 0; round < (long ? 20 : 1); round++) {
        await using victim = startWorker({ ...options, name: `victim-${round}` })
        await victim.ask({ kind: 'append', callers: 4 })
        await waitUntil(async () => (await victim.ask({ kind: 'holds' })).appended > 300, {
          deadlineMs,
          what: 'appends',
        })
        await victim.kill()
      }

      await using heir = startWorker({ ...options, name: 'heir' })
      let answer: Answer | undefined
      await waitUntil(
        async () => {
          answer = await heir.ask({ kind: 'read' })
          return answer.log.length > 0
        },
        { deadlineMs, what: 'all consumers at the end of the log' },
      )

      const log = answer!.log
      show({ events: log.length, effects: answer!.effects.length })
      expect(log.length).toBeGreaterThan(300)
      expect(answer!.holds.sort()).toEqual(['stock', 'totals'])
      expect(effectProblems(consumers, log, answer!.effects)).toEqual([])
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
  limitMs,
)
