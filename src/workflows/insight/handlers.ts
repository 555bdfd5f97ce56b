/** The handlers there are, as they are stored: every version of each, what it still has to do, and who can do it. */

import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import type { HandlerKind } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import { countOpen, type OpenCounts } from './open.ts'

export interface HandlerDescription {
  readonly handler: string
  readonly version: number
  readonly kind: HandlerKind
  /** The event types it wants; undefined for all. */
  readonly types: readonly string[] | undefined
  readonly pausedAt: Date | undefined
  readonly retiredAt: Date | undefined
  readonly createdAt: Date
  /** What it still has to do. */
  readonly open: OpenCounts
  /** How many living workers have its code. If none has, what is open waits for one: it is not lost. */
  readonly workers: number
  /** Whether it is still being given the events from before it was registered. */
  readonly isBackfilling: boolean
}

interface HandlerRow {
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

export async function listHandlers(log: Log): Promise<HandlerDescription[]> {
  const sign = log.database.soleUser ?? null
  const rows = await log.database.run<HandlerRow>(sql`/* workflows.handlers */
    select
      r.id, r.handler, r.version, r.kind, to_jsonb(r.types) as types, r.paused_at, r.retired_at, r.created_at,
      r.backfill_position is not null as backfilling,
      (select count(*)
        from ${workflowNames(log).workflow_workers} as w
        where r.id = any(w.routes)
          and w.heartbeat_at >= ${log.names.clock}(w.heartbeat_at) - make_interval(secs => w.lease_ms / 1000.0)
          and (${sign}::text is null or split_part(w.owner, '/', 1) = ${sign}::text)) as workers
    from ${workflowNames(log).workflow_routes} as r
    order by r.handler, r.version`)
  const open = await countOpen(log)
  // One that was registered between the two looks has nothing open that we know of: it comes with the next call.
  return rows.flatMap(row => {
    const counts = open.get(row.id)
    return counts === undefined ? [] : [descriptionOf(row, counts)]
  })
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
    open,
    workers: Number(row.workers),
    isBackfilling: row.backfilling,
  }
}
