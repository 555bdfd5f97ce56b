/**
 * An append that meets inline projections, in one transaction:
 *
 *     append_check ──► the projections, one after the other ──► append_store ──► commit
 *     keys, streams locked, ids,  they see versions, no          announce, draw
 *     versions                    positions                      positions, insert
 *
 * No code of anybody's runs while a bound is announced, so a slow projection holds back nobody's reading. Two appends that
 * change one document wait for each other before positions are drawn: what a projection does to a document, it does in
 * the order of positions.
 */
import { HandlerTimeout, isRillflowError, type RillflowError } from '../../core/errors.ts'
import { abortable, onAbort } from '../../core/lifecycle.ts'
import type { Transaction } from '../../database/database.ts'
import { lendTransaction } from '../../database/handle.ts'
import { sql } from '../../database/sql.ts'
import { isCollision, isConnectionLost, sqlStateOf, toRillflowError } from '../../database/sqlstate.ts'
import { expectedVersion, expectedWord } from '../append/prepare.ts'
import {
  type Append,
  byBytes,
  columnsOf,
  eventArguments,
  lockStreams,
  type Outcome,
  type OutcomeKind,
  placeArguments,
} from '../append/send.ts'
import type { RecordedEvent } from '../definition.ts'
import { InlineProjectionFailed, InlineProjectionUnknown } from '../errors.ts'
import type { Log } from '../log.ts'
import { eventsOfRows } from '../read/rows.ts'
import type { InlineProjection } from './registry.ts'

/** Rejects if a projection does; then the transaction, or a savepoint around it, has to be rolled back. */
export async function appendInline(log: Log, append: Append, tx: Transaction, over?: AbortSignal): Promise<Outcome> {
  if (append.advisoryLock) await lockStreams(tx, log, append)
  const checked = await check(log, append, tx)
  log.inline.learn(append, checked.active.size > 0)
  if (checked.kind !== 'appended') return { ...checked, positions: [] }
  const projections = codeOf(log, checked.active)
  await append.beside?.(tx, append.parts)
  if (projections.length > 0) {
    const events = await eventsOfRows(log, provisionalRows(append, checked))
    for (const projection of projections) await apply(log, projection, events, tx, over)
  }
  return { kind: 'appended', failedPart: 0, ...(await store(log, append, checked, tx)) }
}

/** How long the transaction around it may take: its projections, and the waiting for streams before. */
export function inlineTimeout(log: Log): number {
  return log.inline.list().reduce((sum, projection) => sum + timeoutOf(log, projection), defaultTimeout(log))
}

interface Checked extends Omit<Outcome, 'positions'> {
  readonly createdAt: Date
  /** The inline projections that want some of it, with their versions. */
  readonly active: ReadonlyMap<string, number>
}

async function check(log: Log, append: Append, tx: Transaction): Promise<Checked> {
  const { parts } = append
  const streams = parts.map(part => part.stream).sort(byBytes)
  const { ids, types, data } = columnsOf(parts.flatMap(part => part.events))
  const [row] = await tx.runArrays(sql`/* events.append_check */
    select
      outcome, failed_part, to_jsonb(versions), created_at, to_jsonb(inline_names), to_jsonb(inline_versions)
    from ${log.names.append_check}(
      p_streams => ${streams}::text[],
      p_part_streams => ${parts.map(part => streams.indexOf(part.stream) + 1)}::integer[],
      p_part_expected => ${parts.map(part => expectedWord(part.expected))}::text[],
      p_part_versions => ${parts.map(part => expectedVersion(part.expected))}::bigint[],
      p_part_counts => ${parts.map(part => part.events.length)}::integer[],
      p_allow_archived => ${append.allowArchived}::boolean,
      p_check_ids => ${append.checkIds}::boolean,
      p_key => ${append.key ?? null}::text,
      p_digest => ${append.digest ?? null}::text,
      p_event_parts => ${parts.flatMap((part, at) => part.events.map(() => at + 1))}::integer[],
      p_ids => ${ids}::uuid[],
      p_types => ${types}::text[],
      p_data => ${data}::jsonb)`)
  const [kind, failed, versions, createdAt, names, numbers] = row as [
    OutcomeKind,
    number,
    number[] | null,
    Date,
    string[] | null,
    number[] | null,
  ]
  const active = new Map((names ?? []).map((name, at) => [name, numbers![at]!]))
  return { kind, failedPart: Math.max(0, failed - 1), versions: versions ?? [], createdAt, active }
}

