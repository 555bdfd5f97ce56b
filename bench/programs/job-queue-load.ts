/** One job queue with callers and workers in its own process: callers that wait for their jobs, or a backlog. */
import { setTimeout as sleep } from 'node:timers/promises'
import { closedLoop } from '../harness/closed-loop.ts'
import { answer } from '../harness/program.ts'
import { percentile, type Sample } from '../harness/rounds.ts'
import { type JobQueue, type JobQueueSetup, type Place, StartedJobs } from '../rigs/job-queue.ts'
import { type JobQueueName, openJobQueue } from '../rigs/job-queues.ts'

export interface JobQueueLoadInput {
  readonly contestant: JobQueueName
  readonly place: Place
  readonly setup: JobQueueSetup
  readonly load: Calls | Backlog
}

/** Callers that wait for each of their jobs before they put in the next. */
export interface Calls {
  readonly callers: number
  readonly ms: number
}

/** Jobs that exist before the workers start. */
export interface Backlog {
  readonly jobs: number
}

/** Jobs per second; p50 and p99 are of the time from putting in a job to the start of its handler. */
export type JobQueueLoadAnswer = Sample

answer<JobQueueLoadInput>(async ({ contestant, place, setup, load }): Promise<JobQueueLoadAnswer> => {
  const started = new StartedJobs()
  await using queue = await openJobQueue(contestant, { place, ...setup, onStart: n => started.note(n) })
  const seen = 'callers' in load ? await calls(queue, load, started) : await drain(queue, load, started)
  if (started.twice > 0) throw new Error(`${contestant} ran ${started.twice} jobs twice`)
  return seen
})

async function calls(queue: JobQueue, { callers, ms }: Calls, started: StartedJobs): Promise<JobQueueLoadAnswer> {
  const warmUpMs = 750
  const sentAt: number[] = []
  await queue.start()
  const from = performance.now() + warmUpMs
  const { value } = await closedLoop({ callers, ms, warmUpMs }, () => {
    const n = sentAt.push(performance.now()) - 1
    return queue.run(n)
  })
  await queue.stop()
  const delays = sentAt.flatMap((sent, n) => (sent < from ? [] : [started.at[n]! - sent]))
  return { value, p50: percentile(delays, 0.5), p99: percentile(delays, 0.99) }
}

/** A smaller backlog is drained first: code that has not run yet is slow. */
async function drain(queue: JobQueue, { jobs }: Backlog, started: StartedJobs): Promise<JobQueueLoadAnswer> {
  const warmUp = 1000
  await queue.load(0, warmUp)
  await workOff(queue, started, warmUp)
  await queue.load(warmUp, jobs)
  return { value: jobs / ((await workOff(queue, started, warmUp + jobs)) / 1000) }
}

/** Milliseconds from the start of the workers until the database has nothing left. */
async function workOff(queue: JobQueue, started: StartedJobs, jobs: number): Promise<number> {
  const from = performance.now()
  await queue.start()
  // The database is queried only after all handlers have run, so that the queries do not slow them down.
  while (started.count < jobs) await sleep(1)
  while (!(await queue.isEmpty())) await sleep(1)
  const ms = performance.now() - from
  await queue.stop()
  return ms
}
