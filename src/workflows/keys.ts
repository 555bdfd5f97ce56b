/**
 * The lanes of handlers that have a key of their own. What the key is only their code can tell, which the dispatcher need not
 * have: so it queues such executions without a lane, and any process that has the code gives them theirs, in the order of
 * the log. One process at a time does it for a handler.
 *
 * An event whose key cannot be told gets no lane; its run asks for the key once more, and fails with what that says.
 */

import { consumerNames } from '../consumers/schema.ts'
import { sql } from '../database/sql.ts'
import { byBytes } from '../events/append/send.ts'
import type { RecordedEvent } from '../events/definition.ts'
import type { Log } from '../events/log.ts'
import { eventColumnCount } from '../events/read/rows.ts'
import { consumerOf } from './dead-letters/letters.ts'
import type { Handler } from './handler.ts'
import { workflowNames } from './schema.ts'
import { decodeEvents, editedEventColumns } from './work/claim.ts'
import { laneOf } from './work/lanes.ts'

const mostAtOnce = 500
/** Whoever does it gives no sign of life meanwhile. */
const mostRounds = 5

/** Returns how many executions have their lane now; of many the first ones. */
export async function assignLanes(log: Log, handlers: ReadonlyMap<number, Handler>): Promise<number> {
  let total = 0
  for (const [route, handler] of handlers) {
    if (handler.keyOf === undefined) continue
    let count = mostAtOnce
    for (let round = 0; round < mostRounds && count === mostAtOnce; round++, total += count)
      count = await assignSome(log, route, handler)
  }
  return total
}

async function assignSome(log: Log, route: number, handler: Handler): Promise<number> {
  return log.database.transaction(async tx => {
    const held = await tx.run(sql`/* workflows.lock_route */
      select id
      from ${workflowNames(log).workflow_routes}
      where id = ${route}::integer
      for update skip locked`)
    if (held.length === 0) return 0
    const rows = await tx.runArrays(sql`/* workflows.unkeyed */
      select
        ${editedEventColumns},
        x.id, x.correlation_id
      from ${workflowNames(log).workflow_executions} as x
      left join lateral (
        select *
        from ${log.names.events} as found
        where found.position = x.position
        limit 1) as e on true
      left join lateral (
        select letter.edited
        from ${consumerNames(log).dead_letters} as letter
        where x.is_letter
          and letter.consumer = ${consumerOf(handler.name)}::text
          and letter.event_id = e.event_id
        limit 1) as d on true
      where x.route = ${route}::integer
        and x.state = 'unkeyed'
      order by x.position
      limit ${mostAtOnce}::integer`)
    if (rows.length === 0) return 0
    await tx.run(sql`/* workflows.lock */
      select correlation_id
      from ${workflowNames(log).workflows}
      where correlation_id = any(${[...new Set(rows.map(row => row[eventColumnCount + 1] as string))].sort(byBytes)}::text[])
      order by correlation_id
      for update`)
    const events = await decodeEvents(log, rows)
    const lanes = events.map(({ event, fault }) => (fault === undefined ? laneFor(handler, event) : null))
    await tx.run(sql`/* workflows.assign */
      select assigned
      from ${workflowNames(log).workflow_assign}(
        p_ids => ${rows.map(row => row[eventColumnCount])}::uuid[],
        p_lanes => ${lanes}::text[])`)
    return rows.length
  })
}

function laneFor(handler: Handler, event: RecordedEvent | undefined): string | null {
  try {
    const key: unknown = event === undefined ? undefined : handler.keyOf!(event)
    return typeof key === 'string' ? laneOf(handler.name, key) : null
  } catch {
    return null
  }
}
