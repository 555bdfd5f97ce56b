/** One workflow: all events of one correlation id, and what handlers do because of them. */
import type { EventMap, RecordedEvent } from '../events/definition.ts'
import type { CancelOptions } from './cancel/cancel.ts'
import type { FlowInsight } from './insight/insight.ts'
import type { PublishOptions } from './publish.ts'
import type { SettledOptions } from './settled.ts'
import type { WorkflowStatus } from './status.ts'

export interface Flow<M extends EventMap> extends FlowInsight {
  readonly correlationId: string
  status(): Promise<WorkflowStatus>
  /** Resolves when nothing more will happen in it by itself: also if something of it has failed. */
  settled(options?: SettledOptions): Promise<WorkflowStatus>
  /** Publishes an event into it, for whoever waits for one. */
  signal<T extends keyof M & string>(
    type: T,
    data: M[T],
    options?: Omit<PublishOptions, 'correlationId'>,
  ): Promise<Flow<M>>
  /** The first event of this type in it, also one that is there already. */
  waitFor<T extends keyof M & string>(type: T, options?: SettledOptions): Promise<RecordedEvent<Pick<M, T>>>
  /**
   * Ends it, with all that it has started: nothing more of it is run, and what runs is told by its signal and counts no
   * more. One that is over is left as it is. With `compensate`, the undos of its steps are run. Returns where it stands.
   */
  cancel(reason?: string, options?: Omit<CancelOptions, 'reason'>): Promise<WorkflowStatus>
  cancel(options: CancelOptions): Promise<WorkflowStatus>
}
