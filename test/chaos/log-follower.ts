/** A follower of the log that records the positions it gets, and its failure. */
import type { Store } from '../../src/store.ts'
import { waitUntil } from '../support/wait.ts'

export interface LogFollower {
  readonly positions: number[]
  /** Rejects when it fails. */
  readonly failed: Promise<void>
  reached(position: number, deadlineMs?: number): Promise<void>
  stop(): Promise<void>
}

export function followLog(store: Store, after: number | 'start' = 'start'): LogFollower {
  const stop = new AbortController()
  const positions: number[] = []
  let failure: unknown
  const following = (async () => {
    try {
      for await (const { position } of store.events.tail({ from: after, signal: stop.signal })) positions.push(position)
    } catch (error) {
      if (stop.signal.aborted) return
      failure = error
      throw error
    }
  })()
  following.catch(() => {})
  return {
    failed: following,
    positions,
    async reached(position, deadlineMs) {
      const isThere = (): boolean => failure !== undefined || (positions.at(-1) ?? 0) >= position
      await waitUntil(isThere, { what: `${position} followed`, ...(deadlineMs === undefined ? {} : { deadlineMs }) })
      if (failure !== undefined) throw failure
    },
    async stop() {
      stop.abort()
      await following
    },
  }
}
