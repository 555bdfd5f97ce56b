/** Workflows with dead letters that wait for somebody: how many, and what went wrong last. */

import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { checkName } from '../../core/name.ts'
import { checkWhole } from '../../core/whole.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { handlerOf } from '../dead-letters/letters.ts'

export interface FailedOptions {
  /** Default 50, at most 1000. */
  limit?: number | undefined
  /** The correlation id of the last one of the page before. */
  after?: string | undefined
}

export interface FailedWorkflow {
  readonly correlationId: string
  /** Dead letters that are open. */
  readonly open: number
  /** Dead letters that are being tried again. */
  readonly retrying: number
  /** Of the latest failure, by its time. */
  readonly lastError: ErrorDescription
  readonly lastHandler: string
  /** Why it was for good, in a word. */
  readonly lastReason: string | undefined
  readonly lastFailedAt: Date
}

interface FailedRow {
  correlation_id: string
  open: number
  retrying: number
  consumer: string
  reason: string | null
  error: ErrorDescription & { at?: string }
  last_failed_at: Date
}

/** By correlation id, downwards: the ids a store makes by itself begin with their time, so the newest come first. */
export async function listFailed(log: Log, { limit = 50, after }: FailedOptions): Promise<FailedWorkflow[]> {
  checkWhole('limit', limit, 1, 1000)
  if (after !== undefined) checkName('Correlation id', after)
  const { dead_letters: letters } = consumerNames(log)
  const rows = await log.database.run<FailedRow>(sql`/* workflows.failed */
    select f.*, l.consumer, l.reason, l.error, l.last_failed_at
    from (
      select d.correlation_id,
        count(*) filter (where d.state = 'open') as open,
        count(*) filter (where d.state = 'retrying') as retrying
      from ${letters} as d
      where d.correlation_id is not null
        and d.state in ('open', 'retrying')
        and (${after ?? null}::text is null or d.correlation_id < ${after ?? null}::text)
      group by d.correlation_id
      order by d.correlation_id desc
      limit ${limit}::integer) as f
    cross join lateral (
      select d.consumer, d.reason, d.last_failed_at, d.errors -> -1 as error
      from ${letters} as d
      where d.correlation_id = f.correlation_id
        and d.state in ('open', 'retrying')
      order by d.last_failed_at desc
      limit 1) as l
    order by f.correlation_id desc`)
  return rows.map(failedOf)
}

function failedOf(row: FailedRow): FailedWorkflow {
  const { at: _at, ...lastError } = row.error
  return {
    correlationId: row.correlation_id,
    open: Number(row.open),
    retrying: Number(row.retrying),
    lastError,
    lastHandler: handlerOf(row.consumer),
    lastReason: row.reason ?? undefined,
    lastFailedAt: row.last_failed_at,
  }
}
