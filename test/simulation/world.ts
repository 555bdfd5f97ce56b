/**
 * A world that one seed decides: several processes on one embedded engine, with a scheduler instead of an event loop.
 *
 *     every statement, answer, hint, timer and pause is a point ──► the seed picks the next one ──► all code runs until
 *            ▲                                                             it waits for points again ──┐
 *            └── nothing is ready: the time moves to the next timer ◄──────────────────────────────────┘
 *
 * The engine has one connection, so transactions interleave and statements inside of them do not. A process that crashes
 * is never answered again, and its transaction is rolled back. The same seed gives the same trace, byte by byte.
 */
import { AsyncResource } from 'node:async_hooks'
import { createHash } from 'node:crypto'
import { replaceHost } from '../../src/core/host.ts'
import type { Database } from '../../src/database/database.ts'
import { seeded } from '../chaos/seeded-random.ts'
import { onConnection } from './process-database.ts'

/** A thing that goes wrong, at the step with this number. */
export interface Fault {
  readonly step: number
  readonly kind: 'crash' | 'freeze' | 'refuse' | 'lose' | 'delay' | 'repeatHint' | 'dropHint'
  /** How long until the process is back, thaws, or gets the answer. */
  readonly ms: number
}

/** One place where code waits for the scheduler. */
export interface Point {
  readonly process: SimulatedProcess | undefined
  readonly what: string
  /** What is sent, for the trace. */
  readonly about?: unknown
  /** Set for a statement: the transaction that it belongs to, or `null` for one of its own. */
  readonly tx?: object | null | undefined
  /** Not before this time. */
  readonly notBefore?: number | undefined
  act(fault: Fault['kind'] | undefined): Promise<void> | void
}

export interface SimulatedProcess {
  readonly name: string
  readonly database: Database
  isAlive: boolean
  frozenUntil: number
  /** Called with the hints of other processes. */
  readonly listeners: Set<(channel: string, payload: string) => void>
  /** Ends the open transaction of the process, as a server does when the connection is gone. */
  loseTransaction: ((error: Error) => void) | undefined
}

export interface World extends Disposable {
  readonly trace: readonly string[]
  readonly engine: Database
  readonly random: () => number
  now(): number
  add(point: Point): void
  /** Runs `work` of the engine: the scheduler waits for its end. */
  busy<T>(work: () => Promise<T>): Promise<T>
  /** The transaction that has the connection. */
  holder: object | undefined
  /** Starts a process; `onCrash` is called when it has crashed, with the time until it shall be back. */
  spawn(name: string, onCrash: (backInMs: number) => void): SimulatedProcess
  /** Waits in virtual time; for ever, if the process has crashed by then. */
  pause(process: SimulatedProcess, ms: number): Promise<void>
  after(ms: number, what: string, fn: () => void): void
  /** Sends a hint to all other processes. */
  hint(from: SimulatedProcess, channel: string, payload: string): void
  /** Runs until `isOver`, which is asked whenever the time is about to move. Returns why it ended. */
  run(isOver: () => Promise<boolean>): Promise<'over' | 'out of time' | 'out of steps' | 'nothing to do'>
}

export interface WorldOptions {
  readonly seed: number
  readonly faults: readonly Fault[]
  readonly maxSteps: number
  readonly maxMs: number
}

/** The time at which every world begins. */
const beganAt = Date.parse('2030-01-01T00:00:00.000Z')

