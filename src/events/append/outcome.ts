/** Turns the database's answer to an append into results, an earlier outcome, or the error that says why not. */

import type { RillflowError } from '../../core/errors.ts'
import type { Executor } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import {
  DuplicateEventId,
  IdempotencyConflict,
  IdempotencyMismatch,
  StreamArchived,
  StreamTombstoned,
  VersionConflict,
} from '../errors.ts'
import type { Log } from '../log.ts'
import { expectedVersion } from './prepare.ts'
import type { Append, Outcome } from './send.ts'

/** The result of an append to one stream. */
export interface AppendResult {
  readonly stream: string
  /** The stream's version after it. */
  readonly version: number
  /** The position of its last event. */
  readonly position: number
  readonly eventIds: readonly string[]
  /** True if an earlier append with this idempotency key or these event ids had stored it; this is its outcome. */
  readonly repeated: boolean
}

/** The answer for the caller, or the error of a refusal. */
export function resultsOf(append: Append, outcome: Outcome): AppendResult[] {
  if (outcome.kind !== 'appended') throw refusal(append, outcome)
  return append.parts.map(({ stream, events }, at) => ({
    stream,
    version: outcome.versions[at]!,
    position: outcome.positions[at]!,
    eventIds: events.map(event => event.id),
    repeated: false,
  }))
}

/** The first outcome of an append that was stored before, found by its key or by its events' ids. */
export async function earlierResults(
  executor: Executor,
  log: Log,
  append: Pick<Append, 'parts' | 'key'>,
  by: 'key' | 'ids',
): Promise<AppendResult[]> {
  const ids = append.parts.flatMap(part => part.events.map(event => event.id))
  const rows = await executor.run<{ stream: string; version: number; position: number; ids: string }>(
    by === 'key'
      ? sql`/* events.outcome_of_key */
          select e.stream, max(e.version) as version, max(e.position) as position,
            string_agg(e.event_id::text, ',' order by e.version) as ids
          from ${log.names.idempotency_keys} as k
          join ${log.names.events} as e on e.event_id = any(k.event_ids)
          where k.key = ${append.key}::text
          group by e.stream`
      : sql`/* events.outcome_of_ids */
          select e.stream, max(e.version) as version, max(e.position) as position,
            string_agg(e.event_id::text, ',' order by e.version) as ids
          from ${log.names.events} as e
          where e.event_id = any(${ids}::uuid[])
          group by e.stream`,
  )
  const found = new Map(rows.map(row => [row.stream, row]))
  return append.parts.map(part => {
    const row = found.get(part.stream)
    if (row === undefined && by === 'key' && found.size > 0 && append.parts.length === 1)
      throw new IdempotencyMismatch({ key: append.key! })
    // Its events were deleted with the stream, when the retention of archived streams had passed.
    if (row === undefined) throw new StreamTombstoned({ stream: part.stream })
    const { stream, version, position } = row
    return { stream, version, position, eventIds: row.ids.split(','), repeated: true }
  })
}

/** How the append is a repeat: by its key, or by the ids of its events. Undefined if it is none, or must not be one. */
export function repeatedBy(append: Append, { kind }: Outcome, resent = false): 'key' | 'ids' | undefined {
  // An append that this process sent twice is still the caller's first call.
  if (kind === 'stored' && (resent || append.key === undefined)) return 'ids'
  if ((kind !== 'repeated' && kind !== 'stored') || append.onRepeat === 'error') return undefined
  return kind === 'repeated' ? 'key' : 'ids'
}

/**
 * Whether an append that was refused might be taken if it came later: an archived stream may be restored, and one that
 * has not got to the expected version yet may get there. One that is past it never comes back.
 */
export function mayStillBeStored(append: Append, { kind, failedPart, versions }: Outcome): boolean {
  if (kind === 'archived') return true
  if (kind !== 'conflict') return false
  const { expected } = append.parts[failedPart]!
  return expected === 'exists' || versions[failedPart]! < (expectedVersion(expected) ?? 0)
}

export function refusal(append: Append, { kind, failedPart, versions }: Outcome): RillflowError {
  const { stream, expected } = append.parts[failedPart]!
  const key = append.key ?? ''
  if (kind === 'conflict') {
    const wanted = expected === 'any' ? 0 : expected
    return new VersionConflict({ stream, expected: wanted, actual: versions[failedPart]! })
  }
  if (kind === 'archived') return new StreamArchived({ stream })
  if (kind === 'tombstoned') return new StreamTombstoned({ stream })
  if (kind === 'repeated' || kind === 'stored') return new IdempotencyConflict({ key })
  if (kind === 'mismatched') return new IdempotencyMismatch({ key })
  return new DuplicateEventId({ eventIds: append.parts.flatMap(part => part.events.map(event => event.id)) })
}
