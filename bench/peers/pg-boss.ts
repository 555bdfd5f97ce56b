/** pg-boss, through its public API: workers that fetch batches, woken by NOTIFY, on a server or on PGlite. */
import { PGlite } from '@electric-sql/pglite'
import { fromPglite, PgBoss } from 'pg-boss'
import {
  defaults,
  type JobData,
  JobEnds,
  type JobQueue,
  type JobQueueOptions,
  jobData,
  jobDataList,
} from '../rigs/job-queue.ts'

const queue = 'jobs'

export async function openPgBoss({ place, onStart, ...setup }: JobQueueOptions): Promise<JobQueue> {
  const { workers, poolSize, batchSize } = { ...defaults, ...setup }
  const pglite = 'folder' in place ? await PGlite.create(`file://${place.folder}`) : undefined
  const boss = new PgBoss({
    ...('url' in place ? { connectionString: place.url } : { db: fromPglite(pglite!), backend: 'pglite' }),
    useListenNotify: true,
    // Maintenance at the start and once a minute would be part of some runs and not of others.
    supervise: false,
    schedule: false,
    ...(poolSize === undefined ? {} : { max: poolSize }),
  })
  const errors: unknown[] = []
  boss.on('error', error => errors.push(error))
  await boss.start()
  await boss.createQueue(queue, { notify: true })
  const ends = new JobEnds()
  return {
    start: () =>
      boss.work<JobData>(
        queue,
        {
          batchSize,
          localConcurrency: workers,
          burstWhenBatchFull: true,
          pollingIntervalSeconds: 0.5,
          notifyPollingIntervalSeconds: 0.5,
        },
        async jobs => {
          for (const { data } of jobs) {
            onStart(data.n)
            ends.end(data.n)
          }
        },
      ),
    stop: () => boss.offWork(queue, { wait: true }),
    async run(n) {
      const end = ends.until(n)
      await boss.send(queue, jobData(n))
      await end
    },
    load: (from, count) =>
      boss.insert(
        queue,
        jobDataList(from, count).map(data => ({ data })),
      ),
    async isEmpty() {
      const { rows } = await boss.getDb().executeSql(`select id from pgboss.job where state < 'completed' limit 1`)
      return rows.length === 0
    },
    async [Symbol.asyncDispose]() {
      await boss.stop()
      await pglite?.close()
      if (errors.length > 0) throw errors[0]
    },
  }
}
