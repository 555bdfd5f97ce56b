/**
 * Snapshots: a state as text, with the version of the stream it belongs to. A state that would come back from its text as
 * something else (a Date, an instance of a class) is refused rather than written.
 *
 *     commit ──► snapshotOf: due? ──► writeSnapshots ◄── the snapshotter (a consumer)
 *     load ◄──── thaw ◄──── snapshots: one row per stream and version of the state's shape
 *
 * Guarantees:
 * - A snapshot is the fold of the events up to its version. A newer one is never replaced by an older one.
 * - A state that cannot be written (`SnapshotRefused`) does not fail the commit: a warning says so, and later loads fold
 *   the events.
 */

import { isRillflowError } from '../core/errors.ts'
import { encodeJson, pathText } from '../core/json.ts'
import type { Executor } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import type { Alongside } from '../events/append/send.ts'
import type { Log } from '../events/log.ts'
import type { Aggregate } from './aggregate.ts'
import { SnapshotRefused } from './errors.ts'
import type { Staged } from './loaded.ts'
import { aggregateNames } from './schema.ts'

export interface Snapshot {
  readonly stream: string
  readonly version: number
  /** The event of that version. */
  readonly eventId: string
  readonly text: string
}

/** The text of a state; `SnapshotRefused` if the state could not be restored from it. */
export function freeze(
  aggregate: Aggregate,
  stream: string,
  state: unknown,
  maxBytes: number = maxSnapshotBytes,
): string {
  const { snapshotForm: form, name } = aggregate
  const refuse = (path: string, reason: string, cause?: unknown): never => {
    throw new SnapshotRefused({ aggregate: name, stream, path, reason }, cause)
  }
  if (form === 'none') return refuse('state', 'is an instance of a class without snapshot and hydrate')
  try {
    const body = form === 'plain' ? state : form.write(state)
    const { text } = encodeJson(body, { what: name, root: 'state', maxBytes })
    const fault = form === 'plain' ? findUnlike(body, []) : undefined
    return fault === undefined ? text : refuse(pathText('state', fault), 'is not plain JSON')
  } catch (error) {
    if (isRillflowError(error, 'snapshot_refused')) throw error
    const known = error as { path?: string; reason?: string; message?: string }
    return refuse(known.path ?? 'state', known.reason ?? `cannot be written: ${known.message ?? String(error)}`, error)
  }
}

/** The state that was frozen. */
export function thaw({ snapshotForm: form }: Aggregate, body: unknown): unknown {
  return form === 'plain' || form === 'none' ? body : form.read(body)
}

const maxSnapshotBytes = 16 * 1024 * 1024

/** Where a value that JSON can hold comes back from it as something else. */
function findUnlike(value: unknown, keys: readonly PropertyKey[]): readonly PropertyKey[] | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const prototype = Object.getPrototypeOf(value) as unknown
  const isArray = Array.isArray(value)
  const isPlain = isArray ? prototype === Array.prototype : prototype === Object.prototype || prototype === null
  if (!isPlain || 'toJSON' in value) return keys
  for (const [key, each] of Object.entries(value)) {
    const fault = findUnlike(each, [...keys, isArray ? Number(key) : key])
    if (fault !== undefined) return fault
  }
  return undefined
}

/** Whether a commit from one version to another writes a snapshot: it reaches or passes a multiple of `every`. */
export function isDue({ snapshots }: Aggregate, before: number, after: number): boolean {
  if (snapshots === undefined || snapshots.lifecycle === 'async') return false
  return Math.floor(after / snapshots.every) > Math.floor(before / snapshots.every)
}

/**
 * Writes snapshots in the order of their streams, and deletes those of an older shape. A snapshot that is behind the stored
 * one changes nothing, whichever is written last.
 */
export async function writeSnapshots(
  log: Log,
  executor: Executor,
  { stateVersion }: Aggregate,
  snapshots: readonly Snapshot[],
): Promise<number> {
  if (snapshots.length === 0) return 0
  const rows = await executor.run(sql`/* snapshots.write */
    with given as (
      select stream, version, event_id, body
      from unnest(
        ${snapshots.map(each => each.stream)}::text[],
        ${snapshots.map(each => each.version)}::bigint[],
        ${snapshots.map(each => each.eventId)}::uuid[],
        ${snapshots.map(each => each.text)}::text[]) as g(stream, version, event_id, body)
    ), outdated as (
      delete from ${aggregateNames(log).snapshots} as o
      using given as g
      where o.stream = g.stream
        and o.state_version < ${stateVersion}::integer
    )
    insert into ${aggregateNames(log).snapshots} as stored (stream, state_version, version, event_id, body, created_at)
    select stream, ${stateVersion}::integer, version, event_id, body::json, ${log.names.clock}(stream)
    from given
    order by stream collate "C"
    on conflict (stream, state_version) do update
    set version = excluded.version,
      event_id = excluded.event_id,
      body = excluded.body,
      created_at = excluded.created_at
    where excluded.version > stored.version
    returning stream`)
  log.telemetry.count('snapshots_written_total', rows.length)
  return rows.length
}

