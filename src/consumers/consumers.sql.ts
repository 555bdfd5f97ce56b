/**
 * Pieces of SQL that write the tables of this folder, for statements and for functions of other folders. So every write
 * to a checkpoint or a dead letter is in this folder, also where it has to be part of a larger function.
 */
import { type Fragment, fragment, type Identifier } from '../database/sql.ts'
import { drawing } from '../events/order/order.sql.ts'
import type { SqlFunction } from '../schema/plpgsql.ts'

/** The last 20 entries of a JSON array: errors and changes of state are kept so long and no longer. */
export function lastEntries(list: Fragment): Fragment {
  return fragment`jsonb_path_query_array(${list}, '$[last-19 to last]')`
}

/** The list of changes of state with one more at its end: the state of `d` changes to another. */
export function withChange(
  stateEntry: Fragment | Identifier,
  at: Fragment,
  to: Fragment,
  note: Fragment = fragment`null`,
): Fragment {
  return lastEntries(fragment`d.history || ${stateEntry}(${at}, d.state, ${to}, ${note})`)
}

/** In `workflow_dispatch_page`, which has locked the row and compared its fence. */
export const saveDispatched: Fragment = fragment`
  update ~consumers as c
    set checkpoint = p_checkpoint,
      attempts = 0,
      retry_at = null,
      progressed_at = begun_at
    where c.name = p_consumer;`

/** Of a workflow `w`: none of its dead letters is open or being retried. */
export const noOpenDeadLetter: Fragment = fragment`
  not exists (
        select
        from ~dead_letters as d
        where d.correlation_id = w.correlation_id
          and d.state in ('open', 'retrying')
        limit 1)`

/** In `workflow_cancel`: dead letters of a workflow that is over are not retried. */
export const withdrawRequests: Fragment = fragment`
  update ~dead_letters as d
    set retry_at = null
    where d.correlation_id = p_correlation
      and d.state = 'open'
      and d.retry_at is not null;`

/** In `workflow_remove`: the executions that retried these dead letters are gone. */
export const reopenRemoved: Fragment = fragment`
  update ~dead_letters as d
    set state = 'open',
      retry_at = null,
      history = ${withChange(fragment`~state_entry`, fragment`moment`, fragment`'open'`)}
    where d.correlation_id = p_correlation
      and d.state = 'retrying'
      and d.execution = any(p_ids);`

/** Fences. Rows of executions and of leases have them, each higher than the one before in its row. */
export const drawFences: SqlFunction = drawing({
  draw: fragment`~consumers_draw`,
  source: fragment`~consumers_fence`,
})
