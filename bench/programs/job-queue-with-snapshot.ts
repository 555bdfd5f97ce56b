/** One job queue under load while another session holds an old snapshot, so that no dead row can be vacuumed. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { closedLoop } from '../harness/closed-loop.ts'
import { answer } from '../harness/program.ts'
import { type JobQueueSetup, StartedJobs } from '../rigs/job-queue.ts'
import { type JobQueueName, jobSchemas, openJobQueue } from '../rigs/job-queues.ts'

export interface SnapshotLoadInput {
  readonly contestant: JobQueueName
  readonly url: string
  readonly setup: JobQueueSetup
  readonly callers: number
  /** How long it runs before the snapshot is taken, and with it. */
  readonly freeMs: number
  readonly pinnedMs: number
}

export interface SnapshotLoadAnswer {
  /** Jobs per second: without the snapshot, with it, and in the last sixth of that. */
  readonly free: number
  readonly pinned: number
  readonly late: number
  /** `jobs` and `deadTuples` are of the time with the snapshot. */
  readonly jobs: number
  readonly deadTuples: number
  /** Size of its tables with their indexes. */
  readonly bytes: number
}

const warmUpMs = 1000

answer<SnapshotLoadInput>(
  async ({ contestant, url, setup, callers, freeMs, pinnedMs }): Promise<SnapshotLoadAnswer> => {
    const started = new StartedJobs()
    await using queue = await openJobQueue(contestant, { place: { url }, ...setup, onStart: n => started.note(n) })
    await queue.start()
    let made = 0
    // Longer than the measurement, so that no caller stops before it ends.
    const load = closedLoop({ callers, ms: freeMs + pinnedMs + 500, warmUpMs }, () => queue.run(made++))
    await sleep(warmUpMs)
    const free = await pace(started, freeMs)
    await using session = await holdSnapshot(url)
    const [before, jobsBefore] = [await session.look(jobSchemas[contestant]), started.count]
    const lateMs = pinnedMs / 6
    const early = await pace(started, pinnedMs - lateMs)
    const late = await pace(started, lateMs)
    const jobs = started.count - jobsBefore
    await load
    await queue.stop()
    const pinned = (early * (pinnedMs - lateMs) + late * lateMs) / pinnedMs
    const after = await session.look(jobSchemas[contestant])
    return { free, pinned, late, jobs, deadTuples: after.deadTuples - before.deadTuples, bytes: after.bytes }
  },
)

/** Jobs per second from now on. */
async function pace(started: StartedJobs, ms: number): Promise<number> {
  const [from, count] = [performance.now(), started.count]
  await sleep(ms)
  return (started.count - count) / ((performance.now() - from) / 1000)
}

interface Session extends AsyncDisposable {
  look(schema: string): Promise<Pick<SnapshotLoadAnswer, 'deadTuples' | 'bytes'>>
}

async function holdSnapshot(url: string): Promise<Session> {
  const client = new pg.Client(url)
  await client.connect()
  await client.query('begin isolation level repeatable read')
  await client.query('select count(*) from pg_class')
  return {
    async look(schema) {
      const { rows } = await client.query(
        `select sum(dead_tuple_count)::float8 as dead, sum(pg_total_relation_size(c.oid))::float8 as bytes
        from pg_class as c
        cross join lateral pgstattuple(c.oid)
        where c.relnamespace = $1::regnamespace
          and c.relkind = 'r'`,
        [schema],
      )
      return { deadTuples: rows[0].dead, bytes: rows[0].bytes }
    },
    async [Symbol.asyncDispose]() {
      await client.query('rollback')
      await client.end()
    },
  }
}
