/** Workflows that fan out into many parts and join them again, in their own process. */

import { defineHandler } from '../../src/workflows/handler.ts'
import { defineJoin } from '../../src/workflows/joins/join.ts'
import { closedLoop } from '../harness/closed-loop.ts'
import { answer } from '../harness/program.ts'
import { batch, openStore } from '../harness/rillflow.ts'
import type { Sample } from '../harness/rounds.ts'
import { defaults } from '../rigs/job-queue.ts'

export interface FanOutInput {
  readonly url: string
  /** Of each fan-out. */
  readonly parts: number
  readonly callers: number
  readonly ms: number
}

/** Fan-outs per second; p50 and p99 are from publishing one until its workflow has settled. */
export type FanOutAnswer = Sample

answer<FanOutInput>(async ({ url, parts, callers, ms }): Promise<FanOutAnswer> => {
  await using store = await openStore({ url, migrate: true })
  const workflows = store.workflows
  const numbers = Array.from({ length: parts }, (_, n) => n)
  const joined = new Map<string, number>()
  workflows.register(
    defineHandler('fan', {
      on: 'FanOut',
      emits: ['Part'],
      run: (_, { emit }) => batch(numbers.map(n => emit('Part', { n }))),
    }),
  )
  workflows.register(
    defineHandler('part', { on: 'Part', emits: ['PartDone'], run: (event, { emit }) => emit('PartDone', event.data) }),
  )
  workflows.register(
    defineJoin('all-parts', {
      on: 'PartDone',
      retries: 0,
      run: (events, ctx) => {
        if (joined.has(ctx.correlationId)) throw new Error('joined twice')
        joined.set(ctx.correlationId, events.length)
      },
    }),
  )
  await using _ = await store.start({ only: ['handlers'], concurrency: defaults.workers })
  const { value, p50, p99 } = await closedLoop({ callers, ms, warmUpMs: 1000 }, async () => {
    const workflow = await workflows.publish('FanOut', {})
    await workflow.waitUntilSettled({ timeoutMs: 60_000 })
    if (joined.get(workflow.correlationId) !== parts)
      throw new Error(`settled with ${joined.get(workflow.correlationId)} of ${parts} parts joined`)
  })
  return { value, p50, p99 }
})
