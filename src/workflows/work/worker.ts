/** A worker as users have it: options, start and stop. What it does is in `running-worker.ts`. */

import type { ConcurrencyShare } from '../../consumers/runners/concurrency.ts'
import { checkWhole } from '../../core/whole.ts'
import { type RunningWorker, runningWorker, type WorkerParts } from './running-worker.ts'

export interface WorkerOptions {
  /** The most handlers that run at once. Default 16. */
  concurrency?: number | undefined
  /**
   * The handlers to run. Default: all that are registered in this store when it starts. Schedules that this process has the
   * code of are run by any worker, whatever handlers it has.
   */
  handlers?: readonly string[] | undefined
  /** How long without a sign of life until others take over. Default 15 000. */
  leaseMs?: number | undefined
  /** How often it looks without a hint. Default 2000. */
  pollMs?: number | undefined
  /** How long `stop` waits for running handlers. Default 30 000. */
  drainMs?: number | undefined
  /** A name for people. */
  node?: string | undefined
}

export interface Worker extends AsyncDisposable {
  /** Its id among the workers of all processes; undefined while it is not running. */
  readonly id: string | undefined
  readonly isRunning: boolean
  /** Resolves when it takes work. May be called again after a stop. */
  start(): Promise<void>
  /** Takes nothing more, lets running handlers end for a while, then cuts them off; gives back the rest. */
  stop(options?: { drainMs?: number | undefined }): Promise<void>
}

export interface OpenWorkerParts extends WorkerParts {
  /** Called when it has started; the function returned, when it has stopped. */
  readonly tend: () => () => void
}

/** `seats`: those it shares with workers of other stores. */
export function openWorker(
  parts: OpenWorkerParts,
  options: WorkerOptions,
  open: Set<() => Promise<void>>,
  seats?: ConcurrencyShare,
): Worker {
  let current: RunningWorker | undefined
  let rest = (): void => {}
  const stop = async ({
    drainMs = options.drainMs ?? 30_000,
  }: {
    drainMs?: number | undefined
  } = {}): Promise<void> => {
    const stopped = current
    rest()
    await stopped?.stop(drainMs)
    if (current === stopped) current = undefined
    open.delete(stop)
  }
  return {
    get id() {
      return current?.owner
    },
    get isRunning() {
      return current !== undefined
    },
    async start() {
      if (current !== undefined) return
      const mine = runningWorker(parts, options, seats)
      current = mine
      open.add(stop)
      try {
        await mine.start()
        if (current === mine) rest = parts.tend()
      } catch (error) {
        await stop({ drainMs: 0 })
        throw error
      }
    },
    stop,
    [Symbol.asyncDispose]: () => stop(),
  }
}

/** Refuses what could only fail later. */
export function checkWorker(options: WorkerOptions): WorkerOptions {
  const { concurrency = 16, leaseMs = 15_000, pollMs = 2_000, drainMs = 30_000 } = options
  checkWhole('concurrency', concurrency, 1, 10_000)
  checkWhole('leaseMs', leaseMs, 50)
  checkWhole('pollMs', pollMs, 1)
  checkWhole('drainMs', drainMs, 0)
  return options
}