export interface SampledSnapshot {
  readonly stream: string
  readonly version: number
  readonly body: unknown
}

/** A sample for checks: snapshots of this shape of an aggregate, from both ends of its streams. */
export async function sampleSnapshots(log: Log, aggregate: Aggregate, count: number): Promise<SampledSnapshot[]> {
  const { name, stateVersion } = aggregate
  // A dot comes right after the dash that ends a category.
  const [from, to] = [`${name}-`, `${name}.`]
  return log.database.run<SampledSnapshot>(sql`/* snapshots.sample */
    (select stream, version, body
      from ${aggregateNames(log).snapshots}
      where stream >= ${from}::text collate "C"
        and stream < ${to}::text collate "C"
        and state_version = ${stateVersion}::integer
      order by stream
      limit ${count}::integer)
    union all
    (select stream, version, body
      from ${aggregateNames(log).snapshots}
      where stream >= ${from}::text collate "C"
        and stream < ${to}::text collate "C"
        and state_version = ${stateVersion}::integer
      order by stream desc
      limit ${count}::integer)`)
}

/** A snapshot that is stored, without its state. */
export interface StoredSnapshot {
  /** The version of the stream that it holds. */
  readonly version: number
  /** The version of the shape of its state, as its aggregate has it. */
  readonly stateVersion: number
  readonly createdAt: Date
  readonly bytes: number
}

/** The snapshots of a stream: one for each shape that its state has had, the newest shape first. */
export async function readSnapshots(log: Log, stream: string): Promise<StoredSnapshot[]> {
  return log.database.run<StoredSnapshot & Record<string, unknown>>(sql`/* snapshots.of */
    select version, state_version as "stateVersion", created_at as "createdAt", octet_length(body::text) as bytes
    from ${aggregateNames(log).snapshots}
    where stream = ${stream}::text
    order by state_version desc
    limit 100`)
}

/** Deletes the snapshots of streams: those beyond the version that a stream has left, or all of a stream without one. */
export async function removeSnapshots(
  store: { readonly schema: string },
  streams: readonly { readonly stream: string; readonly version?: number }[],
  tx: Executor,
): Promise<void> {
  await tx.run(sql`/* aggregates.remove_snapshots */
    delete from ${aggregateNames(store).snapshots} as n
    using unnest(
      ${streams.map(each => each.stream)}::text[],
      ${streams.map(each => each.version ?? -1)}::bigint[]) as u(stream, version)
    where n.stream = u.stream
      and n.version > u.version`)
}

/**
 * Writes the snapshot that a commit makes due, in the transaction of its append, between the checks and the positions:
 * the snapshot is committed with the events or not at all, and since the version is checked under the lock of the
 * stream, it is the fold of the events up to its version. Undefined if none is due.
 */
export function snapshotOf(
  { log }: { readonly log: Log },
  aggregate: Aggregate,
  staged: Staged,
): Alongside['write'] | undefined {
  const { stream, events, expected, version, state } = staged
  // An event of an older shape is upcast when it is read: the fold would be another one.
  const isCurrent = events.every(event => event.schemaVersion === undefined)
  if (!isDue(aggregate, expected, version) || !isCurrent) return undefined
  try {
    const text = freeze(aggregate, stream, state)
    return async (tx, parts) => {
      const eventId = parts.find(part => part.stream === stream)!.events.at(-1)!.id
      await writeSnapshots(log, tx, aggregate, [{ stream, version, eventId, text }])
    }
  } catch (error) {
    if (!isRillflowError(error, 'snapshot_refused')) throw error
    log.telemetry.count('snapshots_refused_total')
    log.telemetry.log.warn(
      { schema: log.schema, stream, error },
      'A snapshot was due and could not be written. The commit succeeded without it.',
    )
    return undefined
  }
}
