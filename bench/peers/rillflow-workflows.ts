/** Ours: a workflow of one event and one queued handler, with default options on the full schema. */

import { openStore } from '../harness/rillflow.ts'
import {
  defaults,
  type JobData,
  type JobQueue,
  type JobQueueOptions,
  jobData,
  jobDataList,
  Waiting,
} from '../rigs/job-queue.ts'

const type = 'JobRequested'

export async function openWorkflows({ place, onStart, ...setup }: JobQueueOptions): Promise<JobQueue> {
  const { workers, until } = { until: 'settled', ...defaults, ...setup }
  const store = await openStore({ ...place, migrate: true })
  const flows = store.workflows
  const waiting = new Waiting()
  flows.on(type, { name: 'job' }, event => {
    const { n } = event.data as JobData
    onStart(n)
    waiting.end(n)
  })
  const worker = flows.worker({ concurrency: workers })
  return {
    start: () => worker.start(),
    stop: () => worker.stop(),
    async run(n) {
      const end = until === 'handled' ? waiting.until(n) : undefined
      const flow = await flows.publish(type, jobData(n))
      await (end ?? flow.settled({ timeoutMs: 60_000 }))
    },
    async load(from, count) {
      // More at once than may wait would be refused.
      for (let at = from; at < from + count; at += 1000) {
        const some = jobDataList(at, Math.min(1000, from + count - at))
        await Promise.all(some.map(data => flows.publish(type, data)))
      }
    },
    async isEmpty() {
      const rows = await store.transaction(tx => tx.query('select id from rillflow.workflow_executions limit 1'))
      return rows.length === 0
    },
    [Symbol.asyncDispose]: () => store.close(),
  }
}
