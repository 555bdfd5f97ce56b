/** Ours: a workflow of one event and one queued handler, with default options on the full schema. */

import { defineHandler } from '../../src/workflows/handler.ts'
import { openStore } from '../harness/rillflow.ts'
import {
  defaults,
  type JobData,
  JobEnds,
  type JobQueue,
  type JobQueueOptions,
  jobData,
  jobDataList,
} from '../rigs/job-queue.ts'

const type = 'JobRequested'

export async function openWorkflows({ place, onStart, ...setup }: JobQueueOptions): Promise<JobQueue> {
  const { workers, until, steps } = { until: 'settled', ...defaults, ...setup }
  const store = await openStore({ ...place, migrate: true })
  const workflows = store.workflows
  const ends = new JobEnds()
  workflows.register(
    defineHandler('job', {
      on: type,
      run: steps
        ? async (event, { step }) => {
            const { n } = event.data as JobData
            onStart(n)
            await step('step', () => n)
            ends.end(n)
          }
        : event => {
            const { n } = event.data as JobData
            onStart(n)
            ends.end(n)
          },
    }),
  )
  let runner: Awaited<ReturnType<typeof store.start>> | undefined
  return {
    async start() {
      runner = await store.start({ only: ['handlers'], concurrency: workers })
    },
    stop: async () => runner?.stop(),
    async run(n) {
      const end = until === 'handled' ? ends.until(n) : undefined
      const workflow = await workflows.publish(type, jobData(n))
      await (end ?? workflow.waitUntilSettled({ timeoutMs: 60_000 }))
    },
    async load(from, count) {
      // The store refuses more publishes at once than may wait.
      for (let at = from; at < from + count; at += 1000) {
        const some = jobDataList(at, Math.min(1000, from + count - at))
        await Promise.all(some.map(data => workflows.publish(type, data)))
      }
    },
    async isEmpty() {
      const rows = await store.transaction(tx => tx.query('select id from rillflow.workflow_executions limit 1'))
      return rows.length === 0
    },
    [Symbol.asyncDispose]: () => store.close(),
  }
}
