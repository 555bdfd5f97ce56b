/**
 * Turns on streams, in one process: commands on one stream are decided one after the other, so that they do not overtake
 * each other and decide again. Between processes the version of the stream decides, as ever: a turn only saves work.
 *
 *     handle ─► the turn of its first stream: waits ─► further streams: taken if free ─► load, decide, save ─► given back
 *                                                                     └── after a conflict: all of them, sorted, first
 *
 * A command that has a turn never waits for another one, and one that decides again takes its turns in one order. So
 * commands do not wait for each other in a circle. A wait is limited: a command that takes long delays others, and does not
 * stop them. Inside a command, a command of the same process takes no turns.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { sleep } from '../core/abort.ts'
import { type Clock, systemClock } from '../core/clock.ts'

export interface Turns {
  /** Runs one try of a command. `streams` are those it is known to need. */
  run<T>(streams: readonly string[], signal: AbortSignal | undefined, work: (held: HeldTurns) => Promise<T>): Promise<T>
}

/** The turns of one try. */
export interface HeldTurns {
  /** The streams that it asked for. */
  readonly streams: readonly string[]
  /** Called before a stream is loaded. */
  ask(stream: string): Promise<void>
}

/** The longest wait for a turn. */
const maxWaitMs = 5_000

export function openTurns(clock: Clock = systemClock): Turns {
  /** The last turn of each stream: it resolves when that is given back. */
  const last = new Map<string, Promise<void>>()
  const inside = new AsyncLocalStorage<true>()
  let running = 0

  /** Waits for the turns before, and returns how to give this one back. */
  const take = async (stream: string, signal: AbortSignal | undefined): Promise<() => void> => {
    const before = last.get(stream)
    let giveBack = (): void => {}
    const own = new Promise<void>(resolve => {
      giveBack = resolve
    })
    const turn = before === undefined ? own : Promise.all([before, own]).then(() => {})
    last.set(stream, turn)
    const release = (): void => {
      giveBack()
      if (last.get(stream) === turn) last.delete(stream)
    }
    if (before === undefined) return release
    const over = new AbortController()
    try {
      await Promise.race([
        before,
        sleep(maxWaitMs, { clock, signal: AbortSignal.any([over.signal, ...(signal === undefined ? [] : [signal])]) }),
      ])
      return release
    } catch (error) {
      release()
      throw error
    } finally {
      over.abort()
    }
  }

  return {
    async run(known, signal, work) {
      if (inside.getStore() === true) return work({ streams: [], ask: async () => {} })
      const held = new Map<string, () => void>()
      const asked = new Set<string>()
      const hold = async (stream: string): Promise<void> => {
        held.set(stream, await take(stream, signal))
      }
      running++
      try {
        for (const stream of [...known].sort()) await hold(stream)
        return await inside.run(true, () =>
          work({
            get streams() {
              return [...asked]
            },
            async ask(stream) {
              asked.add(stream)
              if (held.has(stream)) return
              if (held.size === 0 || !last.has(stream)) await hold(stream)
            },
          }),
        )
      } finally {
        for (const release of held.values()) release()
        // Following contexts makes every promise of the process slower, so it is done only while a command runs.
        if (--running === 0) inside.disable()
      }
    },
  }
}
