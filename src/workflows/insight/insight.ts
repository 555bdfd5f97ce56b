/**
 * What can be seen of workflows, and done to their handlers, by whoever operates them.
 *
 *     activity ─► watch, attempts, tree ─► mermaid        counters ─► stats        rows ─► list, failed, handlers, workers
 *
 * Everything here looks at a bounded number of rows: pages by keyset, totals from counters, open executions counted up to a
 * limit. Watching follows the activity as the log is followed: each line once and in order, from any point on.
 */
import { StoreClosed } from '../../core/errors.ts'
import type { Log } from '../../events/log.ts'
import { watchHead } from '../../events/order/watch.ts'
import type { WorkflowHints } from '../hints.ts'
import type { SettledWatch } from '../settled.ts'
import { type Activity, settleActivity } from './activity.ts'
import { pauseHandler, resumeHandler, retireHandler } from './administer.ts'
import { type AttemptPage, type AttemptsOptions, listAttempts } from './attempts.ts'
import { type FailedOptions, type FailedWorkflow, listFailed } from './failed.ts'
import { type HandlerDescription, listHandlers } from './handlers.ts'
import { type ListWorkflowsOptions, listWorkflows, type WorkflowPage } from './list.ts'
import { mermaidOf } from './mermaid.ts'
import { readStats, type WorkflowStats } from './stats.ts'
import { readTree, type TreeOptions, type WorkflowTree } from './tree.ts'
import { type WatchFlowOptions, type WatchFlowsOptions, watchActivity } from './watch.ts'
import { listWorkers, type WorkerDescription } from './workers.ts'

/** Of all workflows. */
export interface Insight {
  /** What happens to executions, each once and in order, as it comes; goes on behind a `position` seen before. */
  watch(options?: WatchFlowsOptions): AsyncIterable<Activity>
  /** A page of workflows with their status, newest first. */
  list(options?: ListWorkflowsOptions): Promise<WorkflowPage>
  /** A page of attempts that came to an end, newest first. */
  attempts(options?: AttemptsOptions): Promise<AttemptPage>
  /** How many there are of what, from counters. */
  stats(): Promise<WorkflowStats>
  /** A page of workflows with open dead letters. */
  failed(options?: FailedOptions): Promise<FailedWorkflow[]>
  /** The workers that are alive, in all processes. */
  workers(): Promise<WorkerDescription[]>
  /** Every version of each handler, what it still has to do, and how many workers can do it. */
  handlers(): Promise<HandlerDescription[]>
  /** In all versions and processes: nothing of it is begun any more; its events queue. */
  pauseHandler(handler: string): Promise<void>
  /** Goes on with what has queued. One that was retired is given events again, from now on. */
  resumeHandler(handler: string): Promise<void>
  /** Gives it, or one version of it, no more events. What is open is still run. It comes back when it is resumed. */
  retireHandler(handler: string, options?: { version?: number | undefined }): Promise<void>
  /** A tree as the text of a Mermaid flowchart. */
  mermaid(tree: WorkflowTree): string
}

/** Of one workflow. */
export interface FlowInsight {
  /** What happens to its executions, from the beginning, each once and in order, until it is left. */
  watch(options?: WatchFlowOptions): AsyncIterable<Activity>
  /** Its events, the handlers they ran, the events these emitted, and so on. */
  tree(options?: TreeOptions): Promise<WorkflowTree>
  /** Its tree as the text of a Mermaid flowchart. */
  mermaid(options?: TreeOptions): Promise<string>
}

export interface InsightParts {
  readonly log: Log
  readonly hints: WorkflowHints
  readonly settledWatch: SettledWatch
  /** How often who watches looks without a hint. */
  readonly pollMs: number
}

export interface OpenInsight {
  readonly all: Insight
  of(correlationId: string): FlowInsight
  close(): void
}

export function openInsight({ log, hints, settledWatch, pollMs }: InsightParts): OpenInsight {
  const watched = { settle: () => settleActivity(log), listen: (listener: () => void) => listen(hints, listener) }
  const activityWatch = watchHead(log, watched, pollMs)
  const watchParts = { log, activityWatch, settledWatch }
  return {
    all: {
      watch: (options = {}) => watchActivity(watchParts, options, 'now'),
      list: async (options = {}) => listWorkflows(log, options),
      attempts: async (options = {}) => listAttempts(log, options),
      stats: () => readStats(log),
      failed: async (options = {}) => listFailed(log, options),
      workers: () => listWorkers(log),
      handlers: () => listHandlers(log),
      pauseHandler: handler => pauseHandler(log, handler),
      async resumeHandler(handler) {
        await resumeHandler(log, handler)
        hints.ready()
      },
      retireHandler: (handler, { version } = {}) => retireHandler(log, handler, version),
      mermaid: mermaidOf,
    },
    of: correlationId => ({
      watch: (options = {}) => watchActivity(watchParts, { ...options, correlationId }, 'start'),
      tree: options => readTree(log, correlationId, options),
      mermaid: async options => mermaidOf(await readTree(log, correlationId, options)),
    }),
    close: () => activityWatch.close(new StoreClosed({})),
  }
}

/** Executions that are ready, begin or end write lines of activity. */
function listen(hints: WorkflowHints, listener: () => void): () => void {
  const releases = [hints.onReady(listener), hints.onBegun(listener), hints.onEnded(listener)]
  return () => {
    for (const release of releases) release()
  }
}
