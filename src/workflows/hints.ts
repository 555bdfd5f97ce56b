/**
 * The hints of workflows, on the channel of the log: executions have changed, so that workers, and callers that wait,
 * look at once instead of with their next poll. A hint says that there may be a change, never which one.
 */
import type { Wake } from '../events/order/wake.ts'

export interface WorkflowHints {
  /** Events were appended. */
  appended(): void
  /** Executions are ready to be claimed. */
  ready(): void
  onReady(listener: () => void): () => void
  /** Executions have begun where they were dispatched, so nothing is left to be claimed. */
  begun(): void
  onBegun(listener: () => void): () => void
  /** Executions have ended, or left their workflow in another state. */
  ended(): void
  onEnded(listener: () => void): () => void
  /** Something was paused, resumed, cancelled, scheduled or asked for: every worker looks for due work. */
  changed(): void
  onChanged(listener: () => void): () => void
}

/** The names of the hints on the channel. */
const [ready, begun, ended] = ['work', 'begins', 'ends'] as const

export function workflowHints(wake: Wake): WorkflowHints {
  return {
    appended: () => wake.appended(),
    ready: () => wake.send(ready),
    onReady: listener => wake.on(ready, listener),
    begun: () => wake.send(begun),
    onBegun: listener => wake.on(begun, listener),
    ended: () => wake.send(ended),
    onEnded: listener => wake.on(ended, listener),
    changed: () => wake.changed(),
    onChanged: listener => wake.onChange(listener),
  }
}