export function openWorld(engine: Database, { seed, faults, maxSteps, maxMs }: WorldOptions): World {
  const random = seeded(seed)
  const trace: string[] = []
  const points: Point[] = []
  const timers: { at: number; n: number; fn: () => void }[] = []
  const turns: (() => void)[] = []
  const processes: { process: SimulatedProcess; onCrash: (backInMs: number) => void }[] = []
  const faultAt = new Map(faults.map(fault => [fault.step, fault]))
  const connection = onConnection(engine)
  let elapsed = 0
  let timerCount = 0
  let working = 0
  let step = 0

  const restore = replaceHost({
    now: () => beganAt + elapsed,
    elapsedMs: () => elapsed,
    setTimeout(fn, ms) {
      const timer = { at: elapsed + Math.max(0, Math.ceil(ms)), n: timerCount++, fn: AsyncResource.bind(fn) }
      timers.push(timer)
      const cancel = (): void => {
        const at = timers.indexOf(timer)
        if (at >= 0) timers.splice(at, 1)
      }
      return { cancel, unref() {} }
    },
    inNextTurn: fn => void turns.push(AsyncResource.bind(fn)),
    chance: random,
    randomId: () => {
      const digits = Array.from({ length: 32 }, () => Math.floor(random() * 16).toString(16)).join('')
      return digits.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/, '$1-$2-4$3-8$4-$5')
    },
    fillRandom(block) {
      for (let at = 0; at < block.length; at++) block[at] = Math.floor(random() * 256)
    },
    processId: 1,
    watchLoad: () => () => 0,
  })

  const world: World = {
    trace,
    engine,
    random,
    holder: undefined,
    now: () => beganAt + elapsed,
    add: point => void points.push(point),
    async busy(work) {
      working++
      try {
        return await work()
      } finally {
        working--
      }
    },
    spawn(name, onCrash) {
      const process: SimulatedProcess = {
        name,
        database: connection.of(world, () => process),
        isAlive: true,
        frozenUntil: 0,
        listeners: new Set(),
        loseTransaction: undefined,
      }
      processes.push({ process, onCrash })
      return process
    },
    pause: (process, ms) =>
      new Promise(resolve =>
        world.after(ms, `${process.name} goes on`, () => {
          if (process.isAlive) resolve()
        }),
      ),
    after(ms, what, fn) {
      points.push({ process: undefined, what, notBefore: elapsed + Math.ceil(ms), act: AsyncResource.bind(fn) })
    },
    hint(from, channel, payload) {
      for (const { process } of processes) {
        if (process === from || !process.isAlive || process.listeners.size === 0) continue
        const act = (fault: Fault['kind'] | undefined): void => {
          if (fault === 'dropHint') return
          for (const listener of [...process.listeners]) listener(channel, payload)
          if (fault === 'repeatHint') points.push({ process, what: 'hint again', act })
        }
        points.push({ process, what: 'hint', act })
      }
    },
    async run(isOver) {
      for (;;) {
        await quiet()
        const ready = points.filter(isReady)
        if (ready.length === 0) {
          if (world.holder === undefined && (await isOver())) return 'over'
          const next = nextTime()
          if (next === undefined) return 'nothing to do'
          if (next > maxMs) return 'out of time'
          elapsed = Math.max(elapsed, next)
          fireTimers()
          continue
        }
        if (++step > maxSteps) return 'out of steps'
        const point = ready[Math.floor(random() * ready.length)]!
        await take(point)
      }
    },
    [Symbol.dispose]() {
      for (const { process } of processes) process.isAlive = false
      restore()
    },
  }
  return world

  /** Lets all code run until it waits for points. */
  async function quiet(): Promise<void> {
    for (;;) {
      await new Promise(setImmediate)
      if (working > 0) continue
      if (turns.length === 0) return
      for (const fn of turns.splice(0)) fn()
    }
  }

  function isReady({ process, tx, notBefore = 0 }: Point, at: number): boolean {
    if (notBefore > elapsed || (process !== undefined && process.frozenUntil > elapsed)) return false
    if (tx === undefined) return true
    if (world.holder === undefined) return tx === null
    // Statements of one transaction keep their order.
    return tx === world.holder && points.findIndex(each => each.tx === tx) === at
  }

  function nextTime(): number | undefined {
    const frozen = processes.flatMap(({ process }) => (process.isAlive ? [process.frozenUntil] : []))
    const times = [...timers.map(({ at }) => at), ...points.map(({ notBefore = 0 }) => notBefore), ...frozen]
    const later = times.filter(at => at > elapsed)
    if (timers.some(({ at }) => at <= elapsed)) return elapsed
    return later.length === 0 ? undefined : Math.min(...later)
  }

  function fireTimers(): void {
    const due = timers.filter(({ at }) => at <= elapsed).sort((a, b) => a.at - b.at || a.n - b.n)
    for (const timer of due) {
      const at = timers.indexOf(timer)
      // Cancelled by one that fired before it.
      if (at < 0) continue
      timers.splice(at, 1)
      timer.fn()
    }
  }

  async function take(point: Point): Promise<void> {
    const fault = faultAt.get(step)
    const kind = fault === undefined ? undefined : harm(fault, point)
    const about = point.about === undefined ? '' : ` ${digest(point.about)}`
    trace.push(
      `${step} ${elapsed} ${point.process?.name ?? '-'} ${point.what}${about}${kind === undefined ? '' : ` (${kind})`}`,
    )
    if (kind === 'crash' || kind === 'freeze' || kind === 'delay') return
    points.splice(points.indexOf(point), 1)
    if (point.tx !== undefined) await world.busy(() => connection.setClock(world))
    await world.busy(async () => point.act(kind))
  }

  /** Crashes and freezes its process, or delays the point; any other fault is for the point itself. */
  function harm({ kind, ms }: Fault, point: Point): Fault['kind'] | undefined {
    const { process } = point
    if (process === undefined || !process.isAlive) return undefined
    if (kind === 'crash') crash(process, ms)
    else if (kind === 'freeze') freeze(process, ms)
    else if (kind === 'delay') {
      // The transaction would have the only connection meanwhile; a server ends one that is idle for so long.
      if (point.tx === world.holder && world.holder !== undefined) return undefined
      points.splice(points.indexOf(point), 1, { ...point, notBefore: elapsed + ms })
    }
    return kind
  }

  function crash(process: SimulatedProcess, backInMs: number): void {
    process.isAlive = false
    for (const point of points.filter(each => each.process === process)) points.splice(points.indexOf(point), 1)
    process.listeners.clear()
    process.loseTransaction?.(new Error('The process has crashed.'))
    processes.find(each => each.process === process)!.onCrash(backInMs)
  }

  function freeze(process: SimulatedProcess, ms: number): void {
    process.frozenUntil = elapsed + ms
    process.loseTransaction?.(connection.lost())
  }
}

/** Without the stacks of errors: their frames depend on what the engine has compiled and inlined by then. */
function digest(value: unknown): string {
  const withoutStacks = (_: string, each: unknown): unknown =>
    typeof each === 'string' ? each.replaceAll(/"stack":"(?:[^"\\]|\\.)*"/g, '"stack":""') : each
  return createHash('sha256').update(JSON.stringify(value, withoutStacks)).digest('hex').slice(0, 8)
}
