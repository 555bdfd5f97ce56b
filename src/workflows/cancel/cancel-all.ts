/**
 * Cancels all workflows that match, one after the other, each in a transaction of its own: a workflow that begins
 * meanwhile is left out, and after an interruption the next call finds those that are left.
 */
import { optionNames, refuseUnknownOptions } from '../../core/options.ts'
import type { Log } from '../../events/log.ts'
import { refusal } from '../handler.ts'
import type { WorkflowHints } from '../hints.ts'
import { type ListWorkflowsOptions, listWorkflows } from '../insight/list.ts'
import type { WorkflowState } from '../status.ts'
import { type CancelOptions, cancelWorkflow } from './cancel.ts'

/** At least one condition. Workflows that are over are never among them. */
export type CancelAllFilter = Omit<ListWorkflowsOptions, 'after' | 'limit'>

export interface CancelAllOptions extends CancelOptions {
  /** Stops between two workflows. Those that are cancelled stay so. */
  signal?: AbortSignal | undefined
  /** Called after each workflow with how many are cancelled so far. */
  onProgress?: ((cancelled: number) => void) | undefined
}

const filterNames = optionNames<CancelAllFilter>({
  ...{ state: true, hasDeadLetters: true, isRetrying: true, startedAfter: true, startedBefore: true, parent: true },
  attributes: true,
})
const what = 'The cancellation of workflows'

/** Those that something can still happen in. */
const cancellable: readonly WorkflowState[] = ['running', 'waiting', 'parked', 'failed']
const pageSize = 100

export async function cancelAll(
  log: Log,
  hints: WorkflowHints,
  filter: CancelAllFilter,
  { signal, onProgress, ...options }: CancelAllOptions,
): Promise<{ cancelled: number }> {
  refuseUnknownOptions('store.workflows.cancelAll', filter, filterNames)
  refuseUnknownOptions('store.workflows.cancelAll', options, ['reason', 'compensate'])
  if (Object.values(filter).every(condition => condition === undefined))
    throw refusal(what, 'filter', `needs a condition: without one it would be for all. Give a state, such as 'failed'.`)
  const given = filter.state === undefined ? cancellable : [filter.state].flat()
  const over = given.find(state => !cancellable.includes(state))
  if (over !== undefined)
    throw refusal(what, 'state', `takes workflows that are ${cancellable.join(', ')}. One that is ${over} is over.`)
  let cancelled = 0
  let after: string | undefined
  do {
    const page = await listWorkflows(log, { ...filter, state: given, after, limit: pageSize })
    for (const { correlationId } of page.items) {
      signal?.throwIfAborted()
      const { state } = await cancelWorkflow(log, hints, correlationId, options)
      if (!cancellable.includes(state)) cancelled++
      onProgress?.(cancelled)
    }
    after = page.next
  } while (after !== undefined)
  return { cancelled }
}
