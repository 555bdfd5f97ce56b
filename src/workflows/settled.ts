/**
 * Waiting until workflows are settled: all who wait in this store are answered by one statement, after each hint and by a
 * poll whose waits grow.
 */
import { isRillflowError } from '../core/errors.ts'
import { abortable, type Deferred, deadline, deferred } from '../core/lifecycle.ts'
import { openLoop } from '../core/loop.ts'
import type { Log } from '../events/log.ts'
import type { DispatchProgress } from './dispatch/dispatch.ts'
import type { WorkflowHints } from './hints.ts'
import { readStatuses, type WorkflowStatus } from './status.ts'

export interface SettledOptions {
  /** Default 30 000. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
}

export interface SettledWatch {
  /** Resolves when nothing more will happen in the workflow by itself. `position`: that of an event of it. */
  settled(correlationId: string, options?: SettledOptions, position?: number): Promise<WorkflowStatus>
}

const firstPollMs = 20
const lastPollMs = 1_000

/** `progress`: an event that this process has still to dispatch needs no look before it has. */
export function watchSettled(log: Log, hints: WorkflowHints, progress: DispatchProgress): SettledWatch {
  const waiters = new Map<string, Set<Deferred<WorkflowStatus>>>()
  let stopListening: (() => void) | undefined
  const loop = openLoop({ look, pollMs: Number.POSITIVE_INFINITY, clock: log.clock, onFailure })
  let pollMs = firstPollMs

  return {
    async settled(correlationId, { timeoutMs = 30_000, signal } = {}, position = 0) {
      log.database.refuseInsideTransaction('settled')
      const limit = deadline(signal, timeoutMs, { what: `The end of workflow ${correlationId}`, clock: log.clock })
      const waiter = deferred<WorkflowStatus>()
      const all = waiters.get(correlationId) ?? new Set()
      waiters.set(correlationId, all.add(waiter))
      stopListening ??= hints.onEnded(loop.lookSoon)
      pollMs = firstPollMs
      if (progress.reached > 0 && progress.reached < position) loop.lookIn(pollMs)
      else loop.lookSoon()
      try {
        return await abortable(waiter.promise, limit.signal)
      } finally {
        limit.dispose()
        leave(correlationId, waiter)
      }
    },
  }

  function leave(correlationId: string, waiter: Deferred<WorkflowStatus>): void {
    const all = waiters.get(correlationId)
    all?.delete(waiter)
    if (all?.size === 0) waiters.delete(correlationId)
    if (waiters.size > 0) return
    stopListening?.()
    stopListening = undefined
    loop.rest()
  }

  async function look(): Promise<number | undefined> {
    if (waiters.size === 0) return undefined
    for (const status of await readStatuses(log, [...waiters.keys()], log.database, true))
      if (status.isSettled) for (const waiter of waiters.get(status.correlationId) ?? []) waiter.resolve(status)
    const waitMs = pollMs
    pollMs = Math.min(pollMs * 1.5, lastPollMs)
    return waitMs
  }

  function onFailure(error: unknown): void {
    if (!isRillflowError(error) || !error.retryable)
      for (const all of waiters.values()) for (const waiter of all) waiter.reject(error)
  }
}
