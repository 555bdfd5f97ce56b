/**
 * Handlers for operators: every version of each as it is stored, its open executions, the workers that have its code;
 * and the changes by an operator. A change is stored, so it holds in all processes and after a restart. It is made
 * under the dispatcher's row: an event is dispatched before or after it.
 */

import { isAlive } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { type Named, nameOf } from '../../core/definition.ts'
import { nearestName } from '../../core/name.ts'
import { refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, type Page, type PageOptions, pageOf, pageOptionNames } from '../../core/page.ts'
import type { Transaction } from '../../database/database.ts'
import { type Statement, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { HandlerNotFound } from '../errors.ts'
import { checkCount, type HandlerKind, type RouteDefinition, refusal } from '../handler.ts'
import type { WorkflowHints } from '../hints.ts'
import { changeRoutes, lockDispatcher } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { countOpen, type OpenCounts } from './executions.ts'

/** The handlers of a store: `store.workflows.handlers`. */
export interface Handlers {
  /**
   * Every version of each handler, by name and version, with its open executions and the number of workers that can run
   * them.
   */
  list(options?: PageOptions): Promise<Page<HandlerDescription>>
  /** The names of the handlers whose code this store has. */
  registered(): string[]
  /** Nothing of it begins, in all versions and processes; its events queue. Attempts that run end. */
  pause(handler: Named): Promise<void>
  /** Continues with the queued executions. A retired handler is given events again, from now on. */
  resume(handler: Named): Promise<void>
  /** Gives it, or one version of it, no more events. Open executions still run. It comes back when it is resumed. */
  retire(handler: Named, options?: { version?: number | undefined }): Promise<void>
}

export function openHandlers(log: Log, hints: WorkflowHints, registered: () => string[]): Handlers {
  return {
    list: async (options = {}) => listHandlers(log, options),
    registered,
    pause: handler => pauseHandler(log, nameOf(handler)),
    async resume(handler) {
      await resumeHandler(log, nameOf(handler))
      hints.ready()
    },
    async retire(handler, options = {}) {
      refuseUnknownOptions('store.workflows.handlers.retire', options, ['version'])
      await retireHandler(log, nameOf(handler), options.version)
    },
  }
}

export interface HandlerDescription {
  readonly handler: string
  readonly version: number
  readonly kind: HandlerKind
  /** The event types it wants; undefined for all. */
  readonly types: readonly string[] | undefined
  readonly pausedAt: Date | undefined
  readonly retiredAt: Date | undefined
  readonly createdAt: Date
  /** It is given events after this position. */
  readonly startPosition: number
  readonly policy: HandlerPolicy
  /** Its open executions, by state. */
  readonly open: OpenCounts
  /** How many running workers have its code. If none has, its open executions wait for one; they are not lost. */
  readonly workers: number
  /** Whether it is still given the events from before it was registered. */
  readonly isBackfilling: boolean
}

/** How it is run, as it is stored. */
export interface HandlerPolicy extends RouteDefinition {
  readonly priority: number
  readonly delayMs: number
  readonly timeoutMs: number
  readonly deadlineMs: number | undefined
  readonly concurrency: number | undefined
  readonly rate: { readonly limit: number; readonly perMs: number } | undefined
}

interface HandlerRow {
  start_position: number
  definition: RouteDefinition
  priority: number
  delay_ms: number
  timeout_ms: number
  deadline_ms: number | null
  concurrency: number | null
  rate_limit: number | null
  rate_per_ms: number | null
  id: number
  handler: string
  version: number
  kind: HandlerKind
  types: string[] | null
  paused_at: Date | null
  retired_at: Date | null
  created_at: Date
  backfilling: boolean
  workers: number
}

const maxListed = 10_000

export async function listHandlers(log: Log, options: PageOptions = {}): Promise<Page<HandlerDescription>> {
  refuseUnknownOptions('store.workflows.handlers.list', options, pageOptionNames)
  const { after, limit = 1000 } = options
  checkCount('A list of handlers', 'limit', limit, 1, maxListed)
  const [handler, version] = after === undefined ? ['', 0] : (decodeCursor(after, 2) as [string, number])
  const { workflow_routes } = workflowNames(log)
  const rows = await log.database.run<HandlerRow>(sql`/* workflows.handlers */
    select
      route.id, route.handler, route.version, route.kind, to_jsonb(route.types) as types, route.paused_at,
      route.retired_at, route.created_at, route.start_position, route.definition, route.priority, route.delay_ms, route.timeout_ms,
      route.deadline_ms, route.concurrency, route.rate_limit, route.rate_per_ms, route.backfill_position is not null as backfilling,
      (select count(*)
        from ${consumerNames(log).runners} as r
        where route.id = any(r.routes)
          and ${isAlive(log)}) as workers
    from ${workflow_routes} as route
    where (route.handler, route.version) > (${handler}::text, ${version}::integer)
    order by route.handler, route.version
    limit ${limit + 1}::integer`)
  const open = await countOpen(log)
  // A route that was stored between the two statements has no counts yet: it comes with the next call.
  const counted = rows.flatMap(row => {
    const counts = open.get(row.id)
    return counts === undefined ? [] : [descriptionOf(row, counts)]
  })
  return pageOf(counted, limit, last => [last.handler, last.version])
}

function descriptionOf(row: HandlerRow, open: OpenCounts): HandlerDescription {
  return {
    handler: row.handler,
    version: row.version,
    kind: row.kind,
    types: row.types ?? undefined,
    pausedAt: row.paused_at ?? undefined,
    retiredAt: row.retired_at ?? undefined,
    createdAt: row.created_at,
    startPosition: row.start_position,
    policy: policyOf(row),
    open,
    workers: Number(row.workers),
    isBackfilling: row.backfilling,
  }
}

function policyOf(row: HandlerRow): HandlerPolicy {
  return {
    ...row.definition,
    priority: row.priority,
    delayMs: row.delay_ms,
    timeoutMs: row.timeout_ms,
    deadlineMs: row.deadline_ms ?? undefined,
    concurrency: row.concurrency ?? undefined,
    rate: row.rate_limit === null ? undefined : { limit: row.rate_limit, perMs: row.rate_per_ms! },
  }
}

/** In all its versions: nothing of it begins. Attempts that run end; events are still dispatched to it, and queue. */
export async function pauseHandler(log: Log, handler: string): Promise<void> {
  await change(
    log,
    handler,
    sql`/* workflows.pause_handler */
      update ${workflowNames(log).workflow_routes}
      set paused_at = coalesce(paused_at, ${log.names.clock}(created_at))
      where handler = ${handler}::text
      returning id`,
  )
}

async function resumeHandler(log: Log, handler: string): Promise<void> {
  await change(
    log,
    handler,
    sql`/* workflows.resume_handler */
      update ${workflowNames(log).workflow_routes}
      set paused_at = null,
        retired_at = null
      where handler = ${handler}::text
      returning id`,
  )
}

/** No more events, in all its versions, or in one of them, whose events then go to the newest that is left. */
async function retireHandler(log: Log, handler: string, version?: number | undefined): Promise<void> {
  if (version !== undefined) checkCount(`Handler "${handler}"`, 'version', version, 1)
  await change(
    log,
    handler,
    sql`/* workflows.retire_handler */
      update ${workflowNames(log).workflow_routes}
      set retired_at = coalesce(retired_at, ${log.names.clock}(created_at))
      where handler = ${handler}::text
        and (${version ?? null}::integer is null or version = ${version ?? null}::integer)
      returning id`,
    version,
  )
}

async function change(log: Log, handler: string, statement: Statement, version?: number): Promise<void> {
  await log.database.transaction(async tx => {
    await lockDispatcher(log, tx)
    if ((await tx.run(statement)).length === 0) throw await notFound(log, tx, handler, version)
    await changeRoutes(log, tx)
  })
}

async function notFound(log: Log, tx: Transaction, handler: string, version: number | undefined): Promise<Error> {
  const rows = await tx.run<{ handler: string; version: number }>(sql`/* workflows.known_handlers */
    select handler, version
    from ${workflowNames(log).workflow_routes}
    order by handler, version`)
  const versions = rows.filter(row => row.handler === handler).map(row => row.version)
  if (versions.length > 0)
    return refusal(`Handler "${handler}"`, 'version', `has no version ${version}. It has ${versions.join(', ')}.`)
  const nearest = nearestName(
    handler,
    rows.map(row => row.handler),
  )
  return new HandlerNotFound({ handler, nearest })
}
