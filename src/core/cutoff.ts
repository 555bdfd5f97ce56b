/**
 * Something that can be cut short: an `AbortController` that is made only when somebody asks for its signal. Most runs of
 * handlers are over before anybody does, and a controller with its signal and listeners costs more than the rest of a short run.
 */
export class Cutoff {
  isCut = false
  reason: unknown
  #hearers: (() => void)[] | undefined
  #controller: AbortController | undefined

  /** The first reason counts. */
  cut(reason: unknown): void {
    if (this.isCut) return
    this.isCut = true
    this.reason = reason
    this.#controller?.abort(reason)
    for (const hear of this.#hearers ?? []) hear()
  }

  /** Calls back when it is cut, or now if it is. */
  onCut(hear: () => void): void {
    this.#hearers ??= []
    this.#hearers.push(hear)
    if (this.isCut) hear()
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (this.isCut) this.#controller.abort(this.reason)
    return this.#controller.signal
  }
}
