/**
 * Whose code is at work in this process. An attempt that is over may leave code behind that has not come to its end: it did
 * not listen to its signal, or not yet. A workflow that is to be undone waits for that, too.
 */
import type { Stopping } from '../cancel/compensate.ts'

export interface AtWork {
  /** Runs an attempt; `leave` is told what code of it goes on when it is not waited for any longer. */
  run<T>(execution: string, attempt: (leave: (code: Promise<unknown>) => void) => Promise<T>): Promise<T>
  /** Those of which nothing is at work any more. When that comes true of one of the others, it is told. */
  over(stopping: readonly Stopping[]): Stopping[]
}

export function attemptsAtWork(onOver: () => void): AtWork {
  const counts = new Map<string, number>()
  const awaited = new Set<string>()

  const begin = (id: string): void => void counts.set(id, (counts.get(id) ?? 0) + 1)
  const end = (id: string): void => {
    const left = counts.get(id)! - 1
    if (left > 0) counts.set(id, left)
    else {
      counts.delete(id)
      if (awaited.delete(id)) onOver()
    }
  }

  return {
    async run(id, attempt) {
      begin(id)
      try {
        return await attempt(code => {
          begin(id)
          const ended = (): void => end(id)
          code.then(ended, ended)
        })
      } finally {
        end(id)
      }
    },
    over: stopping =>
      stopping.filter(({ id }) => {
        const isOver = !counts.has(id)
        if (!isOver) awaited.add(id)
        return isOver
      }),
  }
}
