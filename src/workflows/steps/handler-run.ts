/**
 * One run of a handler with its memory: every call of its context goes through here. The end of a call is recorded before it
 * is delivered to the handler; a long wait ends the run, silently for the handler's code, once nothing else is running.
 *
 *     call ─► recorded before ─► delivered in its turn
 *       ├─► work ─► recorded, under the fence ─► delivered in its turn
 *       └─► wait ─► nothing running for a turn of the event loop ─► suspended
 */

import { isInterruption } from '../../consumers/run/failure.ts'
import { type Deferred, deferred, onAbort } from '../../core/abort.ts'
import type { Timer } from '../../core/clock.ts'
import { isRillflowError, type RillflowError } from '../../core/errors.ts'
import { inNextTurn } from '../../core/host.ts'
import { checkName } from '../../core/name.ts'
import type { Transaction } from '../../database/database.ts'
import { ExecutionLost } from '../errors.ts'
import type { Handler } from '../handler.ts'
import type { AttemptParts } from '../work/attempt.ts'
import type { Claimed } from '../work/claim.ts'
import { type Alongside, openRecorder } from './record.ts'
import { type Call, type CallKind, type End, openReplay, type Recorded, type Replay } from './replay.ts'
import { failureOf } from './step-failure.ts'

export interface HandlerRunParts extends AttemptParts {
  readonly execution: Claimed
  readonly handler: Handler
  /** How long without a heartbeat until other workers take over. */
  readonly leaseMs: number
  /** Aborts when the run is over, also if its code still runs. */
  readonly signal: AbortSignal
}

/** How a run ends before its handler does: it waits, or its code does not fit its recorded calls. */
export type EarlyEnd = { readonly kind: 'suspended' } | { readonly kind: 'parked'; readonly error: RillflowError }

/** An event that ends a wait. */
export interface SignalOfWait {
  readonly type: string
  readonly match: string | undefined
  /** Whether other executions of the handler may be given the same event. */
  readonly isShared: boolean
}

/** The end of the wait of a call: a time, an event, a child, or an event with a limit. */
export interface Wait {
  /** In milliseconds, by the clock of this process. Undefined: no time ends it. */
  readonly dueAt?: number | undefined
  /** An event of the own workflow; `match` is JSON. */
  readonly signal?: SignalOfWait | undefined
  /** The end of this workflow. */
  readonly child?: string | undefined
}

export interface HandlerRun extends HandlerRunParts {
  readonly replay: Replay
  readonly waiting: ReadonlyMap<Call, Wait>
  /** Whether calls of it are stored. */
  readonly hasSteps: boolean
  /** Resolves if the run ends before its handler; rejects if the execution is lost, or the database is. */
  readonly over: Promise<EarlyEnd>
  /** Makes a call; `begin` runs if its end is not recorded. */
  call<T>(kind: CallKind, name: string, begin: (call: Call) => void): Promise<T>
  /** Does the work of a call; the run is not suspended meanwhile. */
  work(call: Call, doIt: () => Promise<End>): void
  /** Lets a call wait. One that waits only for a time ends by itself, if the run lasts that long. */
  wait(call: Call, wait: Wait): void
  /** When a wait of so long is over: counted from now, or from when the call was made first. */
  dueAt(call: Call, ms: number): number
  record(call: Call, end: End, alongside?: Alongside): Promise<void>
  recordIn(tx: Transaction, call: Call, end: End): Promise<{ committed(): void }>
  /** The handler has failed: resolves when no work is running, so that all its steps are recorded. */
  settle(): Promise<void>
  /** Refuses everything that the run still does. */
  close(): void
}

/** Waits shorter than this are not worth a suspension. */
const shortMs = 1_000

