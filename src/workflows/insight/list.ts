/**
 * Workflows, newest first, each with its status. A page looks at a bounded number of them: the status of 1000 at most, and
 * of 10 000 at most when they began. So with a filter that fits few it may be short, or empty, and still have a `next`.
 */

import { checkTime } from '../../consumers/dead-letters/dead-letter.ts'
import { InvalidOption } from '../../core/errors.ts'
import { checkName } from '../../core/name.ts'
import { checkWhole } from '../../core/whole.ts'
import { numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { checkPosition } from '../../events/read/log.ts'
import { workflowNames } from '../schema.ts'
import { readStatuses, type WorkflowState, type WorkflowStatus, workflowStates } from '../status.ts'

export interface ListWorkflowsOptions {
  /** One, or several. Default: all. */
  state?: WorkflowState | readonly WorkflowState[] | undefined
  /** Only those that began at or after this time. */
  startedAfter?: Date | undefined
  /** Only those that began before this time. */
  startedBefore?: Date | undefined
  /** Only children of this workflow. */
  parent?: string | undefined
  /** Default 50, at most 1000. */
  limit?: number | undefined
  /** `next` of the page before. */
  after?: number | undefined
}

export interface WorkflowPage {
  readonly workflows: readonly WorkflowStatus[]
  /** Where the next page begins; undefined if there is none. */
  readonly next: number | undefined
}

/** How many statuses one page reads at most, and how many at once when only some of them are wanted. */
const mostStatuses = 1000
const chunkSize = 200
const mostLooked = 10_000
const most = numeral(mostLooked)

export async function listWorkflows(log: Log, options: ListWorkflowsOptions): Promise<WorkflowPage> {
  const { limit = 50, after } = options
  checkWhole('limit', limit, 1, mostStatuses)
  checkPosition('after', after)
  if (options.parent !== undefined) checkName('Correlation id', options.parent)
  const states = statesOf(options.state)
  const workflows: WorkflowStatus[] = []
  const chunk = states === undefined ? limit : Math.max(limit, chunkSize)
  let below = after
  for (let looked = 0; looked < mostStatuses; looked += chunk) {
    const rows = await readBegun(log, options, below, chunk)
    const wanted = rows.filter(row => row.fits)
    const statuses = wanted.length === 0 ? [] : await readStatuses(log, idsOf(wanted))
    for (const [at, status] of statuses.entries()) {
      if (states !== undefined && !states.includes(status.state)) continue
      workflows.push(status)
      if (workflows.length === limit) return pageOf(workflows, wanted[at]!.first_position)
    }
    const last = rows.at(-1)
    const isTired = last?.n === mostLooked
    if (last === undefined || (rows.length < chunk && !isTired)) return pageOf(workflows, undefined)
    below = last.first_position
    if (isTired) break
  }
  return pageOf(workflows, below)
}

function pageOf(workflows: readonly WorkflowStatus[], next: number | undefined): WorkflowPage {
  return { workflows, next }
}

function statesOf(state: ListWorkflowsOptions['state']): readonly WorkflowState[] | undefined {
  if (state === undefined) return undefined
  const states = typeof state === 'string' ? [state] : state
  const unknown = states.find(each => !workflowStates.includes(each))
  if (unknown !== undefined)
    throw new InvalidOption({
      option: 'state',
      reason: `must be one of ${workflowStates.join(', ')}, not ${String(unknown)}`,
    })
  return states
}

interface BegunRow {
  correlation_id: string
  first_position: number
  n: number
  fits: boolean
}

function idsOf(rows: readonly BegunRow[]): string[] {
  return rows.map(row => row.correlation_id)
}

/** The last one that was looked at is among them even if it does not fit: the next page begins there. */
function readBegun(
  log: Log,
  { startedAfter, startedBefore, parent }: ListWorkflowsOptions,
  below: number | undefined,
  limit: number,
): Promise<BegunRow[]> {
  const from = checkTime(startedAfter, 'startedAfter')
  const to = checkTime(startedBefore, 'startedBefore')
  return parent === undefined
    ? log.database.run<BegunRow>(sql`/* workflows.list */
        select l.*
        from (
          select w.correlation_id, w.first_position,
            row_number() over (order by w.first_position desc) as n,
            (${from}::timestamptz is null or w.started_at >= ${from}::timestamptz)
              and (${to}::timestamptz is null or w.started_at < ${to}::timestamptz) as fits
          from ${workflowNames(log).workflows} as w
          where w.first_position < coalesce(${below ?? null}::bigint, 9223372036854775807)
          order by w.first_position desc
          limit ${most}) as l
        where l.fits
          or l.n = ${most}
        order by l.first_position desc
        limit ${limit}::integer`)
    : log.database.run<BegunRow>(sql`/* workflows.list_children */
        select l.*
        from (
          select w.correlation_id, w.first_position,
            row_number() over (order by w.first_position desc) as n,
            (${from}::timestamptz is null or w.started_at >= ${from}::timestamptz)
              and (${to}::timestamptz is null or w.started_at < ${to}::timestamptz) as fits
          from ${workflowNames(log).workflows} as w
          where w.parent = ${parent}::text
            and w.first_position < coalesce(${below ?? null}::bigint, 9223372036854775807)
          order by w.first_position desc
          limit ${most}) as l
        where l.fits
          or l.n = ${most}
        order by l.first_position desc
        limit ${limit}::integer`)
}
