/**
 * Workflows for operators: their activity, their status and their numbers.
 *
 *     activity ─► watch, attempts, tree ─► mermaid        counters ─► stats        rows ─► list, handlers, executions
 *
 * Everything here reads a bounded number of rows: pages by keyset, totals from counters, open executions counted up to a
 * limit. Watching follows the activity as the log is followed: each line once and in order, from any point on.
 *
 * Here: the calls of a store, about all workflows and about one; and the workers that run.
 */
import { isAlive } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { StoreClosed } from '../../core/errors.ts'
import { checkWhole, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { watchHead } from '../../events/order/watch.ts'
import type { WorkflowHints } from '../hints.ts'
import { workflowNames } from '../schema.ts'
import type { SettledWatch } from '../settled.ts'
import type { WorkflowStatus } from '../status.ts'
import {
  type Activity,
  type Attempt,
  type AttemptsOptions,
  listAttempts,
  readActivity,
  readActivityBefore,
  settleActivity,
} from './activity.ts'
import { type ListWorkflowsOptions, listWorkflows } from './list.ts'
import {
  type JoinDescription,
  type OpenWait,
  type RecordedStep,
  readJoins,
  readSteps,
  readUndos,
  readWaits,
  type UndoDescription,
} from './open-work.ts'
import { readStats, type WorkflowStats } from './stats.ts'
import { mermaidOf, readTree, type TreeOptions, type WorkflowTree } from './tree.ts'
import { type WatchWorkflowOptions, type WatchWorkflowsOptions, watchActivity } from './watch.ts'

/** Of all workflows. */
export interface Insight {
  /** The activity of all executions, each line once and in order, as it comes. */
  watch(options?: WatchWorkflowsOptions): AsyncIterable<Activity>
  /** Workflows with their status, the newest first: 50 in a page by default, at most 1000. */
  list(options?: ListWorkflowsOptions): Promise<Page<WorkflowStatus>>
  /** Attempts that have ended, the newest first: 100 in a page by default, at most 1000. */
  attempts(options?: AttemptsOptions): Promise<Page<Attempt>>
  /** The lines before a position, or before now, the newest first: 100 in a page by default, at most 1000. */
  activity(options?: ActivityOptions): Promise<Page<Activity>>
  /** How many workflows, executions and dead letters there are, from counters. */
  stats(): Promise<WorkflowStats>
  /** The workers that run, in all processes: those with names first, by name; then the others, by age. */
  workers(options?: PageOptions): Promise<Page<WorkerDescription>>
}

/** Of one workflow. */
export interface WorkflowInsight {
  /** The activity of its executions, from the beginning, each line once and in order, until the loop is left. */
  watch(options?: WatchWorkflowOptions): AsyncIterable<Activity>
  /** The same, a page at a time, the oldest line first; with `before` the newest first. 100 by default, at most 1000. */
  activity(options?: ActivityOptions): Promise<Page<Activity>>
  /** Its events, the handlers they ran, the events these emitted, and so on. */
  tree(options?: TreeOptions): Promise<WorkflowTree>
  /** Its tree as the text of a Mermaid flowchart. */
  mermaid(options?: TreeOptions): Promise<string>
  /** The steps, sleeps and waits of its executions that are open, or have open dead letters; at most 1000. */
  steps(): Promise<RecordedStep[]>
  /** The events and children that its open executions wait for. */
  waits(): Promise<OpenWait[]>
  /** Its open joins, with what has arrived. */
  joins(): Promise<JoinDescription[]>
  /** The undos that its steps have recorded, the oldest first. */
  undos(): Promise<UndoDescription[]>
}

export interface ActivityOptions extends PageOptions {
  /** Only lines before this position, or before now: the newest first, so that pages go into the past. */
  before?: number | 'now' | undefined
}

export interface InsightParts {
  readonly log: Log
  readonly hints: WorkflowHints
  readonly settledWatch: SettledWatch
  /** How often a watch looks without a hint. */
  readonly pollMs: number
}

export interface OpenInsight {
  readonly all: Insight
  of(correlationId: string): WorkflowInsight
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
      activity: async (options = {}) => pastActivity(log, undefined, { before: 'now', ...options }),
      stats: () => readStats(log),
      workers: async (options = {}) => listWorkers(log, options),
    },
    of: correlationId => ({
      watch: (options = {}) => watchActivity(watchParts, { ...options, correlationId }, 'start'),
      tree: options => readTree(log, correlationId, options),
      mermaid: async options => mermaidOf(await readTree(log, correlationId, options)),
      activity: (options = {}) => pageOfActivity(log, correlationId, options),
      steps: () => readSteps(log, correlationId),
      waits: () => readWaits(log, correlationId),
      joins: () => readJoins(log, correlationId),
      undos: () => readUndos(log, correlationId),
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

export interface WorkerDescription {
  /** A random id, a new one with each start. */
  readonly id: string
  readonly name: string | undefined
  readonly startedAt: Date
  /** The age of its last heartbeat. */
  readonly heartbeatAgeMs: number
  /** The most handlers it runs at once. */
  readonly concurrency: number
  readonly handlers: readonly { readonly handler: string; readonly version: number }[]
  /** Executions it runs, and those it holds behind them in their lanes. */
  readonly running: number
  readonly held: number
}

interface WorkerRow {
  id: string
  name: string | null
  started_at: Date
  started_text: string
  age_ms: number
  concurrency: number
  handlers: { handler: string; version: number }[] | null
  running: number
  held: number
}

export async function listWorkers(log: Log, options: PageOptions): Promise<Page<WorkerDescription>> {
  refuseUnknownOptions('store.workflows.workers', options, pageOptionNames)
  const { after, limit = 100 } = options
  checkWhole('limit', limit, 1, 10_000)
  const [hasNoName, name, startedAt, id] = after === undefined ? [] : decodeCursor(after, 4)
  const { workflow_routes, workflow_executions } = workflowNames(log)
  const rows = await log.database.run<WorkerRow>(sql`/* workflows.workers */
    with busy as (
      select x.worker,
        count(*) filter (where x.state = 'running') as running,
        count(*) filter (where x.state = 'held') as held
      from ${workflow_executions} as x
      where x.worker is not null
      group by x.worker)
    select
      r.id, r.name, r.started_at, r.started_at::text as started_text, r.concurrency,
      greatest(0, extract(epoch from ${log.names.clock}(r.fence) - r.heartbeat_at) * 1000)::float8 as age_ms,
      (select jsonb_agg(
          jsonb_build_object('handler', route.handler, 'version', route.version) order by route.handler, route.version)
        from ${workflow_routes} as route
        where route.id = any(r.routes)) as handlers,
      coalesce(busy.running, 0) as running,
      coalesce(busy.held, 0) as held
    from ${consumerNames(log).runners} as r
    left join busy on busy.worker = r.id
    where r.concurrency is not null
      and ${isAlive(log)}
      and (${after === undefined}::boolean
        or (r.name is null, coalesce(r.name, ''), r.started_at, r.id)
          > (${hasNoName ?? null}::boolean, ${name ?? null}::text, ${startedAt ?? null}::timestamptz, ${id ?? null}::text))
    order by r.name is null, coalesce(r.name, ''), r.started_at, r.id
    limit ${limit + 1}::integer`)
  const { items, next } = pageOf(rows, limit, row => [row.name === null, row.name ?? '', row.started_text, row.id])
  return {
    items: items.map(row => ({
      id: row.id,
      name: row.name ?? undefined,
      startedAt: row.started_at,
      heartbeatAgeMs: row.age_ms,
      concurrency: row.concurrency,
      handlers: row.handlers ?? [],
      running: Number(row.running),
      held: Number(row.held),
    })),
    next,
  }
}

async function pageOfActivity(log: Log, correlationId: string, options: ActivityOptions): Promise<Page<Activity>> {
  if (options.before !== undefined) return pastActivity(log, correlationId, options)
  refuseUnknownOptions('activity', options, ['before', ...pageOptionNames])
  const { after, limit = 100 } = options
  checkWhole('limit', limit, 1, 1_000)
  const [last] = after === undefined ? [0] : (decodeCursor(after, 1) as [number])
  const { settled } = await settleActivity(log)
  const lines = await readActivity(log, { correlationId }, { after: last, to: settled, limit: limit + 1 })
  return pageOf(lines, limit, line => [line.position])
}

/** Lines above the settled position come later: a page that has none of them has missed nothing. */
async function pastActivity(
  log: Log,
  correlationId: string | undefined,
  options: ActivityOptions,
): Promise<Page<Activity>> {
  refuseUnknownOptions('activity', options, ['before', ...pageOptionNames])
  const { before, after, limit = 100 } = options
  checkWhole('limit', limit, 1, 1_000)
  if (before !== 'now') checkWhole('before', before as number, 0, Number.MAX_SAFE_INTEGER)
  const { settled } = await settleActivity(log)
  const [last] = after === undefined ? [before] : (decodeCursor(after, 1) as [number])
  const below = last === 'now' || last === undefined ? settled + 1 : Math.min(last, settled + 1)
  const lines = await readActivityBefore(log, correlationId, { before: below, limit: limit + 1 })
  return pageOf(lines, limit, line => [line.position])
}
