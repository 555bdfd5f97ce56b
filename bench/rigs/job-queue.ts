/** A job queue, ours or a peer, as the workflow benches drive it. */
import { orderEvent } from '../workloads/orders.ts'

export interface JobQueue extends AsyncDisposable {
  /** Starts the workers. Their handler records the job and does nothing else. */
  start(): Promise<unknown>
  stop(): Promise<unknown>
  /** Adds one job, and resolves when it has been handled. */
  run(n: number): Promise<unknown>
  /** Adds the jobs `from` to `from + count - 1`. */
  load(from: number, count: number): Promise<unknown>
  /** Whether the database knows that every job is done. */
  isEmpty(): Promise<boolean>
}

/** A server, or the folder of an embedded database. */
export type Place = { readonly url: string } | { readonly folder: string }

/** Peers run with several set-ups, and the best one is reported. */
export interface JobQueueSetup {
  /** Default 4. */
  readonly workers?: number
  /** Connections. Default: its own. */
  readonly poolSize?: number
  /** Number of jobs fetched at once. Default 50. */
  readonly batchSize?: number
  /** What ends a call. Peers: the handler. Default of ours: the workflow has settled. */
  readonly until?: 'handled' | 'settled'
  /** Whether the handler has a recorded step. Default false. */
  readonly steps?: boolean
}

export interface JobQueueOptions extends JobQueueSetup {
  readonly place: Place
  /** Called by the handler. */
  onStart(n: number): void
}

export const defaults = { workers: 4, batchSize: 50, steps: false }

export interface JobData {
  readonly n: number
}

/** About 210 bytes of JSON, like all events. */
export function jobData(n: number): JobData {
  return { n, ...orderEvent(n).data }
}

export function jobDataList(from: number, count: number): JobData[] {
  return Array.from({ length: count }, (_, at) => jobData(from + at))
}

/** Lets callers wait for the handler of their job: peers have no other end that a caller can wait for. */
export class JobEnds {
  readonly #ends = new Map<number, () => void>()

  /** Resolves with `end(n)`. To be called before the job can run. */
  until(n: number): Promise<void> {
    return new Promise(resolve => this.#ends.set(n, resolve))
  }

  end(n: number): void {
    this.#ends.get(n)?.()
    this.#ends.delete(n)
  }
}

/** When the handler of each job started. */
export class StartedJobs {
  readonly at: number[] = []
  count = 0
  twice = 0

  note(n: number): void {
    if (this.at[n] === undefined) this.count++
    else this.twice++
    this.at[n] = performance.now()
  }
}
