/**
 * Cutting a log at a position, for a store that nobody uses meanwhile: one that was just restored or imported.
 *
 *     idempotency keys ─► workflows ─► dead letters, deliveries ─► consumers ─► events and streams, from the end
 *
 * Afterwards the log is what it was when its last event was the one at the position, and what follows it says so:
 * - Events above are gone; streams have the versions that their events give them, those without any are gone, and one whose
 *   tombstone was cut away is open again. Snapshots of later versions, keys of appends that were cut, and the marks of
 *   imports since then are gone.
 * - Subscriptions, processors, snapshotters and the dispatcher go on from the position.
 * - Projections that had passed it owe a rebuild: a daemon does it before it applies anything new; an inline one does it when
 *   it is registered.
 * - Workflows: see `workflows/cut.ts`.
 * - Documents are as they were: there is no telling which of them belongs to which event.
 * - The sequence stays where it was, above everything it ever gave out: positions never go back.
 *
 * Each step is a transaction, or several; all can be done again, and events go last. So a cut that was interrupted is
 * simply begun anew.
 */

import { aggregateNames } from '../../aggregates/schema.ts'
import { removeBeyond as removeDeadLetters } from '../../consumers/dead-letters/row.ts'
import { moveAllBack } from '../../consumers/operator.ts'
import { throwIfAborted } from '../../core/lifecycle.ts'
import type { Database, Executor } from '../../database/database.ts'
import { type Statement, sql } from '../../database/sql.ts'
import { logNames } from '../../events/log.ts'
import { tombstoneType } from '../../events/streams/streams.ts'
import { removeBeyond as removeDeliveries } from '../../subscriptions/save.ts'
import { type CutWorkflows, cutWorkflows } from '../../workflows/cut.ts'

export interface CutOptions {
  signal?: AbortSignal | undefined
  /** Told how many events have gone so far. */
  onProgress?: ((events: number) => void) | undefined
}

export interface CutLog extends CutWorkflows {
  /** How many events were above the position. */
  readonly events: number
  /** The projections that owe a rebuild. */
  readonly projections: readonly string[]
}

type CutNames = ReturnType<typeof namesIn>

function namesIn(schema: string) {
  return { ...logNames(schema), ...aggregateNames({ schema }) }
}

const chunk = 1_000
const limits = { timeoutMs: 10 * 60_000 }

export async function cutLog(
  database: Database,
  schema: string,
  position: number,
  { signal, onProgress }: CutOptions = {},
): Promise<CutLog> {
  const names = namesIn(schema)
  const log = { schema, names }
  const inOne = async <T>(work: (tx: Executor) => Promise<T>): Promise<T> => {
    throwIfAborted(signal)
    return database.transaction(work, limits)
  }
  await inOne(async tx => {
    await tx.run(forgetKeys(names, position))
    await tx.run(forgetImports(names, position))
  })
  const workflows = await cutWorkflows(database, schema, position, inOne)
  const projections = await inOne(async tx => {
    await removeDeadLetters(log, position, tx)
    await removeDeliveries(log, position, tx)
    const [beyond] = await tx.run<{ exists: boolean }>(sql`/* backup.has_beyond */
      select exists (
        select
        from ${names.events}
        where position > ${position}::bigint) as exists`)
    return moveAllBack(log, position, beyond!.exists, tx)
  })
  let events = 0
  for (let count = chunk; count === chunk; ) {
    count = await inOne(tx => cutEvents(names, tx, position))
    events += count
    if (count > 0) onProgress?.(events)
  }
  return { events, projections, ...workflows }
}

/** A key whose events are only in part beyond the position belongs to an append that is not whole any more. */
function forgetKeys(names: CutNames, position: number): Statement {
  return sql`/* upkeep.cut_keys */
    delete from ${names.idempotency_keys} as k
    where exists (
      select
      from unnest(k.event_ids) as i(id)
      join ${names.events} as e on e.event_id = i.id
      where e.position > ${position}::bigint)`
}

/** An import does not know its positions: those that have stored anything since the first event that goes. */
function forgetImports(names: CutNames, position: number): Statement {
  return sql`/* upkeep.cut_imports */
    delete from ${names.imports}
    where updated_at >= (
      select min(created_at)
      from ${names.events}
      where position > ${position}::bigint)`
}

/** The last events, and their streams with them: the log is whole after each chunk. */
async function cutEvents(names: CutNames, tx: Executor, position: number): Promise<number> {
  const rows = await tx.run<{
    stream: string
    version: number
    count: number
    ended: boolean
  }>(sql`/* upkeep.cut_events */
    with cut as (
      delete from ${names.events}
      where position in (
        select e.position
        from ${names.events} as e
        where e.position > ${position}::bigint
        order by e.position desc
        limit ${chunk}::integer)
      returning stream, version, type)
    select stream, min(version) - 1 as version, count(*) as count, bool_or(type = ${tombstoneType}::text) as ended
    from cut
    group by stream`)
  if (rows.length === 0) return 0
  const streams = rows.map(row => row.stream)
  const versions = rows.map(row => row.version)
  await tx.run(sql`/* upkeep.cut_streams */
    update ${names.streams} as s
    set version = u.version,
      archived_at = case when u.ended and s.archived_at = s.tombstoned_at then null else s.archived_at end,
      reason = case when u.ended and s.archived_at = s.tombstoned_at then null else s.reason end,
      tombstoned_at = case when u.ended then null else s.tombstoned_at end
    from unnest(${streams}::text[], ${versions}::bigint[], ${rows.map(row => row.ended)}::boolean[])
      as u(stream, version, ended)
    where s.stream = u.stream`)
  await tx.run(sql`/* upkeep.cut_empty_streams */
    delete from ${names.streams}
    where stream = any(${streams}::text[])
      and version = 0`)
  await tx.run(sql`/* upkeep.cut_snapshots */
    delete from ${names.snapshots} as n
    using unnest(${streams}::text[], ${versions}::bigint[]) as u(stream, version)
    where n.stream = u.stream
      and n.version > u.version`)
  return rows.reduce((sum, row) => sum + Number(row.count), 0)
}
