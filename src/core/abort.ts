/**
 * Waiting that can be aborted: signals, deadlines, sleep, promises that are settled later, and stopping once.
 *
 * A signal may live as long as the program and be passed to every call, so each wait must remove its listener. All
 * waits on one signal share one listener: Node warns from the eleventh listener on, and adding one compares it with all
 * others (20,000 cost 660 ms; shared, 40 ms). `AbortSignal.any` is not used here: on Node 20 a signal that was combined
 * with a long-lived one stays in memory as long as that.
 *
 * Invariant: when no wait is left, the signal has no listener of ours.
 */
import { type Clock, systemClock } from './clock.ts'
import type { Awaitable } from './core.ts'
import { Aborted, isRillflowError, type RillflowError, TimedOut } from './errors.ts'

/** Settles as the promise does, unless the signal aborts first. The work behind the promise is not stopped. */
export function abortable<T>(promise: PromiseLike<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return Promise.resolve(promise)
  return new Promise<T>((resolve, reject) => {
    const release = onAbort(signal, () => reject(abortError(signal)))
    promise.then(
      value => {
        release()
        resolve(value)
      },
      error => {
        release()
        reject(error)
      },
    )
  })
}

export function throwIfAborted(signal?: AbortSignal): void {
  if (signal?.aborted) throw abortError(signal)
}

/**
 * The error of a call whose signal was aborted: `Aborted`, with the reason as its cause. Our own reasons, a deadline
 * that has passed or a store that was closed, are returned as they are.
 */
export function abortError(signal: AbortSignal): RillflowError {
  const reason: unknown = signal.reason
  const isOurs = isRillflowError(reason, 'timed_out') || isRillflowError(reason, 'store_closed')
  return isOurs ? reason : new Aborted({}, reason)
}

/** Calls `fn` once when the signal aborts, or now if it has. The function returned removes it. */
export function onAbort(signal: AbortSignal, fn: () => void): () => void {
  if (signal.aborted) {
    fn()
    return () => {}
  }
  const waiters = waitersOf(signal)
  const waiter = { fn }
  waiters.all.add(waiter)
  return () => {
    if (waiters.all.delete(waiter) && waiters.all.size === 0) forget(signal, waiters)
  }
}

/**
 * A signal that aborts with the given one, or after `timeoutMs` with `TimedOut`. Call `dispose` when the work is done:
 * until then the timer runs.
 */
export function deadline(signal?: AbortSignal, timeoutMs?: number, options: DeadlineOptions = {}): Deadline {
  if (timeoutMs === undefined || timeoutMs === Infinity) {
    return { signal: signal ?? new AbortController().signal, dispose: () => {} }
  }
  const { what = 'The end of the call', clock = systemClock } = options
  const controller = new AbortController()
  const timer = clock.setTimeout(() => controller.abort(new TimedOut({ what, timeoutMs })), timeoutMs)
  const release = signal && onAbort(signal, () => controller.abort(signal.reason))
  const dispose = (): void => {
    timer.cancel()
    release?.()
  }
  onAbort(controller.signal, dispose)
  return { signal: controller.signal, dispose }
}

export interface Deadline {
  readonly signal: AbortSignal
  dispose(): void
}

export interface DeadlineOptions {
  /** The thing that was waited for, as the subject of the error's sentence. */
  what?: string | undefined
  clock?: Clock | undefined
}

export function sleep(ms: number, options: SleepOptions = {}): Promise<void> {
  const { signal, clock = systemClock, unref = false } = options
  if (signal?.aborted) return Promise.reject(abortError(signal))
  const { promise, resolve } = deferred<void>()
  const timer = clock.setTimeout(resolve, ms)
  if (unref) timer.unref?.()
  return abortable(promise, signal).finally(() => timer.cancel())
}

export interface SleepOptions {
  signal?: AbortSignal | undefined
  clock?: Clock | undefined
  /** True lets the process end during the sleep: for background work. */
  unref?: boolean | undefined
}

/** A promise together with the functions that settle it. */
export function deferred<T>(): Deferred<T> {
  let resolve!: Deferred<T>['resolve']
  let reject!: Deferred<T>['reject']
  const promise = new Promise<T>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}

export interface Deferred<T> {
  readonly promise: Promise<T>
  resolve(value: T | PromiseLike<T>): void
  reject(reason: unknown): void
}

/** Makes a function idempotent: the first call runs it, and every call gets that one outcome. */
export function once<T>(fn: () => Awaitable<T>): () => Promise<T> {
  let outcome: Promise<T> | undefined
  return () => {
    if (outcome !== undefined) return outcome
    // Set before `fn` runs: stopping one part often stops another, which stops the first again.
    const { promise, resolve } = deferred<T>()
    outcome = promise
    resolve(new Promise(settle => settle(fn())))
    return promise
  }
}

/** Waits until the work has succeeded or failed, but no longer than `limitMs`. Returns whether it has ended. */
export function settledWithin(work: Promise<unknown>, limitMs: number): Promise<boolean> {
  return new Promise(resolve => {
    const timer = systemClock.setTimeout(() => resolve(false), limitMs)
    const settled = (): void => {
      timer.cancel()
      resolve(true)
    }
    work.then(settled, settled)
  })
}

/**
 * Work that can be cut off: an `AbortController` that is made only when its signal is asked for. Most runs of handlers
 * end before that, and a controller with its signal and listeners costs more than the rest of a short run.
 */
export class Cutoff {
  isCut = false
  reason: unknown
  #listeners: (() => void)[] | undefined
  #controller: AbortController | undefined

  /** The first reason counts. */
  cut(reason: unknown): void {
    if (this.isCut) return
    this.isCut = true
    this.reason = reason
    this.#controller?.abort(reason)
    for (const listener of this.#listeners ?? []) listener()
  }

  /** Calls the listener when it is cut off, or now if it has been. */
  onCut(listener: () => void): void {
    this.#listeners ??= []
    this.#listeners.push(listener)
    if (this.isCut) listener()
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (this.isCut) this.#controller.abort(this.reason)
    return this.#controller.signal
  }
}

interface Waiters {
  readonly all: Set<{ fn: () => void }>
  readonly listener: () => void
}

// Weak, so an entry lives no longer than its signal.
const waitersBySignal = new WeakMap<AbortSignal, Waiters>()

function waitersOf(signal: AbortSignal): Waiters {
  const known = waitersBySignal.get(signal)
  if (known !== undefined) return known
  const all: Waiters['all'] = new Set()
  const listener = (): void => {
    forget(signal, waiters)
    for (const waiter of all) {
      all.delete(waiter)
      waiter.fn()
    }
  }
  const waiters = { all, listener }
  waitersBySignal.set(signal, waiters)
  signal.addEventListener('abort', listener)
  return waiters
}

function forget(signal: AbortSignal, waiters: Waiters): void {
  waitersBySignal.delete(signal)
  signal.removeEventListener('abort', waiters.listener)
}
