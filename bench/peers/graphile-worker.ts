/** graphile-worker, through its public API: workers fed from a local queue, with completions in batches. */
import { Logger, makeWorkerUtils, type Runner, run } from 'graphile-worker'
import pg from 'pg'
import {
  defaults,
  type JobData,
  JobEnds,
  type JobQueue,
  type JobQueueOptions,
  jobData,
  jobDataList,
} from '../rigs/job-queue.ts'

const task = 'job'

export async function openGraphileWorker({ place, onStart, ...setup }: JobQueueOptions): Promise<JobQueue> {
  const { workers, poolSize, batchSize } = { poolSize: 10, ...defaults, ...setup }
  if (!('url' in place)) throw new Error('graphile-worker needs a server')
  const pgPool = new pg.Pool({ connectionString: place.url, max: poolSize })
  // The server may stop before the last idle connection does. graphile-worker wants both listeners.
  pgPool.on('error', () => {})
  pgPool.on('connect', client => client.on('error', () => {}))
  const logger = new Logger(() => () => {})
  const utils = await makeWorkerUtils({ pgPool, logger })
  await utils.migrate()
  const ends = new JobEnds()
  let runner: Runner | undefined
  const stop = async (): Promise<void> => {
    await runner?.stop()
    runner = undefined
  }
  return {
    async start() {
      runner = await run({
        pgPool,
        logger,
        noHandleSignals: true,
        preset: { worker: { concurrentJobs: workers, localQueue: { size: batchSize }, completeJobBatchDelay: 5 } },
        taskList: {
          [task](payload) {
            const { n } = payload as JobData
            onStart(n)
            ends.end(n)
          },
        },
      })
    },
    stop,
    async run(n) {
      const done = ends.until(n)
      await utils.addJob(task, jobData(n))
      await done
    },
    load: (from, count) => utils.addJobs(jobDataList(from, count).map(payload => ({ identifier: task, payload }))),
    async isEmpty() {
      const { rows } = await pgPool.query('select from graphile_worker._private_jobs limit 1')
      return rows.length === 0
    },
    async [Symbol.asyncDispose]() {
      await stop()
      await utils.release()
      await pgPool.end()
    },
  }
}
