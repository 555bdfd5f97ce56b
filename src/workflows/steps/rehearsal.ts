/**
 * Rehearsal: open executions with recorded calls are run against the code of this process, up to the end of their record,
 * and nothing is stored. It shows before a deployment which of them would be parked by it.
 *
 *     execution ─► its event, its recorded calls ─► the handler ─┬─ asks for another call than the recorded one ─► parks
 *                                                               ├─ asks for a call beyond the record ─► continues there
 *                                                               └─ returns, or throws, before that
 *
 * It is the run of an attempt with one difference: a call without a record is left unanswered, as a wait is. So steps,
 * transactions, timers and child workflows do nothing. Code outside of steps runs, as it does in every run of a handler.
 */

import { describeError, type ErrorDescription } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { elapsedMs } from '../../core/host.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { eventColumnCount } from '../../events/read/rows.ts'
import type { Handler } from '../handler.ts'
import { workflowNames } from '../schema.ts'
import { type AttemptParts, rehearseAttempt } from '../work/attempt.ts'
import { type Claimed, claimedOf, decodeEvents, type ExecutionColumns, editedEventColumns } from '../work/claim.ts'

/** An open execution with recorded calls, and what the code of this process would do with it. */
export interface Rehearsal {
  readonly executionId: string
  readonly correlationId: string
  readonly handler: string
  readonly version: number
  /**
   * `continues`: its record fits. `parks`: it does not. `fails`: the code throws. `unknown`: it did not come to the end of
   * its record in time. `unserved`: this process does not have its code.
   */
  readonly end: 'continues' | 'parks' | 'fails' | 'unknown' | 'unserved'
  /** Why it parks or fails. */
  readonly error: ErrorDescription | undefined
}

/** How long the code of one handler may take up to the end of its record. */
const limitMs = 2_000
/** Each comes with its event, which may be large. */
const pageSize = 16

/** Every open execution that has recorded calls, by id. */
export async function* rehearse(
  parts: AttemptParts,
  codeOf: (handler: string, version: number) => Handler | undefined,
): AsyncGenerator<Rehearsal> {
  let after: string | undefined
  for (;;) {
    const page = await readRecorded(parts.log, after)
    for (const { execution, handler, version } of page) {
      const { id: executionId, correlationId } = execution
      const code = codeOf(handler, version)
      yield { executionId, correlationId, handler, version, ...(await endOf(parts, execution, code)) }
    }
    if (page.length < pageSize) return
    after = page.at(-1)!.execution.id
  }
}

async function endOf(
  parts: AttemptParts,
  execution: Claimed,
  code: Handler | undefined,
): Promise<Pick<Rehearsal, 'end' | 'error'>> {
  if (code === undefined) return { end: 'unserved', error: undefined }
  try {
    const end = await rehearseAttempt(parts, execution, code, limitMs)
    if (end === undefined) return { end: 'unknown', error: undefined }
    return end.kind === 'park' ? { end: 'parks', error: end.error } : { end: 'continues', error: undefined }
  } catch (error) {
    return { end: 'fails', error: describeError(error) }
  }
}

interface RecordedExecution {
  readonly execution: Claimed
  readonly handler: string
  readonly version: number
}

/** As a claim would give them: each with its event, and with the edited event of a dead letter that is retried. */
async function readRecorded(log: Log, after: string | undefined): Promise<RecordedExecution[]> {
  const { workflow_executions, workflow_steps, workflow_routes } = workflowNames(log)
  const rows = await log.database.runArrays(sql`/* workflows.recorded */
    select
      ${editedEventColumns},
      x.id, x.position, x.route, x.fence, x.attempt + 1, x.crashes, x.ran_ms, x.correlation_id, x.lane, x.state,
      x.join_id, x.undo_id, x.is_retry, false, x.queued_at, null::float8, 0::float8, e.bytes, r.handler, r.version
    from (
      select s.execution as id
      from ${workflow_steps} as s
      where ${after ?? null}::uuid is null
        or s.execution > ${after ?? null}::uuid
      group by s.execution
      order by s.execution
      limit ${pageSize}::integer) as recorded
    join ${workflow_executions} as x on x.id = recorded.id
    join ${workflow_routes} as r on r.id = x.route
    left join ${log.names.events} as e on e.position = x.position
    left join ${consumerNames(log).dead_letters} as d
      on x.is_retry
      and d.consumer = 'handler:' || r.handler
      and d.event_id = e.event_id
      and d.state = 'retrying'
    order by x.id`)
  const events = await decodeEvents(log, rows)
  const now = elapsedMs()
  return rows.map((row, at) => {
    const columns = row.slice(eventColumnCount)
    const [handler, version] = columns.splice(-2) as [string, number]
    return { execution: claimedOf(columns as ExecutionColumns, events[at]!, now), handler, version }
  })
}
