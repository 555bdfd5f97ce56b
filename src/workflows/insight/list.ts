/**
 * Workflows for operators, each with its status: all of them, the newest first, those with open dead letters, or those that
 * wait for a retry. A page reads
 * the status of at most 1000 of them, and at most 10 000 rows. So with a filter that fits few it may be short, or empty,
 * and still have a `next`.
 */

import { checkTime } from '../../consumers/dead-letters/dead-letter.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { checkName } from '../../core/name.ts'
import { optionNames, refuseUnknownOptions } from '../../core/options.ts'
import { decodeCursor, encodeCursor, type Page, type PageOptions } from '../../core/page.ts'
import { type Fragment, fragment, numeral, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { checkCount, refusal } from '../handler.ts'
import { type Attributes, checkAttributes } from '../publish.ts'
import { workflowNames } from '../schema.ts'
import { readStatuses, type WorkflowState, type WorkflowStatus, workflowStates } from '../status.ts'

export interface ListWorkflowsOptions extends PageOptions {
  /** One, or several. Default: all. */
  state?: WorkflowState | readonly WorkflowState[] | undefined
  /** Only those with open dead letters, also while something of them still runs. Default: all. */
  hasDeadLetters?: true | undefined
  /** Only those with an execution that has failed and waits for its next attempt. Default: all. */
  isRetrying?: true | undefined
  /** Only those that began at or after this time. */
  startedAfter?: Date | undefined
  /** Only those that began before this time. */
  startedBefore?: Date | undefined
  /** Only children of this workflow. */
  parent?: string | undefined
  /** Only those that have all of these attributes. */
  attributes?: Attributes | undefined
}

const listOptionNames = optionNames<ListWorkflowsOptions>({
  ...{ state: true, hasDeadLetters: true, isRetrying: true, startedAfter: true, startedBefore: true, parent: true },
  ...{ attributes: true },
  ...{ after: true, limit: true },
})

const what = 'A list of workflows'
/** How many statuses one page reads at most, and how many at once when only some of them are wanted. */
const maxStatuses = 1000
const chunkSize = 200
const maxRead = 10_000
const most = numeral(maxRead)

/** A row to be looked at, with its place in the order of the list. */
interface Candidate {
  readonly correlation_id: string
  readonly place: number | string
  readonly fits: boolean
  /** Its number among the rows that were read; undefined if there is no limit. */
  readonly n?: number | undefined
}

export async function listWorkflows(log: Log, options: ListWorkflowsOptions): Promise<Page<WorkflowStatus>> {
  refuseUnknownOptions('store.workflows.list', options, listOptionNames)
  const { limit = 50, after } = options
  checkCount(what, 'limit', limit, 1, maxStatuses)
  if (options.parent !== undefined) checkName('Correlation id', options.parent)
  const { attributes } = options
  if (attributes !== undefined) checkAttributes(what, attributes)
  const states = statesOf(options.state)
  // All that have failed have open dead letters, which an index finds however many workflows there are.
  const isByDeadLetter = options.hasDeadLetters === true || (states?.length === 1 && states[0] === 'failed')
  const read = options.isRetrying === true ? readRetrying : isByDeadLetter ? readFailed : readBegun
  const items: WorkflowStatus[] = []
  const chunk = states === undefined || read !== readBegun ? limit : Math.max(limit, chunkSize)
  let below = after === undefined ? undefined : (decodeCursor(after, 1)[0] as number | string)
  for (let looked = 0; looked < maxStatuses; looked += chunk) {
    const rows = await read(log, options, below, chunk)
    const wanted = rows.filter(row => row.fits)
    const ids = wanted.map(row => row.correlation_id)
    for (const [at, status] of (ids.length === 0 ? [] : await readStatuses(log, ids)).entries()) {
      if (!isWanted(status, states, options)) continue
      items.push(status)
      if (items.length === limit) return { items, next: encodeCursor([wanted[at]!.place]) }
    }
    const last = rows.at(-1)
    const isCut = last?.n === maxRead
    if (last === undefined || (rows.length < chunk && !isCut)) return { items, next: undefined }
    below = last.place
    if (isCut) break
  }
  return { items, next: below === undefined ? undefined : encodeCursor([below]) }
}

function statesOf(state: ListWorkflowsOptions['state']): readonly WorkflowState[] | undefined {
  if (state === undefined) return undefined
  const states = typeof state === 'string' ? [state] : state
  const unknown = states.find(each => !workflowStates.includes(each))
  if (unknown === undefined) return states
  throw refusal(what, 'state', `needs one of ${workflowStates.join(', ')} as "state", not ${String(unknown)}.`)
}

/** Those that an index finds by their beginning have been compared with the times and the parent already. */
function isWanted(
  { state, startedAt, parent, attributes = {} }: WorkflowStatus,
  states: readonly WorkflowState[] | undefined,
  options: ListWorkflowsOptions,
): boolean {
  const { startedAfter, startedBefore } = options
  if (states !== undefined && !states.includes(state)) return false
  if (options.parent !== undefined && parent !== options.parent) return false
  if (Object.entries(options.attributes ?? {}).some(([name, value]) => attributes[name] !== value)) return false
  if (startedAfter !== undefined && (startedAt === undefined || startedAt < startedAfter)) return false
  return startedBefore === undefined || (startedAt !== undefined && startedAt < startedBefore)
}

/** By their first event, the newest first. The last one that was read is there even if it does not fit. */
function readBegun(
  log: Log,
  { startedAfter, startedBefore, parent, attributes }: ListWorkflowsOptions,
  below: number | string | undefined,
  limit: number,
): Promise<Candidate[]> {
  const from = checkTime(startedAfter, 'startedAfter')
  const to = checkTime(startedBefore, 'startedBefore')
  const page = fragment`
    select l.correlation_id, l.first_position as place, l.n, l.fits
    from (
      select w.correlation_id, w.first_position,
        row_number() over (order by w.first_position desc) as n,
        (${from}::timestamptz is null or w.started_at >= ${from}::timestamptz)
          and (${to}::timestamptz is null or w.started_at < ${to}::timestamptz) as fits
      from ${having(log, attributes)} as w
      where w.first_position < coalesce(${below ?? null}::bigint, 9223372036854775807)
        ${parent === undefined ? fragment`` : fragment`and w.parent = ${parent}::text`}
      order by w.first_position desc
      limit ${most}) as l
    where l.fits
      or l.n = ${most}
    order by l.first_position desc
    limit ${limit}::integer`
  if (parent !== undefined) return log.database.run<Candidate>(sql`/* workflows.list_children */${page}`)
  return log.database.run<Candidate>(
    attributes === undefined ? sql`/* workflows.list */${page}` : sql`/* workflows.list_by_attributes */${page}`,
  )
}

/**
 * All workflows, or those that have the attributes: found by their index (`offset 0`), because a plan for any attributes
 * expects them to be common, and would read workflows in their order until enough have them.
 */
function having(log: Log, attributes: Attributes | undefined): Fragment {
  const { workflows } = workflowNames(log)
  if (attributes === undefined) return fragment`${workflows}`
  return fragment`(
        select *
        from ${workflows}
        where attributes @> ${JSON.stringify(attributes)}::jsonb
        offset 0)`
}

/** By correlation id, downwards: ids that a store makes begin with their time, so the newest come first. */
function readFailed(
  log: Log,
  _: ListWorkflowsOptions,
  below: number | string | undefined,
  limit: number,
): Promise<Candidate[]> {
  const further = below === undefined ? fragment`true` : fragment`d.correlation_id < ${below}::text`
  return log.database.run<Candidate>(sql`/* workflows.failed */
    select distinct d.correlation_id, d.correlation_id as place, true as fits
    from ${consumerNames(log).dead_letters} as d
    where d.correlation_id is not null
      and d.state in ('open', 'retrying')
      and ${further}
    order by d.correlation_id desc
    limit ${numeral(limit)}`)
}

/** By correlation id, downwards, of the first 10 000 delayed executions of each handler. */
function readRetrying(
  log: Log,
  _: ListWorkflowsOptions,
  below: number | string | undefined,
  limit: number,
): Promise<Candidate[]> {
  const { workflow_routes, workflow_executions } = workflowNames(log)
  return log.database.run<Candidate>(sql`/* workflows.retrying */
    select distinct found.correlation_id, found.correlation_id as place, true as fits
    from ${workflow_routes} as route
    cross join lateral (
      select x.correlation_id
      from ${workflow_executions} as x
      where x.route = route.id
        and x.state = 'delayed'
        and x.attempt > 0
        and (${below ?? null}::text is null or x.correlation_id < ${below ?? null}::text)
      limit ${most}) as found
    order by found.correlation_id desc
    limit ${limit}::integer`)
}
