/** An embedded store whose process is killed while its handlers run. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { identifier } from '../../../src/database/sql.ts'
import { openStore } from '../../../src/store.ts'
import { judgeAppends } from '../../../src/verify/record-appends.ts'
import { copyStore } from '../../support/embedded.ts'
import { waitUntil } from '../../support/wait.ts'
import { long, show } from '../chaos.ts'
import { checkWorkflows, noErrors, type Query, wrongSteps } from './check-workflows.ts'
import { rules } from './orders.ts'
import { deadlineMs, limitMs } from './scenario.ts'
import { startProcess } from './worker-process.ts'

test(
  'the next process immediately continues the work of a killed one, without loss or repetition',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rf-embedded-'))
    await copyStore(folder)
    const schema = 'shop'
    const seed = Math.floor(Math.random() * 2 ** 31)
    // Too long to expire during the test.
    const options = { folder, schema, leaseMs: 3_600_000 }
    const published: number[] = []
    try {
      for (let round = 0; round < (long ? 20 : 1); round++) {
        await using victim = startProcess({ ...options, name: `victim-${round}`, seed: seed + round })
        let from = round * 10_000
        await victim.ask({ kind: 'publish', from })
        // When it has completed all its work, it gets more.
        const isAtWork = async (): Promise<boolean> => {
          const { inHand, left } = await victim.ask({ kind: 'look' })
          if (left === 0) {
            from += 100
            await victim.ask({ kind: 'publish', from })
          }
          return inHand > 2
        }
        await waitUntil(async () => (await victim.ask({ kind: 'look' })).published.length > 10, {
          ...{ deadlineMs, what: 'orders' },
        })
        await waitUntil(isAtWork, { deadlineMs, what: 'work' })
        published.push(...(await victim.ask({ kind: 'look' })).published)
        await victim.kill()
      }
      await using heir = startProcess({ ...options, name: 'heir', seed: seed - 1 })
      let left: number | undefined
      const isOver = async (): Promise<boolean> => {
        left = (await heir.ask({ kind: 'look' })).left
        return left === 0
      }
      const patient = { deadlineMs: 2 * deadlineMs, everyMs: 200 }
      await waitUntil(isOver, { ...patient, what: 'the end of all' }).catch((error: Error) => {
        throw new Error(`${error.message}; ${left} are left`)
      })
      await heir.kill()

      await using store = await openStore({ folder, schema })
      const named = (text: string): string => text.replaceAll(/~(\w+)/g, (_, name) => identifier(schema, name).quoted)
      const query: Query = (text, values) => store.transaction(tx => tx.query(named(text), values))
      const errors = await checkWorkflows(query, rules)
      const orders = await query<{ order: number }>(`
        select (data->>'order')::int as order from ~events where type = 'OrderPlaced'`)
      const stored = new Set(orders.map(({ order }) => order))

      show({ seed, published: published.length, stored: stored.size })
      expect(published.filter(order => !stored.has(order))).toEqual([])
      expect({ seed, ...errors }).toEqual({ seed, ...noErrors })
      expect(await wrongSteps(query)).toEqual([])
      expect(await judgeAppends(store, [], { hasOthers: true })).toEqual([])
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
  limitMs,
)
