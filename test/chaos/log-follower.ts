/** A follower of the log that records the events it gets, and its failure. */
import type { Store } from '../../src/store.ts'
import { waitUntil } from '../support/wait.ts'

export interface LogFollower {
  readonly ids: string[]
  readonly positions: number[]
  /** Rejects when it fails. */
  readonly failed: Promise<void>
  reached(position: number): Promise<void>
  stop(): Promise<void>
}

export function followLog(store: Store, after: number | 'start' = 'start'): LogFollower {
  const stop = new AbortController()
  const ids: string[] = []
  const positions: number[] = []
  let failure: unknown
  const following = (async () => {
    try {
      for await (const event of store.events.tail({ from: after, signal: stop.signal })) {
        ids.push(event.id)
        positions.push(event.position)
      }
    } catch (error) {
      if (stop.signal.aborted) return
      failure = error
      throw error
    }
  })()
  following.catch(() => {})
  return {
    failed: following,
    ids,
    positions,
    reached: position =>
      waitUntil(() => failure !== undefined || positions.includes(position), { what: `${position} followed` }).then(
        () => {
          if (failure !== undefined) throw failure
        },
      ),
    async stop() {
      stop.abort()
      await following
    },
  }
}
