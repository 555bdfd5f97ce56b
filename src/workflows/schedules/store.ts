/** Storing the schedules a process has: new ones begin, changed times begin anew, everything else goes on as it is. */

import { sql } from '../../database/sql.ts'
import { byBytes } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
import { workflowNames } from '../schema.ts'
import type { Schedule } from './schedule.ts'
import { dueTimes } from './times.ts'

export async function storeSchedules(log: Log, schedules: readonly Schedule[]): Promise<void> {
  const [row] = await log.database.run<{ now: Date }>(sql`/* workflows.now */
    select date_trunc('milliseconds', moment.at) as now
    from ${moment(log.names.clock)}`)
  const sorted = [...schedules].sort((a, b) => byBytes(a.name, b.name))
  const firsts = sorted.map(({ definition }) => dueTimes(definition).first(row!.now)?.toISOString() ?? null)
  await log.database.run(sql`/* workflows.store_schedules */
    insert into ${workflowNames(log).workflow_schedules} as s (name, digest, definition, next_at, created_at)
    select u.name, u.digest, u.definition::jsonb, u.next_at, ${log.names.clock}(u.n)
    from unnest(
      ${sorted.map(({ name }) => name)}::text[],
      ${sorted.map(({ digest }) => digest)}::text[],
      ${sorted.map(({ definition }) => JSON.stringify(definition))}::text[],
      ${firsts}::timestamptz[]) with ordinality as u(name, digest, definition, next_at, n)
    order by u.n
    on conflict (name) do update
    set digest = excluded.digest,
      definition = excluded.definition,
      next_at = case when s.digest = excluded.digest then s.next_at else excluded.next_at end
    where s.definition is distinct from excluded.definition`)
}
