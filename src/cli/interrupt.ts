/**
 * Ctrl-C: the first one asks the command to end what is under way, the second ends the process on the spot.
 *
 * Where `dev` has started this process, that one says when to end: a terminal sends Ctrl-C to both, and it must not count
 * twice. It has told the user, too.
 */

export interface Interrupt {
  readonly signal: AbortSignal
  /** One that did not come as a signal of the process. */
  hear(): void
  release(): void
}

/** What a parent says. */
export type Order = 'end' | 'start again'

/** In the environment of a process that has a parent to say so. */
export const parentMark = 'RILLFLOW_DEV_PARENT'

export function hasParent(): boolean {
  return process.send !== undefined && process.env[parentMark] !== undefined
}

export function listenToInterrupts(onFirst: () => void): Interrupt {
  const controller = new AbortController()
  const abort = (reason: string): void => {
    if (controller.signal.aborted) process.exit(130)
    controller.abort(new Error(reason))
  }
  const hear = (): void => {
    if (!controller.signal.aborted) onFirst()
    abort('interrupted')
  }
  const release = hasParent() ? obeyParent(abort) : listenToSignals(hear)
  return { signal: controller.signal, hear, release }
}

/** Whether the command is ended only to begin anew, at once. */
export function isToStartAgain({ aborted, reason }: AbortSignal): boolean {
  return aborted && (reason as Error).message === ('start again' satisfies Order)
}

function listenToSignals(hear: () => void): () => void {
  process.on('SIGINT', hear)
  process.on('SIGTERM', hear)
  return () => {
    process.off('SIGINT', hear)
    process.off('SIGTERM', hear)
  }
}

function obeyParent(abort: (reason: Order) => void): () => void {
  const onOrder = (order: unknown): void => abort(order as Order)
  const onGone = (): void => abort('end')
  const stopIgnoring = listenToSignals(() => {})
  process.on('message', onOrder)
  process.on('disconnect', onGone)
  // Gone before anybody listened.
  if (!process.connected) onGone()
  return () => {
    stopIgnoring()
    process.off('message', onOrder)
    process.off('disconnect', onGone)
  }
}
