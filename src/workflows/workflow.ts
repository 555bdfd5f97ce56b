/**
 * The handle of one workflow: all events of one correlation id, and the executions that follow from them. It holds no
 * state: every call reads or changes the stored rows, so a handle can be made at any time from the id alone.
 */
import type { Audit } from '../audit/audit.ts'
import { checkName } from '../core/name.ts'
import { type WaitOptions, waitWithin } from '../core/wait.ts'
import type { AppendParts } from '../events/append/append.ts'
import type { EventMap, RecordedEvent, UntypedEvents } from '../events/definition.ts'
import { tailLog } from '../events/order/tail.ts'
import type { LogWatch } from '../events/order/watch.ts'
import { type CancelOptions, cancelWorkflow } from './cancel/cancel.ts'
import type { WorkflowHints } from './hints.ts'
import type { OpenInsight, WorkflowInsight } from './insight/insight.ts'
import { type PublishOptions, publish } from './publish.ts'
import { type SettledWatch, whatIsMissing } from './settled.ts'
import { readStatuses, type WorkflowStatus } from './status.ts'

/** The handle of one workflow: all that follows from its first event. */
export interface Workflow<M extends EventMap = UntypedEvents> extends WorkflowInsight {
  readonly correlationId: string
  status(): Promise<WorkflowStatus>
  /** Resolves when nothing more happens in it by itself, also if something of it has failed. */
  waitUntilSettled(options?: WaitOptions): Promise<WorkflowStatus>
  /** The first event of this type in it, also an earlier one. */
  waitForEvent<T extends keyof M & string>(type: T, options?: WaitOptions): Promise<RecordedEvent<Pick<M, T>>>
  /** Publishes an event into it, for handlers that wait for one. */
  signal<T extends keyof M & string>(
    type: T,
    data: M[T],
    options?: Omit<PublishOptions, 'correlationId'>,
  ): Promise<Workflow<M>>
  /**
   * Ends it, and the workflows that it has started: nothing more of it runs; the signal of attempts that run aborts, and their
   * outcomes are refused. A workflow that is over stays as it is. With `compensate`, the undos of its steps run. Returns
   * its status.
   */
  cancel(options?: CancelOptions): Promise<WorkflowStatus>
}

export interface WorkflowHandleParts extends AppendParts {
  readonly watch: LogWatch
  readonly hints: WorkflowHints
  readonly insight: OpenInsight
  readonly settledWatch: SettledWatch
  readonly audit: Audit
}

/** `position`: that of its newest event, if the caller knows it. */
export function openWorkflow(parts: WorkflowHandleParts, correlationId: string, position?: number): Workflow {
  const { log, hints, insight, settledWatch, audit } = parts
  checkName('Correlation id', correlationId)
  const workflow: Workflow = {
    ...insight.of(correlationId),
    correlationId,
    status: async () => (await readStatuses(log, [correlationId]))[0]!,
    waitUntilSettled: options => settledWatch.waitUntilSettled(correlationId, options, position),
    waitForEvent: (type, options) => waitForEvent(parts, correlationId, type, options) as Promise<never>,
    async signal(type, data, options = {}) {
      await publish(parts, type, data, { ...options, correlationId })
      return workflow
    },
    cancel: (options = {}) =>
      audit.record({ action: 'workflows.cancel', target: correlationId, parameters: { ...options } }, () =>
        cancelWorkflow(log, hints, correlationId, options),
      ),
  }
  return workflow
}

async function waitForEvent(
  { log, watch }: WorkflowHandleParts,
  correlationId: string,
  type: string,
  options: WaitOptions = {},
): Promise<RecordedEvent> {
  const what = `An event ${type} in workflow ${correlationId}`
  const missing = async (): Promise<string> =>
    (await whatIsMissing(log, correlationId)) ?? 'The workflow has settled without one.'
  return waitWithin(options, { call: 'waitForEvent', what, clock: log.clock, missing }, async signal => {
    const found = tailLog(log, watch, { from: 'start', correlationId, types: [type], signal })
    try {
      const { value } = await found.next()
      return value as RecordedEvent
    } finally {
      await found.return?.()
    }
  })
}