/** The active projections in the order they were registered; the database decides which, and in which version. */
function codeOf(log: Log, active: ReadonlyMap<string, number>): InlineProjection[] {
  for (const [projection, version] of active) {
    const known = log.inline.get(projection)?.version
    if (known !== version) throw new InlineProjectionUnknown({ projection, version, known })
  }
  return log.inline.list().filter(({ name }) => active.has(name))
}

async function apply(
  log: Log,
  projection: InlineProjection,
  events: readonly RecordedEvent[],
  tx: Transaction,
  over: AbortSignal | undefined,
): Promise<void> {
  const { name, types } = projection
  const wanted = types === undefined ? events : events.filter(event => types.includes(event.type))
  if (wanted.length === 0) return
  const { telemetry, schema } = log
  if (!telemetry.isTraced) return applyWanted(log, projection, wanted, tx, over)
  const start = { name: 'projections.inline', schema, causes: wanted, fields: { consumer: name } } as const
  return telemetry.span(start, () => applyWanted(log, projection, wanted, tx, over))
}

async function applyWanted(
  log: Log,
  projection: InlineProjection,
  wanted: readonly RecordedEvent[],
  tx: Transaction,
  over: AbortSignal | undefined,
): Promise<void> {
  const { name } = projection
  const timeoutMs = timeoutOf(log, projection)
  const controller = new AbortController()
  const { handle, shut } = lendTransaction(tx)
  const late = new HandlerTimeout({ consumer: name, timeoutMs })
  const timer = log.clock.setTimeout(() => controller.abort(late), timeoutMs)
  const release = over && onAbort(over, () => controller.abort(over.reason))
  try {
    await abortable(projection.apply(wanted, handle, controller.signal), controller.signal)
  } catch (error) {
    throw failureOf(name, controller.signal.reason === late ? late : error)
  } finally {
    shut()
    timer.cancel()
    release?.()
  }
}

/** A projection that lost its connection, or collided with another transaction, has not failed by itself. */
function failureOf(projection: string, error: unknown): RillflowError {
  for (let cause = error, depth = 0; cause instanceof Error && depth < 5; cause = cause.cause, depth++) {
    const state = sqlStateOf(cause)
    const isLost = isRillflowError(cause, 'connection_lost') || (state !== undefined && isConnectionLost(cause))
    if (isLost || isCollision(state) || isRillflowError(cause, 'serialization_failed'))
      return toRillflowError(cause, `inline projection ${projection}`)
  }
  const reason = error instanceof Error ? error.message : String(error)
  return new InlineProjectionFailed({ projection, reason }, error)
}

async function store(
  log: Log,
  append: Append,
  { versions, createdAt }: Checked,
  tx: Transaction,
): Promise<Pick<Outcome, 'versions' | 'positions'>> {
  const { parts } = append
  const [row] = await tx.runArrays(sql`/* events.append_store */
    select positions
    from ${log.names.append_store}(
      p_streams => ${parts.map(part => part.stream)}::text[],
      p_base => ${versions}::bigint[],
      p_created_at => ${createdAt.toISOString()}::timestamptz,
      ${placeArguments(parts)},
      ${eventArguments(parts.flatMap(part => part.events))})`)
  const [drawn] = row as [number[]]
  let count = 0
  const positions = parts.map(part => {
    count += part.events.length
    return drawn[count - 1]!
  })
  return { versions: parts.map((part, at) => versions[at]! + part.events.length), positions }
}

/** The events as they will be read, but for their position: in the columns that reading takes. */
function provisionalRows(append: Append, { versions, createdAt }: Checked): unknown[][] {
  return append.parts.flatMap((part, at) =>
    part.events.map((event, n) => {
      const place = [0, part.stream, versions[at]! + n + 1, event.id, event.type, event.schemaVersion]
      const said = [JSON.parse(event.data), event.headers === undefined ? null : JSON.parse(event.headers)]
      return [...place, ...said, event.correlationId, event.causationId ?? null, event.userId ?? null, createdAt]
    }),
  )
}

function timeoutOf(log: Log, { timeoutMs }: InlineProjection): number {
  return timeoutMs ?? defaultTimeout(log)
}

function defaultTimeout({ database }: Log): number {
  return database.engine === 'pglite' ? 5_000 : 30_000
}
