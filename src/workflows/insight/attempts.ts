/**
 * The attempts that came to an end, newest first: how long each had waited, how long it ran, and what came of it. A page
 * looks at 10 000 lines at most, so with a filter that fits few of them it may be short and still have a `next`.
 */

import type { ErrorDescription } from '../../consumers/run/failure.ts'
import { InvalidOption } from '../../core/errors.ts'
import { canonicalUuid } from '../../core/id.ts'
import { checkName } from '../../core/name.ts'
import { checkWhole } from '../../core/whole.ts'
import { numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { checkPosition } from '../../events/read/log.ts'
import { workflowNames } from '../schema.ts'
import { type Activity, type ActivityRow, activityOf } from './activity.ts'

export interface AttemptsOptions {
  correlationId?: string | undefined
  handler?: string | undefined
  /** 'completed', 'failed', or the word it ended with: 'retry', 'timeout', 'max_retries', … */
  outcome?: string | undefined
  /** Found at once together with its `correlationId`; by itself the latest lines are gone through, page by page. */
  executionId?: string | undefined
  /** Default 100, at most 1000. */
  limit?: number | undefined
  /** Only those before this position: `next` of the page before. */
  before?: number | undefined
}

export interface Attempt extends Activity {
  readonly kind: 'completed' | 'failed'
  readonly error: ErrorDescription | undefined
}

export interface AttemptPage {
  readonly attempts: readonly Attempt[]
  /** Where the next page begins; undefined if there is none. */
  readonly next: number | undefined
}

const mostLooked = 10_000
const most = numeral(mostLooked)

interface AttemptRow extends ActivityRow {
  n: number
  fits: boolean
}

export async function listAttempts(log: Log, options: AttemptsOptions): Promise<AttemptPage> {
  const { correlationId, handler, limit = 100, before } = options
  checkWhole('limit', limit, 1, 1000)
  checkPosition('before', before)
  if (correlationId !== undefined) checkName('Correlation id', correlationId)
  if (handler !== undefined) checkName('Handler', handler)
  const rows = await readAttempts(log, { ...options, executionId: executionOf(options.executionId) }, limit)
  const last = rows.at(-1)
  const isMore = last !== undefined && (rows.length === limit || last.n === mostLooked)
  return {
    attempts: rows.filter(row => row.fits).map(row => activityOf(row) as Attempt),
    next: isMore ? last.position : undefined,
  }
}

function executionOf(given: string | undefined): string | undefined {
  if (given === undefined) return undefined
  const id = canonicalUuid(given)
  if (id === undefined)
    throw new InvalidOption({ option: 'executionId', reason: `must be a UUID, not ${JSON.stringify(given)}` })
  return id
}

/**
 * The last line that was looked at is among them even if it does not fit: the next page begins there. Events are looked up
 * one by one, as in `activity.ts`.
 */
function readAttempts(log: Log, options: AttemptsOptions, limit: number): Promise<AttemptRow[]> {
  const { correlationId, handler = null, outcome = null, executionId = null, before = null } = options
  const { workflow_activity, events } = { ...log.names, ...workflowNames(log) }
  if (correlationId !== undefined)
    return log.database.run<AttemptRow>(sql`/* workflows.attempts_of_one */
      select l.*, e.event_id, e.type
      from (
        select a.*,
          row_number() over (order by a.position desc) as n,
          a.kind in ('completed', 'failed')
            and (${handler}::text is null or a.handler = ${handler}::text)
            and (${outcome}::text is null or ${outcome}::text in (a.kind, a.outcome))
            and (${executionId}::uuid is null or a.execution = ${executionId}::uuid) as fits
        from ${workflow_activity} as a
        where a.correlation_id = ${correlationId}::text
          and a.position < coalesce(${before}::bigint, 9223372036854775807)
        order by a.position desc
        limit ${most}) as l
      left join lateral (
        select found.event_id, found.type
        from ${events} as found
        where found.position = l.event_position
        limit 1) as e on true
      where l.fits
        or l.n = ${most}
      order by l.position desc
      limit ${limit}::integer`)
  if (handler !== null)
    return log.database.run<AttemptRow>(sql`/* workflows.attempts_of_handler */
      select l.*, e.event_id, e.type
      from (
        select a.*,
          row_number() over (order by a.position desc) as n,
          (${outcome}::text is null or ${outcome}::text in (a.kind, a.outcome))
            and (${executionId}::uuid is null or a.execution = ${executionId}::uuid) as fits
        from ${workflow_activity} as a
        where a.handler = ${handler}::text
          and a.kind in ('completed', 'failed')
          and a.position < coalesce(${before}::bigint, 9223372036854775807)
        order by a.position desc
        limit ${most}) as l
      left join lateral (
        select found.event_id, found.type
        from ${events} as found
        where found.position = l.event_position
        limit 1) as e on true
      where l.fits
        or l.n = ${most}
      order by l.position desc
      limit ${limit}::integer`)
  return log.database.run<AttemptRow>(sql`/* workflows.attempts */
    select l.*, e.event_id, e.type
    from (
      select a.*,
        row_number() over (order by a.position desc) as n,
        a.kind in ('completed', 'failed')
          and (${outcome}::text is null or ${outcome}::text in (a.kind, a.outcome))
          and (${executionId}::uuid is null or a.execution = ${executionId}::uuid) as fits
      from ${workflow_activity} as a
      where a.position < coalesce(${before}::bigint, 9223372036854775807)
      order by a.position desc
      limit ${most}) as l
    left join lateral (
      select found.event_id, found.type
      from ${events} as found
      where found.position = l.event_position
      limit 1) as e on true
    where l.fits
      or l.n = ${most}
    order by l.position desc
    limit ${limit}::integer`)
}
