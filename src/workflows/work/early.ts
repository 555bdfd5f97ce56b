/**
 * Executions that a worker runs before anything of them is stored: those of one page of the dispatcher.
 *
 *     page ─► handlers run ─► all have ended, or time is up ─► workflow_dispatch_page ─► history · checkpoint
 *                                   └── has not ended: stored as begun, and completed like any other execution
 *
 * An execution that comes and goes within milliseconds is protected by the checkpoint of the dispatcher as well as by a
 * row: its event is in the log, and the checkpoint is before it. So it gets none. It is one attempt under the limits of
 * its worker, with the same history.
 *
 * Guarantees:
 * - An end counts only in the transaction that moves the checkpoint past its event, under the fence of the dispatcher. A
 *   process that dies, or has lost the lease, has stored nothing: its successor runs the events again.
 * - What needs a row gets one first: a step, a wait, an emitted event, a failure, a handler that takes long.
 *
 * What can fail: the call that stores the page. Ends that were not stored are kept by the worker, because the work has
 * been done, and count when the events are dispatched again; attempts that still run are lost, and their signal
 * aborts.
 */

import { type Deferred, deferred } from '../../core/abort.ts'
import { elapsedMs, type HostTimer, startHostTimer } from '../../core/host.ts'
import type { Claimed } from './claim.ts'
import type { Outcome } from './outcome.ts'

/** How long the first end of a page waits for the last one before it is stored. */
export const maxEarlyMs = 25

export class EarlyPage {
  readonly executions: readonly Claimed[]
  /** Resolves when all have ended, one needs its row, or their time is over. */
  readonly pause: Deferred<void> = deferred()
  /** Since when its executions have rows, by `elapsedMs()`. */
  storedAt: number | undefined
  readonly #ends = new Map<string, Outcome>()
  #state: 'running' | 'storing' | 'closed' = 'running'
  #begun: ReadonlySet<string> = new Set()
  readonly #closed: Deferred<void> = deferred()
  readonly #timer: HostTimer

  constructor(executions: readonly Claimed[]) {
    this.executions = executions
    this.#timer = startHostTimer(() => this.pause.resolve(), maxEarlyMs)
  }

  /**
   * The attempt has ended. True: nothing else is to be done for it. False: it needs a row, and is completed when that is
   * stored.
   */
  end(outcome: Outcome): boolean {
    if (this.#state !== 'running') return false
    if (!leavesNoRow(outcome)) {
      this.pause.resolve()
      return false
    }
    this.#ends.set(outcome.execution.id, outcome)
    if (this.#ends.size === this.executions.length) this.pause.resolve()
    return true
  }

  /** Resolves when the call has been answered: to whether this execution, which has not ended, has begun with it. */
  async isBegun(id: string): Promise<boolean> {
    if (this.#state !== 'closed') {
      this.pause.resolve()
      await this.#closed.promise
    }
    return this.#begun.has(id)
  }

  /** Whether the call has been answered, or has failed. */
  get isClosed(): boolean {
    return this.#state === 'closed'
  }

  /** The ends that are stored now: later ones need a row. */
  seal(): ReadonlyMap<string, Outcome> {
    this.#state = 'storing'
    this.#timer.cancel()
    return this.#ends
  }

  /** `begun`: the executions that have rows now, under the fence of the worker; undefined if nothing was stored. */
  close(begun: readonly string[] | undefined): void {
    this.seal()
    this.#state = 'closed'
    this.#begun = new Set(begun)
    this.storedAt = elapsedMs()
    this.#closed.resolve()
  }
}

function leavesNoRow({ kind, activity, detail, emitted, write, error, hasSteps }: Outcome): boolean {
  const isPlain = emitted === undefined && write === undefined && error === undefined && detail === undefined
  return kind === 'done' && (activity === 'completed' || activity === 'skipped') && isPlain && !hasSteps
}
