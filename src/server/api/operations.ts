/**
 * Operations: work that takes longer than a request. The answer is 202 with an id; its progress is in the list of
 * operations and on the live feed, and an operator can cancel it.
 *
 *     running ──► done · failed · cancelled           the last 100 are remembered, in the memory of this process
 *
 * What can fail: the process ends, and its operations with it. A rebuild is continued by the next one; a sync and a move
 * are, too.
 */
import { randomUUID } from 'node:crypto'
import { isRillflowError } from '../../core/errors.ts'
import { RequestRefused } from './answer.ts'
import type { Accepted, OperationDescription } from './contract.ts'

export interface OperationProgress {
  readonly phase?: string | undefined
  readonly done?: number | undefined
  readonly total?: number | undefined
  readonly perSecond?: number | undefined
  readonly etaMs?: number | undefined
}

export interface Operations {
  start(
    what: Pick<OperationDescription, 'kind' | 'target' | 'startedBy'>,
    work: (report: (progress: OperationProgress) => void, signal: AbortSignal) => Promise<unknown>,
  ): Accepted
  /** The newest first. */
  list(): OperationDescription[]
  cancel(id: string): void
  /** Calls `listener` with each change, until the function returned is called. */
  watch(listener: (operation: OperationDescription) => void): () => void
  /** Cancels all. */
  close(): void
}

const maxRemembered = 100
const maxRunning = 4
/** Reports of progress that come faster are left out. */
const reportMs = 500

export function openOperations(): Operations {
  const all = new Map<string, { description: OperationDescription; controller: AbortController; reportedAt: number }>()
  const listeners = new Set<(operation: OperationDescription) => void>()

  const change = (id: string, to: Partial<OperationDescription>): void => {
    const entry = all.get(id)
    if (entry === undefined) return
    entry.description = { ...entry.description, ...to }
    for (const listener of listeners) listener(entry.description)
  }
  const forgetOldest = (): void => {
    for (const [id, { description }] of all) {
      if (all.size <= maxRemembered) return
      if (description.state !== 'running') all.delete(id)
    }
  }
  return {
    start(what, work) {
      const running = [...all.values()].filter(({ description }) => description.state === 'running')
      if (running.length >= maxRunning)
        throw new RequestRefused(
          429,
          'overloaded',
          `${maxRunning} operations are running. Wait for one of them to end.`,
        )
      const id = randomUUID()
      const controller = new AbortController()
      const description: OperationDescription = { ...what, id, state: 'running', startedAt: new Date() }
      all.set(id, { description, controller, reportedAt: Number.NEGATIVE_INFINITY })
      forgetOldest()
      const report = (progress: OperationProgress): void => {
        const entry = all.get(id)!
        if (performance.now() - entry.reportedAt < reportMs) return
        entry.reportedAt = performance.now()
        change(id, progress)
      }
      change(id, {})
      void work(report, controller.signal).then(
        result => change(id, { state: 'done', endedAt: new Date(), result }),
        (error: unknown) =>
          change(id, {
            state: controller.signal.aborted ? 'cancelled' : 'failed',
            endedAt: new Date(),
            error: isRillflowError(error)
              ? { code: error.code, message: error.message }
              : { code: 'internal', message: 'It failed. The reason is in the log.' },
          }),
      )
      return { operation: id }
    },
    list: () => [...all.values()].map(({ description }) => description).reverse(),
    cancel(id) {
      const entry = all.get(id)
      if (entry === undefined)
        throw new RequestRefused(404, 'operation_not_found', 'This process has no such operation.')
      entry.controller.abort()
    },
    watch(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    close() {
      for (const { controller } of all.values()) controller.abort()
    },
  }
}
