/**
 * The end of a run: its events, its record and the next due time are stored in one transaction, and only under the fence it
 * was claimed with. There is one record for each due time, so none is run twice, whatever becomes of the row.
 */

import { sql } from '../../database/sql.ts'
import { type AppendParts, appendIn } from '../../events/append/append.ts'
import { moment } from '../../schema/clock.sql.ts'
import { workflowNames } from '../schema.ts'
import type { ClaimedSchedule } from './claim.ts'
import { correlationOf, type EndedRun } from './run.ts'

/** Returns when it is due next, by the database's clock (undefined: never), or false if the claim was not ours any more. */
export async function endRun(
  parts: AppendParts,
  claimed: ClaimedSchedule,
  nextAt: Date | undefined,
  { outcome, append, error }: EndedRun,
): Promise<{ readonly inMs: number | undefined } | false> {
  const { log } = parts
  const { name, fence, isManual } = claimed
  const dueAt = claimed.dueAt.toISOString()
  return log.database.transaction(async tx => {
    const [row] = await tx.run<{ next_in: number | null }>(sql`/* workflows.end_schedule */
      update ${workflowNames(log).workflow_schedules}
      set claimed_until = null,
        owner = null,
        begun_at = case when ${isManual}::boolean then begun_at end,
        -- Another one if its definition was changed meanwhile: that holds.
        next_at = case
          when not ${isManual}::boolean and next_at = ${dueAt}::timestamptz then ${nextAt?.toISOString() ?? null}::timestamptz
          else next_at
        end,
        triggers = case when ${isManual}::boolean then triggers[2:] else triggers end,
        last_at = case when ${outcome ?? null}::text is null then last_at else ${dueAt}::timestamptz end,
        last_outcome = coalesce(${outcome ?? null}::text, last_outcome)
      where name = ${name}::text
        and fence = ${fence}::bigint
        and claimed_until is not null
      returning (extract(epoch from least(triggers[1], case when paused_at is null then next_at end)
        - ${log.names.clock}(name)) * 1000)::float8 as next_in`)
    if (row === undefined) return false
    const eventIds = append?.parts.flatMap(part => part.events.map(({ id }) => id)) ?? []
    const recorded =
      outcome === undefined
        ? []
        : await tx.run(sql`/* workflows.record_schedule */
      insert into ${workflowNames(log).workflow_schedule_runs}
        (schedule, due_at, is_manual, started_at, outcome, correlation_id, event_ids, error,
          ended_at)
      select ${name}::text, ${dueAt}::timestamptz, ${isManual}::boolean, ${claimed.now.toISOString()}::timestamptz,
        ${outcome}::text, ${correlationOf(claimed.definition, claimed)}::text, ${eventIds}::uuid[],
        ${error === undefined ? null : JSON.stringify(error)}::jsonb, moment.at
      from ${moment(log.names.clock)}
      on conflict do nothing
      returning schedule`)
    // Last: from here on others wait for the end of this transaction to read on in the log.
    if (append !== undefined && recorded.length > 0) await appendIn(parts, append, tx)
    return { inMs: row.next_in ?? undefined }
  })
}
