/** Somebody who takes jobs and works them off: ours or a peer, as the workflow benches drive them. */
import { orderEvent } from '../workloads/orders.ts'

export interface JobQueue extends AsyncDisposable {
  /** Starts the workers. Their handler notes the job and does nothing else. */
  start(): Promise<unknown>
  stop(): Promise<unknown>
  /** Puts in one job, and resolves when it is done with. */
  run(n: number): Promise<unknown>
  /** Puts in the jobs `from` to `from + count - 1`. */
  load(from: number, count: number): Promise<unknown>
  /** Whether the database knows that every job is done. */
  isEmpty(): Promise<boolean>
}

/** A server, or the folder of an embedded one. */
export type Place = { readonly url: string } | { readonly folder: string }

/** Peers are shown at the best of several. */
export interface JobQueueSetup {
  /** Default 4. */
  readonly workers?: number
  /** Connections. Default: its own. */
  readonly poolSize?: number
  /** How many jobs are fetched at once. Default 50. */
  readonly batchSize?: number
  /** What ends a call: with a peer, the handler. Default for ours: the workflow has settled. */
  readonly until?: 'handled' | 'settled'
}

export interface JobQueueOptions extends JobQueueSetup {
  readonly place: Place
  /** To be called by the handler. */
  onStart(n: number): void
}

export const defaults = { workers: 4, batchSize: 50 }

export interface JobData {
  readonly n: number
}

/** About 210 bytes of JSON, as everywhere. */
export function jobData(n: number): JobData {
  return { n, ...orderEvent(n).data }
}

export function jobDataList(from: number, count: number): JobData[] {
  return Array.from({ length: count }, (_, at) => jobData(from + at))
}

/** Callers that wait for the handler of their job, as peers have no other end that a caller could hear of. */
export class Waiting {
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

/** When each handler started. */
export class Started {
  readonly at: number[] = []
  count = 0
  twice = 0

  note(n: number): void {
    if (this.at[n] === undefined) this.count++
    else this.twice++
    this.at[n] = performance.now()
  }
}
