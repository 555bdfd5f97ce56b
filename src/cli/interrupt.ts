/**
 * Ctrl-C, the order to end, a terminal that is closed (SIGHUP), and Ctrl-Break on Windows (SIGBREAK): the first one asks
 * the command to end its running work, the second one ends the process immediately.
 *
 * A process that `rillflow dev` started takes its orders from that parent and ignores signals: a terminal sends Ctrl-C to both
 * processes, and it must not count twice. The parent also prints the message.
 */

export interface Interrupt {
  readonly signal: AbortSignal
  /** For a Ctrl-C that does not arrive as a signal of the process. */
  interrupt(): void
  /** Stops listening. */
  release(): void
}

/** The messages of a parent to its child. */
export type Order = 'end' | 'start again'

/** The environment variable that marks a process as a child of `rillflow dev`. */
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
  const interrupt = (): void => {
    if (!controller.signal.aborted) onFirst()
    abort('interrupted')
  }
  const release = hasParent() ? followParent(abort) : listenToSignals(interrupt)
  return { signal: controller.signal, interrupt, release }
}

/** Whether the command ends only because it is started again at once. */
export function isToStartAgain({ aborted, reason }: AbortSignal): boolean {
  return aborted && (reason as Error).message === ('start again' satisfies Order)
}

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP', ...(process.platform === 'win32' ? ['SIGBREAK' as const] : [])] as const

function listenToSignals(onSignal: () => void): () => void {
  for (const signal of signals) process.on(signal, onSignal)
  return () => {
    for (const signal of signals) process.off(signal, onSignal)
  }
}

function followParent(abort: (reason: Order) => void): () => void {
  const onOrder = (order: unknown): void => abort(order as Order)
  const onDisconnect = (): void => abort('end')
  const stopIgnoringSignals = listenToSignals(() => {})
  process.on('message', onOrder)
  process.on('disconnect', onDisconnect)
  // The parent may have ended before the listener was there.
  if (!process.connected) onDisconnect()
  return () => {
    stopIgnoringSignals()
    process.off('message', onOrder)
    process.off('disconnect', onDisconnect)
  }
}
