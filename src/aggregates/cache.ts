/**
 * Recent states in memory, the least recently used of which is dropped first. Each is the text that a snapshot would
 * have, so that code which changes a state in place changes nothing here. A hint only: the loader reads the stream from
 * the version of the state on, and finds out whether it is still valid.
 */
export interface CachedState {
  readonly version: number
  /** The event of that version. */
  readonly eventId: string
  readonly text: string
}

export class StateCache {
  readonly #size: number
  /** The least recently used first. */
  readonly #states = new Map<string, CachedState>()

  constructor(size: number) {
    this.#size = size
  }

  get(stream: string): CachedState | undefined {
    const found = this.#states.get(stream)
    if (found === undefined) return undefined
    this.#states.delete(stream)
    this.#states.set(stream, found)
    return found
  }

  put(stream: string, state: CachedState): void {
    const known = this.#states.get(stream)
    if (this.#size === 0 || (known?.version ?? 0) > state.version) return
    this.#states.delete(stream)
    this.#states.set(stream, state)
    if (this.#states.size > this.#size) this.#states.delete(this.#states.keys().next().value!)
  }

  drop(stream: string): void {
    this.#states.delete(stream)
  }
}

/** The limit of one state. */
export const maxCachedBytes: number = 64 * 1024
