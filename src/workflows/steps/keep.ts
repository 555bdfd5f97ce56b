/**
 * What stays of an execution that has failed for good: when its dead letter is retried, what had come to its end is answered
 * from memory, as in any other retry, and nobody is charged twice. Where it stood does not count any more, only its kind and
 * name: the code has usually been mended meanwhile. What failed, or was waited for, is forgotten.
 *
 * With edited data everything is done anew, and so is what comes after it: steps that were run on other data are no answer.
 */

import { consumerNames } from '../../consumers/schema.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { workflowNames } from '../schema.ts'

/** Below every track: see `replay.ts`. */
const offTrack = 0

/** In the transaction that ends the execution, before its letter is written. */
export async function keepEnds(log: Log, tx: Executor, executionId: string): Promise<void> {
  await tx.run(sql`/* workflows.keep_ends */
    with letter as (
      select d.edited is not null as is_edited
      from ${consumerNames(log).dead_letters} as d
      where d.execution = ${executionId}::uuid
        and d.state = 'retrying'),
    forgotten as (
      delete from ${workflowNames(log).workflow_steps} as s
      where s.execution = ${executionId}::uuid
        and (s.state not in ('done', 'expired') or exists (select from letter where is_edited)))
    update ${workflowNames(log).workflow_steps} as s
    set track = ${offTrack}::integer
    where s.execution = ${executionId}::uuid
      and s.state in ('done', 'expired')
      and not exists (select from letter where is_edited)`)
}

/** For a retry with edited data, before it is queued. */
export async function forgetEnds(log: Log, tx: Executor, executionIds: readonly string[]): Promise<void> {
  if (executionIds.length === 0) return
  await tx.run(sql`/* workflows.forget_ends */
    delete from ${workflowNames(log).workflow_steps} as s
    where s.execution = any(${executionIds}::uuid[])`)
}
