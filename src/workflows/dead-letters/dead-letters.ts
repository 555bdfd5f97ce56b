/**
 * Dead letters of handlers: executions that failed for good. They are rows of `dead_letters` like those of consumers,
 * and an operator uses `store.deadLetters` for both; this folder has the differences.
 *
 *     an attempt fails for good ──record──► open ──an operator requests a retry──► retry ──► the same execution again
 *                                             ▲                                                │
 *                                             └────────────── it failed again ────────────────┤
 *                                                                    replayed ◄── completed ───┘
 *
 *     record.ts   writes the dead letter in the transaction that completes the execution, with the events of `onDeadLetter`
 *     retry.ts    queues the executions whose retry is due: a duty of the worker
 *
 * Guarantees: an execution that failed for good has one dead letter, and a retry runs for the newest version of its
 * handler. What can fail: a retry in a workflow that was cancelled or undone (`WorkflowNotActive`): nothing of it is run.
 */

import type { DeadLetterKind } from '../../consumers/dead-letters/retry.ts'
import { isAlive } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { fragment, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { HandlerNotFound, WorkflowNotActive } from '../errors.ts'
import { workflowNames } from '../schema.ts'

/** How they are retried: by an execution, in any runner that has the newest version of the handler. */
export function ofHandlers(log: Log): DeadLetterKind {
  const names = workflowNames(log)
  return {
    takesData: true,
    mayRetry: fragment`not exists (
        select
        from ${names.workflows} as w
        where w.correlation_id = d.correlation_id
          and w.state <> 'active')`,
    isAbandoned: fragment`not exists (
        select
        from ${names.workflow_executions} as x
        where x.id = d.execution
          and x.is_retry)`,
    async isServed(handler) {
      const [row] = await log.database.run<{ served: boolean }>(sql`/* workflows.is_served */
        select route.paused_at is null
          and exists (
            select
            from ${consumerNames(log).runners} as r
            where route.id = any(r.routes)
              and ${isAlive(log)}) as served
        from ${names.workflow_routes} as route
        where route.handler = ${handler}::text
          and route.retired_at is null
        order by route.version desc
        limit 1`)
      return row?.served
    },
    async names() {
      const rows = await log.database.run<{ handler: string }>(sql`/* workflows.handler_names */
        select distinct handler
        from ${names.workflow_routes}
        limit 1000`)
      return rows.map(row => row.handler)
    },
    notFound: (handler, nearest) => new HandlerNotFound({ handler, nearest }),
    async whyNot(correlationId) {
      const [row] = await log.database.run<{ state: string }>(sql`/* workflows.state */
        select state
        from ${names.workflows}
        where correlation_id = ${correlationId}::text`)
      if (row === undefined || row.state === 'active') return undefined
      return new WorkflowNotActive({ correlationId, state: row.state, wanted: 'its dead letters can only be resolved' })
    },
  }
}
