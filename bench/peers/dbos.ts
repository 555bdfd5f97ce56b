/** DBOS Transact, through its public API: a workflow of one function, with or without a step, started and awaited. */
import { DBOS } from '@dbos-inc/dbos-sdk'
import { defaults, type JobData, type JobQueue, type JobQueueOptions, jobData } from '../rigs/job-queue.ts'

const silent = { info() {}, debug() {}, warn() {}, error() {} }

export async function openDbos({ place, onStart, ...setup }: JobQueueOptions): Promise<JobQueue> {
  const { poolSize, steps } = { ...defaults, ...setup }
  if (!('url' in place)) throw new Error('DBOS needs a server')
  DBOS.setConfig({
    name: 'bench',
    systemDatabaseUrl: place.url,
    runAdminServer: false,
    logger: silent as never,
    ...(poolSize === undefined ? {} : { systemDatabasePoolSize: poolSize }),
  })
  const job = DBOS.registerWorkflow(
    async ({ n }: JobData) => {
      onStart(n)
      if (steps) await DBOS.runStep(async () => n, { name: 'step' })
    },
    { name: 'job' },
  )
  await DBOS.launch()
  return {
    // It has no workers of its own for workflows that are started here.
    async start() {},
    async stop() {},
    async run(n) {
      const handle = await DBOS.startWorkflow(job)(jobData(n))
      await handle.getResult()
    },
    async load(from, count) {
      const ends = Array.from({ length: count }, (_, at) => DBOS.startWorkflow(job)(jobData(from + at)))
      for (const handle of await Promise.all(ends)) await handle.getResult()
    },
    isEmpty: async () => true,
    [Symbol.asyncDispose]: () => DBOS.shutdown(),
  }
}
