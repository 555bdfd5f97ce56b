/**
 * Pieces of SQL that write the tables of this folder, for statements and for functions of other folders. So every write
 * to a checkpoint or a dead letter is in this folder, also where it has to be part of a larger function.
 */
import { type Fragment, fragment } from '../database/sql.ts'

/** The last 20 entries of a JSON array: errors and changes of state are kept so long and no longer. */
export function lastEntries(list: Fragment): Fragment {
  return fragment`jsonb_path_query_array(${list}, '$[last-19 to last]')`
}

/** The list of changes of state with one more at its end: the state of `d` changes to another. */
export function withChange(at: Fragment, to: Fragment, note: Fragment = fragment`null`): Fragment {
  return lastEntries(fragment`d.history || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
          'at', ${at}, 'from', d.state, 'to', ${to}, 'note', ${note})))`)
}

/** In `workflow_dispatch`, which has locked the row and compared its fence. */
export const saveDispatched: Fragment = fragment`
  update ~consumers as c
    set checkpoint = p_checkpoint,
      attempts = 0,
      retry_at = null,
      progressed_at = begun_at
    where c.name = p_consumer;`

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
      history = ${withChange(fragment`moment`, fragment`'open'`)}
    where d.correlation_id = p_correlation
      and d.state = 'retrying'
      and d.execution = any(p_ids);`
