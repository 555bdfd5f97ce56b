/** One letter is changed, in a state that allows it; if it was not, this says why. */

import { canonicalUuid } from '../../core/id.ts'
import { type Statement, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../../workflows/schema.ts'
import { DeadLetterConflict, DeadLetterNotFound, RetryPending, WorkflowNotActive } from '../errors.ts'
import { consumerNames } from '../schema.ts'
import type { DeadLetterState } from './dead-letter.ts'

export interface LetterChange {
  readonly consumer: string
  readonly eventId: string
  /** What is to be done to it, as the error says it. */
  readonly wanted: 'retried' | 'resolved' | 'deleted'
}

/** The statement must return a row if it changed the letter, and change it only in a state that allows it. */
export async function changeLetter(
  log: Log,
  { consumer, eventId, wanted }: LetterChange,
  statement: (id: string) => Statement,
): Promise<void> {
  const id = canonicalUuid(eventId)
  if (id === undefined) throw new DeadLetterNotFound({ consumer, eventId })
  if ((await log.database.run(statement(id))).length > 0) return
  if ((await reopenLeft(log, consumer, id)) && (await log.database.run(statement(id))).length > 0) return
  const [row] = await log.database.run<{
    state: DeadLetterState
    correlation_id: string | null
    workflow: string | null
  }>(sql`/* dead_letters.state */
    select d.state, d.correlation_id, w.state as workflow
    from ${consumerNames(log).dead_letters} as d
    left join ${workflowNames(log).workflows} as w on d.execution is not null and w.correlation_id = d.correlation_id
    where d.consumer = ${consumer}::text
      and d.event_id = ${id}::uuid`)
  if (row === undefined) throw new DeadLetterNotFound({ consumer, eventId })
  const { state, correlation_id: correlationId, workflow } = row
  if (wanted !== 'retried' || state !== 'open') throw new DeadLetterConflict({ consumer, eventId, state, wanted })
  if (correlationId !== null && workflow !== null && workflow !== 'active')
    throw new WorkflowNotActive({ correlationId, state: workflow, wanted: 'its dead letters can only be resolved' })
  throw new RetryPending({ consumer, eventId })
}

/**
 * A letter that is being retried by somebody who is gone is open: the outcome will not count any more. That of a consumer is
 * retried under its lease, that of a handler by an execution, whoever runs it.
 */
async function reopenLeft(log: Log, consumer: string, id: string): Promise<boolean> {
  const sign = log.database.soleUser ?? null
  const rows = await log.database.run(sql`/* dead_letters.reopen_left */
    update ${consumerNames(log).dead_letters} as d
    set state = 'open'
    where d.consumer = ${consumer}::text
      and d.event_id = ${id}::uuid
      and d.state = 'retrying'
      and not exists (
        select from ${workflowNames(log).workflow_executions} as x
        where x.id = d.execution
          and x.is_letter)
      and (d.execution is not null or not exists (
        select from ${consumerNames(log).consumers} as c
        where c.name = d.consumer
          and c.fence = d.fence
          and c.lease_until > ${log.names.clock}(c.lease_until)
          and (${sign}::text is null or split_part(c.owner, '/', 1) = ${sign}::text)))
    returning d.event_id`)
  return rows.length > 0
}
