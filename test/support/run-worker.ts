/** Runs the handlers and schedules of a store in a test: a runner that can be started, and again after a stop. */
import { enter } from '../../src/consumers/runners/row.ts'
import type { Runner, RunnerOptions } from '../../src/consumers/runners/runner.ts'
import type { Log } from '../../src/events/log.ts'

export interface WorkerOptions extends Pick<RunnerOptions, 'concurrency' | 'leaseMs' | 'pollMs' | 'name'> {
  /** The handlers to run. Default: all. */
  handlers?: readonly string[] | undefined
  /** How long `stop` waits for running handlers. */
  drainMs?: number | undefined
}

/** The part of a store that is needed. */
export interface Starts {
  start(options?: RunnerOptions): Promise<Runner>
}

export interface Worker extends AsyncDisposable {
  /** The id of the runner; undefined while it is not running. */
  readonly id: string | undefined
  readonly isRunning: boolean
  start(): Promise<void>
  stop(options?: { drainMs?: number | undefined }): Promise<void>
}

export function workerOf(store: Starts, { handlers, drainMs, ...options }: WorkerOptions = {}): Worker {
  let current: Promise<Runner> | undefined
  let running: Runner | undefined
  const only: RunnerOptions['only'] = [
    'schedules',
    ...(handlers === undefined ? (['handlers'] as const) : handlers.map(name => ({ kind: 'handler' as const, name }))),
  ]
  const worker: Worker = {
    get id() {
      return running?.id
    },
    get isRunning() {
      return current !== undefined
    },
    async start() {
      const starting = current ?? store.start({ ...options, only })
      current = starting
      try {
        running = await starting
      } catch (error) {
        if (current === starting) current = undefined
        throw error
      }
    },
    async stop(given = {}) {
      const stopped = current
      const timeoutMs = given.drainMs ?? drainMs
      await stopped?.then(
        each => each.stop(timeoutMs === undefined ? {} : { timeoutMs }),
        () => {},
      )
      if (current === stopped) current = running = undefined
    },
    [Symbol.asyncDispose]: () => worker.stop(),
  }
  return worker
}

export interface EnteredWorker {
  readonly owner: string
  readonly leaseMs: number
  readonly concurrency: number
  readonly routes: readonly number[]
}

/** Stores the row of a worker that does nothing by itself. */
export async function enterWorker(log: Log, { owner, leaseMs, concurrency, routes }: EnteredWorker): Promise<void> {
  await enter(log, { id: owner, name: undefined, role: 'active', leaseMs, serves: { routes, concurrency } })
}
