/**
 * Recent states, each as the text a snapshot would have: nobody who changes a state in place can change what is kept.
 * A hint only: whoever takes one out still reads the stream from its version on, and finds there whether it holds.
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

/** The most bytes of one state. */
export const mostCached: number = 64 * 1024