/** `recorded`: the calls of earlier runs. */
export function openHandlerRun(parts: HandlerRunParts, recorded: readonly Recorded[]): HandlerRun {
  const { log, execution, handler, signal } = parts
  const openedAt = log.clock.now().getTime()
  const over = deferred<EarlyEnd>()
  over.promise.catch(() => {})
  const waiting = new Map<Call, Wait>()
  const timers = new Map<Call, Timer>()
  const working = new Set<Call>()
  let allDone: Deferred<void> | undefined
  let isLooking = false
  let state: 'running' | 'settling' | 'left' | 'closed' = 'running'

  const replay = openReplay({
    ...{ handler: handler.name, clock: log.clock, beganAt: execution.queuedAt, recorded },
    onPark: error => leave({ kind: 'parked', error }),
    onActivity: () => look(),
  })
  const recorder = openRecorder(parts, replay)
  const lost = () => new ExecutionLost({ handler: handler.name, executionId: execution.id })

  const run: HandlerRun = {
    ...parts,
    replay,
    waiting,
    over: over.promise,
    get hasSteps() {
      return recorded.length > 0 || recorder.hasStored
    },
    async call<T>(kind: CallKind, name: string, begin: (call: Call) => void) {
      if (state === 'closed') throw lost()
      // Nothing is thrown: the handler's own code would take that for a failure.
      if (state !== 'running') return never<T>()
      log.database.refuseInsideTransaction(`ctx.${kind}`)
      checkName('Step', name)
      const call = replay.ask(kind, name)
      if (call === undefined) return never<T>()
      if (call.end === undefined) {
        if (parts.isRehearsal) run.wait(call, {})
        else beginStored(call, begin)
      }
      return call.answer.promise as Promise<T>
    },
    work(call, doIt) {
      working.add(call)
      void doIt()
        .then(
          end => replay.ended(call, end),
          (error: unknown) => failed(call, error),
        )
        .finally(() => {
          working.delete(call)
          if (state === 'closed') refuse()
          if (working.size === 0) allDone?.resolve()
          look()
        })
    },
    wait(call, wait) {
      waiting.set(call, wait)
      const { dueAt, signal, child } = wait
      if (dueAt !== undefined && signal === undefined && child === undefined)
        timers.set(
          call,
          log.clock.setTimeout(() => due(call), Math.max(0, dueAt - log.clock.now().getTime())),
        )
      look()
    },
    dueAt: ({ known }, ms) =>
      known?.dueInMs === undefined ? log.clock.now().getTime() + ms : openedAt + known.dueInMs,
    async record(call, end, alongside) {
      if (!(await recorder.record(call, end, alongside))) throw lost()
    },
    async recordIn(tx, call, end) {
      const storing = await recorder.recordIn(tx, call, end)
      if (storing === undefined) throw lost()
      return storing
    },
    async settle() {
      if (state === 'running') stop('settling')
      if (working.size === 0) return
      allDone = deferred<void>()
      await allDone.promise
    },
    close() {
      release()
      end()
    },
  }
  const release = onAbort(signal, end)
  return run

  /** A call is recorded with the row of its execution, so the row comes first. [early-1] */
  function beginStored(call: Call, begin: (call: Call) => void): void {
    const { early, id } = execution
    if (early === undefined || early.isClosed) {
      begin(call)
      return
    }
    working.add(call)
    void early.isBegun(id).then(hasBegun => {
      working.delete(call)
      if (!hasBegun || state === 'closed') refuse()
      else if (state === 'running') begin(call)
      look()
    })
  }

  function end(): void {
    if (state === 'left') return
    stop('closed')
    refuse()
  }

  /** Ends the handler's code, too, by rejecting its calls; not those whose work is still running. */
  function refuse(): void {
    for (const call of replay.undelivered()) if (!working.has(call)) call.answer.reject(lost())
  }

  function stop(next: typeof state): void {
    state = next
    replay.close()
    for (const timer of timers.values()) timer.cancel()
    timers.clear()
  }

  function leave(end: EarlyEnd): void {
    stop('left')
    over.resolve(end)
  }

  function due(call: Call): void {
    waiting.delete(call)
    timers.delete(call)
    replay.ended(call, { state: 'done', value: undefined, at: replay.timeNow() })
  }

  function failed(call: Call, error: unknown): void {
    const isLost = isRillflowError(error, 'execution_lost')
    if (isLost || state === 'closed') {
      over.reject(error)
      return
    }
    // Whether it was stored is not known: the handler must not continue as if it had failed.
    if (call.kind !== 'step' && isInterruption(error)) {
      over.reject(error)
      return
    }
    const result = JSON.stringify(failureOf(error, execution.attempt))
    replay.ended(call, { state: 'failed', value: error, result, at: replay.timeNow() })
  }

  /** Suspends the run if it does nothing but wait, and still does after a turn of the event loop. */
  function look(): void {
    if (isLooking || !isIdle()) return
    isLooking = true
    const { activity } = replay
    inNextTurn(() => {
      isLooking = false
      if (isIdle() && replay.activity === activity) leave({ kind: 'suspended' })
      else look()
    })
  }

  function isIdle(): boolean {
    if (state !== 'running' || working.size > 0 || waiting.size === 0 || !replay.isQuiet) return false
    const soon = log.clock.now().getTime() + shortMs
    return [...timers.keys()].every(call => waiting.get(call)!.dueAt! >= soon)
  }
}

function never<T>(): Promise<T> {
  return new Promise<T>(() => {})
}
