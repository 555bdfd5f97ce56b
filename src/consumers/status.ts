/** The status of consumers: one query for the rows; the rows of a group become one status. */

import { nearestName } from '../core/name.ts'
import { checkWhole, refuseUnknownOptions } from '../core/options.ts'
import { decodeCursor, encodeCursor, type Page, type PageOptions, pageOptionNames } from '../core/page.ts'
import type { Executor } from '../database/database.ts'
import { fragment, sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import { settle } from '../events/order/order.ts'
import type { Consumer, ConsumerKind } from './consumer.ts'
import type { Consumers } from './consumers.ts'
import { cappedOpen } from './dead-letters/stats.ts'
import { ConsumerNotFound } from './errors.ts'
import { type ConsumerState, isHeld } from './row.ts'
import { groupKey, groupOf, readRows } from './row-names.ts'
import { isUnseen } from './runners/row.ts'
import { consumerNames } from './schema.ts'

/**
 * How far a consumer is, its runner, and its last error.
 *
 * @example
 * ```ts
 * const isBehind = ({ lag }: ConsumerStatus) => lag > 1_000
 * ;(await store.consumers.list()).items.filter(isBehind)
 * ```
 */
export interface ConsumerStatus {
  readonly name: string
  readonly kind: ConsumerKind
  /** Of a subscription. */
  readonly group: string | undefined
  /** `active`, or `inline` (applied with each append), or `rebuilding`. */
  readonly state: 'active' | 'inline' | 'rebuilding'
  /** Whether this store has its code. */
  readonly isRegistered: boolean
  /** Whether no process has had its code for a minute: it may be removed if it is no longer needed. */
  readonly isOrphaned: boolean
  /** Everything up to here is applied; of a group in partitions, by the one that is furthest behind. */
  readonly checkpoint: number
  /** The last settled position. */
  readonly head: number
  /** Whether the log ends before the checkpoint: it is another log, or an older one, and the consumer does not run. */
  readonly isBeyondHead: boolean
  /** Positions between checkpoint and head; not all of them need be events it wants. */
  readonly lag: number
  /** How long the first event after the checkpoint has been waiting; 0 if there is none. */
  readonly lagSeconds: number
  readonly isPaused: boolean
  /** Failures in a row of the event after the checkpoint. */
  readonly attempts: number
  /** The wait before the next attempt; undefined if it does not wait. */
  readonly retryInMs: number | undefined
  /** The runner that holds it, and for how long still. */
  readonly lease: { readonly owner: string; readonly expiresInMs: number } | undefined
  /** Those that are open or being retried; of each 10 000 are counted at most. */
  readonly deadLetters: number
  /** A rebuild of its read model that is running, in any process, or was interrupted. */
  readonly rebuild: RebuildStatus | undefined
  readonly lastError: StoredError | undefined
  /** When its checkpoint last moved; undefined if nothing is stored of it yet. */
  readonly progressedAt: Date | undefined
}

export interface RebuildStatus {
  /** How far the new tables are. */
  readonly position: number
  /** Whether a process works on it now; otherwise it was interrupted, and the next rebuild continues it. */
  readonly isRunning: boolean
  readonly startedAt: Date
}

/** One row of it. */
export interface RowStatus extends Omit<ConsumerStatus, 'group' | 'isRegistered' | 'isOrphaned'> {
  /** Whether no other process has had its code for a minute. */
  readonly isUnseen: boolean
}

export interface StoredError {
  readonly name: string
  readonly message: string
  readonly code?: string | undefined
  readonly stack?: string | undefined
  /** The event it is about. */
  readonly eventId?: string | undefined
  readonly position?: number | undefined
  readonly attempt?: number | undefined
  /** When it happened. */
  readonly at?: string | undefined
  /** When its event failed first. */
  readonly firstAt?: string | undefined
  /** Those of the attempts before it, the oldest first. */
  readonly earlier?: readonly StoredError[] | undefined
}

export interface ListConsumersOptions extends PageOptions {
  /** Default: all. */
  readonly kind?: ConsumerKind | undefined
}

/** By name; of a subscription one for each group. Tables that are being rebuilt are part of their projection. */
export async function listConsumers(
  consumers: Consumers,
  options: ListConsumersOptions,
): Promise<Page<ConsumerStatus>> {
  refuseUnknownOptions('store.consumers.list', options, ['kind', ...pageOptionNames])
  const { kind, after, limit = 100 } = options
  checkWhole('limit', limit, 1, 10_000)
  const { log } = consumers
  const [last] = after === undefined ? [''] : (decodeCursor(after, 1) as [string])
  const rows = await log.database.run<{ name: string; kind: ConsumerKind }>(sql`/* consumers.list */
    select name, kind
    from ${consumerNames(log).consumers}
    where (${kind ?? null}::text is null or kind = ${kind ?? null}::text)
      and not definition ? 'rebuilds'
    order by name`)
  const stored = new Set(rows.map(row => row.name))
  const isNew = (each: Consumer): boolean => !stored.has(each.name) && (kind === undefined || each.kind === kind)
  const unstored = new Map(
    consumers
      .list()
      .filter(isNew)
      .map(each => [each.name, each]),
  )
  const keys = [...new Set([...rows.map(keyOf), ...unstored.keys()])].filter(key => key > last).sort()
  const page = new Set(keys.slice(0, limit))
  const names = rows.filter(row => page.has(keyOf(row))).map(row => row.name)
  const items = combine(consumers, await readStatus(log, { names }))
  for (const name of page) if (unstored.has(name)) items.push(await statusOfNew(log, unstored.get(name)!))
  items.sort((a, b) => (keyOfStatus(a) < keyOfStatus(b) ? -1 : 1))
  return { items, next: keys.length > limit ? encodeCursor([keys[limit - 1]]) : undefined }
}

/** A consumer whose code this store has, and that has no row yet. */
async function statusOfNew(log: Log, { name, kind, from }: Consumer): Promise<ConsumerStatus> {
  const { settled: head } = await settle(log)
  const checkpoint = from === 'start' ? 0 : from === 'now' ? head : Math.min(from, head)
  return {
    ...{ name, kind, checkpoint, head, group: undefined, state: 'active', isRegistered: true },
    ...{ isOrphaned: false, isPaused: false },
    ...{ lag: head - checkpoint, lagSeconds: 0, attempts: 0, retryInMs: undefined, lease: undefined },
    ...{ deadLetters: 0, rebuild: undefined, lastError: undefined, progressedAt: undefined, isBeyondHead: false },
  }
}

/** Of one consumer, or of one group of a subscription. */
export async function readGroupStatus(consumers: Consumers, name: string, group: string): Promise<ConsumerStatus> {
  const { log } = consumers
  const own = await readStatus(log, { names: [name] })
  const rows = own.length > 0 ? own : await readStatus(log, { names: await readRows(log, name, group) })
  const [status] = combine(consumers, rows)
  if (status !== undefined) return status
  const registered = consumers.get(name)
  if (registered === undefined) throw await notFound(consumers, name, group)
  return statusOfNew(log, registered)
}

/** The error for a name, or a group, that does not exist. */
export async function notFound(
  consumers: Consumers,
  consumer: string,
  group: string | undefined,
  executor: Executor = consumers.log.database,
): Promise<InstanceType<typeof ConsumerNotFound>> {
  const rows = await executor.run<{ name: string; kind: ConsumerKind }>(sql`/* consumers.names */
    select name, kind
    from ${consumerNames(consumers.log).consumers}`)
  const groups = rows.filter(row => row.kind === 'subscription').map(row => groupOf(row.name))
  const known = groups.filter(each => each.name === consumer).map(each => each.group)
  if (group !== undefined && known.length > 0)
    return new ConsumerNotFound({ consumer, group, nearest: nearestName(group, known) })
  const names = [
    ...consumers.list().map(each => each.name),
    ...(consumers.divided?.names() ?? []),
    ...groups.map(each => each.name),
    ...rows.map(row => row.name),
  ]
  return new ConsumerNotFound({ consumer, nearest: nearestName(consumer, names) })
}

/** One status for the rows of each group. */
function combine(consumers: Consumers, rows: readonly RowStatus[]): ConsumerStatus[] {
  const byKey = new Map<string, RowStatus[]>()
  for (const row of rows) {
    const key = keyOf(row)
    byKey.set(key, [...(byKey.get(key) ?? []), row])
  }
  return [...byKey.values()].map(all => {
    const slowest = all.reduce((a, b) => (b.checkpoint < a.checkpoint ? b : a))
    const { name, group } =
      slowest.kind === 'subscription' ? groupOf(slowest.name) : { name: slowest.name, group: undefined }
    const isRegistered = consumers.hasCodeFor(slowest)
    const { isUnseen: _, ...status } = slowest
    return {
      ...status,
      ...{ name, group, isRegistered },
      isOrphaned: !isRegistered && all.every(row => row.isUnseen),
      isPaused: all.every(row => row.isPaused),
      isBeyondHead: all.some(row => row.isBeyondHead),
      deadLetters: all.reduce((sum, row) => sum + row.deadLetters, 0),
      lastError: all.find(row => row.lastError !== undefined)?.lastError,
      lease: slowest.lease ?? all.find(row => row.lease !== undefined)?.lease,
    }
  })
}

function keyOfStatus({ name, group }: ConsumerStatus): string {
  return group === undefined ? name : groupKey({ name, group })
}

function keyOf({ name, kind }: { readonly name: string; readonly kind: ConsumerKind }): string {
  return kind === 'subscription' ? groupKey(groupOf(name)) : name
}

interface StatusRow {
  name: string
  kind: ConsumerKind
  state: ConsumerState
  checkpoint: number
  lag_seconds: number | null
  paused: boolean
  attempts: number
  retry_in: number | null
  owner: string | null
  expires_in: number | null
  dead_letters: number
  rebuild: { position: number; is_running: boolean; started_at: string } | null
  last_error: StoredError | null
  progressed_at: Date
  unseen: boolean
}

/** The rows of these names, or of a kind, or all. */
export async function readStatus(
  log: Log,
  { names, kind }: { names?: readonly string[] | undefined; kind?: ConsumerKind | undefined } = {},
): Promise<RowStatus[]> {
  const { settled, head } = await settle(log)
  const { clock } = log.names
  const { consumers } = consumerNames(log)
  const rows = await log.database.run<StatusRow>(sql`/* consumers.status */
    select
      c.name, c.kind, c.state, c.checkpoint, c.attempts, c.progressed_at, c.last_error,
      c.paused_at is not null as paused,
      ${isUnseen(log)} as unseen,
      (extract(epoch from c.retry_at - ${clock}(c.retry_at)) * 1000)::float8 as retry_in,
      case when ${isHeld(log)} then c.owner end as owner,
      (extract(epoch from c.lease_until - ${clock}(c.lease_until)) * 1000)::float8 as expires_in,
      ${cappedOpen(log, fragment`c.name`)} as dead_letters,
      (select jsonb_build_object('position', b.checkpoint, 'started_at', b.created_at,
          'is_running', coalesce(b.lease_until > ${clock}(b.lease_until), false))
        from ${consumers} as b
        where b.definition ->> 'rebuilds' = c.name
        limit 1) as rebuild,
      (select extract(epoch from ${clock}(e.created_at) - e.created_at)::float8
        from ${log.names.events} as e
        where e.position > c.checkpoint
          and e.position <= ${settled}::bigint
        order by e.position
        limit 1) as lag_seconds
    from ${consumers} as c
    where (${names ?? null}::text[] is null or c.name = any(${names ?? null}::text[]))
      and (${kind ?? null}::text is null or c.kind = ${kind ?? null}::text)
    order by c.name`)
  return rows.map(row => ({ ...statusOf(row, settled), isBeyondHead: row.state !== 'inline' && row.checkpoint > head }))
}

function statusOf(row: StatusRow, head: number): Omit<RowStatus, 'isBeyondHead'> {
  const { name, kind, attempts } = row
  const isInline = row.state === 'inline'
  const checkpoint = isInline && row.checkpoint < head ? head : row.checkpoint
  return {
    name,
    kind,
    state: isInline ? 'inline' : row.state === 'emptying' || row.state === 'rebuilding' ? 'rebuilding' : 'active',
    checkpoint,
    head,
    lag: checkpoint < head ? head - checkpoint : 0,
    lagSeconds: isInline ? 0 : Math.max(0, row.lag_seconds ?? 0),
    isPaused: row.paused,
    attempts,
    retryInMs: row.retry_in !== null && row.retry_in > 0 ? row.retry_in : undefined,
    lease: row.owner === null ? undefined : { owner: row.owner, expiresInMs: Math.max(0, row.expires_in ?? 0) },
    deadLetters: Number(row.dead_letters),
    rebuild: row.rebuild === null ? undefined : rebuildOf(row.rebuild),
    lastError: row.last_error ?? undefined,
    progressedAt: row.progressed_at,
    isUnseen: row.unseen,
  }
}

function rebuildOf({ position, is_running, started_at }: NonNullable<StatusRow['rebuild']>): RebuildStatus {
  return { position, isRunning: is_running, startedAt: new Date(started_at) }
}
