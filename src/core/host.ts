/**
 * The host of the library: time, timers, turns of the event loop, chance, and the load of the process. The folders above `database/` take them from
 * here, directly or as the `systemClock`, and nothing from the globals of Node: a simulation replaces the host, and then
 * the same seed gives the same run.
 */
import { randomFillSync, randomUUID } from 'node:crypto'
import { performance } from 'node:perf_hooks'

export interface Host {
  /** Milliseconds since 1970. */
  now(): number
  setTimeout(fn: () => void, ms: number): HostTimer
  /** Milliseconds since some moment; they never go back. For durations and limits. */
  elapsedMs(): number
  /** Calls back in a later turn of the event loop, after timers and sockets had theirs. */
  inNextTurn(fn: () => void): void
  /** From 0 up to, but not including, 1. */
  chance(): number
  /** A UUID that cannot be guessed. */
  randomId(): string
  /** Fills the whole block with random bytes. */
  fillRandom(block: Uint8Array): unknown
  readonly processId: number
  /** Each call of the function gives the share of the time since the call before in which the thread was busy, from 0 to 1. */
  watchLoad(): () => number
}

/** A timer that has begun. Both may be called at any time and more than once. */
export interface HostTimer {
  cancel(): void
  /** Lets the process end while the timer waits. */
  unref(): void
}

const node: Host = {
  now: () => Date.now(),
  setTimeout: startTimer,
  elapsedMs: () => performance.now(),
  inNextTurn: fn => void setImmediate(fn),
  chance: () => Math.random(),
  randomId: randomUUID,
  fillRandom: randomFillSync,
  processId: process.pid,
  watchLoad,
}

let host = node

export function hostNow(): number {
  return host.now()
}

export function startHostTimer(fn: () => void, ms: number): HostTimer {
  return host.setTimeout(fn, ms)
}

export function elapsedMs(): number {
  return host.elapsedMs()
}

export function inNextTurn(fn: () => void): void {
  host.inNextTurn(fn)
}

export function nextTurn(): Promise<void> {
  return new Promise(resolve => host.inNextTurn(resolve))
}

export function processId(): number {
  return host.processId
}

export function watchHostLoad(): () => number {
  return host.watchLoad()
}

export function chance(): number {
  return host.chance()
}

export function randomId(): string {
  return host.randomId()
}

export function fillRandom(block: Uint8Array): unknown {
  return host.fillRandom(block)
}

/** Replaces the host for this process, until the function returned is called: for simulations alone. */
export function replaceHost(given: Host): () => void {
  host = given
  return () => {
    host = node
  }
}

/** Node fires a longer timer at once, so a longer wait is made of several timers. */
const maxTimerMs = 2 ** 31 - 1

function startTimer(fn: () => void, ms: number): HostTimer {
  let isHeld = true
  let handle: NodeJS.Timeout
  const wait = (left: number): void => {
    handle = left > maxTimerMs ? setTimeout(wait, maxTimerMs, left - maxTimerMs) : setTimeout(fn, left)
    if (!isHeld) handle.unref()
  }
  wait(ms)
  return {
    cancel: () => clearTimeout(handle),
    unref: () => {
      isHeld = false
      handle.unref()
    },
  }
}

function watchLoad(): () => number {
  let before = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return utilization
  }
}
