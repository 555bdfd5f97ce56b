/**
 * An append with inline projections, in one transaction:
 *
 *     append_check ──► the projections, one after the other ──► append_store ──► commit
 *     keys, streams locked, ids,  they see versions, no          announce, draw
 *     versions                    positions                      positions, insert
 *
 * No user code runs while a bound is announced, so a slow projection holds back no reader. Two appends that change one
 * document wait for each other before positions are drawn: a projection changes a document in the order of positions.
 */

import { abortable, onAbort } from '../../core/abort.ts'
import { ConsumerTimeout, isRillflowError, type RillflowError } from '../../core/errors.ts'
import type { Transaction } from '../../database/database.ts'
import { lendTransaction } from '../../database/handle.ts'
import { sql } from '../../database/sql.ts'
import { isCollision, isConnectionLost, sqlStateOf, toRillflowError } from '../../database/sqlstate.ts'
import {
  type Append,
  batchArguments,
  columnsOf,
  eventArguments,
  eventNumbers,
  eventParts,
  lockStreams,
  type Outcome,
  outcomesOf,
} from '../append/send.ts'
import type { RecordedEvent } from '../definition.ts'
import { InlineProjectionFailed, InlineProjectionUnknown } from '../errors.ts'
import type { Log } from '../log.ts'
import { eventsOfRows } from '../read/rows.ts'
import type { InlineProjection } from './registry.ts'

/** Rejects if a projection does; then the transaction, or a savepoint around it, has to be rolled back. [barrier-3] */
export async function appendInline(log: Log, append: Append, tx: Transaction, over?: AbortSignal): Promise<Outcome> {
  if (append.advisoryLock) await lockStreams(tx, log, append)
  if (append.parts.length === 0) {
    await append.alongside?.write(tx, append.parts)
    return { kind: 'appended', failedPart: 0, versions: [], positions: [] }
  }
  const checked = await check(log, append, tx)
  log.inline.learn(append, checked.active.size > 0)
  if (checked.outcome.kind !== 'appended') return checked.outcome
  const projections = codeOf(log, checked.active)
  await append.alongside?.write(tx, append.parts)
  if (projections.length > 0) {
    const events = await eventsOfRows(log, provisionalRows(append, checked))
    for (const projection of projections) await apply(log, projection, events, tx, over)
  }
  return { ...checked.outcome, positions: await store(log, append, checked, tx) }
}

/** How long the transaction around it may take: its projections, and the waiting for streams before. */
export function inlineTimeout(log: Log): number {
  return log.inline.list().reduce((sum, projection) => sum + timeoutOf(log, projection), defaultTimeout(log))
}

interface Checked {
  /** The events of an accepted append, complete but for their positions. */
  readonly outcome: Outcome
  /** By part, the version before its first event. */
  readonly base: readonly number[]
  readonly createdAt: Date
  /** The inline projections that want some of its events, with their versions. */
  readonly active: ReadonlyMap<string, number>
}

async function check(log: Log, append: Append, tx: Transaction): Promise<Checked> {
  const { ids, types, data } = columnsOf(append.parts.flatMap(part => part.events))
  const [row] = await tx.runArrays(sql`/* events.append_check */
    select
      outcomes::text, failed_parts::text, versions::text, to_jsonb(base) as base, created_at,
      to_jsonb(inline_names) as inline_names, to_jsonb(inline_versions) as inline_versions
    from ${log.names.append_check}(
      ${batchArguments([append], true)},
      p_runs_inline => true,
      p_ids => ${ids}::uuid[],
      p_types => ${types}::text[],
      p_data => ${data}::jsonb)`)
  const [outcomes, failed, versions, base, createdAt, names, numbers] = row as [
    string,
    string | null,
    string | null,
    (number | null)[] | null,
    Date,
    string[] | null,
    number[] | null,
  ]
  const [outcome] = outcomesOf(
    [append],
    [outcomes, failed, versions, append.parts.flatMap(part => part.events).map(() => 0), null],
  )
  const active = new Map((names ?? []).map((name, at) => [name, numbers![at]!]))
  return { outcome: { ...outcome!, positions: [] }, base: (base ?? []) as number[], createdAt, active }
}

/**
 * The active projections in the order they were registered; the database decides which, and in which version.
 * [barrier-4]
 */
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
  const late = new ConsumerTimeout({ consumer: name, timeoutMs })
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

/** Returns the position of the last event of each part. */
async function store(log: Log, append: Append, { base, createdAt }: Checked, tx: Transaction): Promise<number[]> {
  const { parts } = append
  const [row] = await tx.runArrays(sql`/* events.append_store */
    select positions
    from ${log.names.append_store}(
      p_refused => null,
      p_streams => ${parts.map(part => part.stream)}::text[],
      p_base => ${base}::bigint[],
      p_created_at => ${createdAt.toISOString()}::timestamptz,
      p_event_parts => ${eventParts(parts)}::integer[],
      p_event_numbers => ${eventNumbers(parts)}::integer[],
      ${eventArguments(parts.flatMap(part => part.events))})`)
  const [drawn] = row as [number[]]
  let count = 0
  return parts.map(part => {
    count += part.events.length
    return drawn[count - 1]!
  })
}

/** The events as they will be read, without their positions: in the columns that reading takes. */
function provisionalRows(append: Append, { base, createdAt }: Checked): unknown[][] {
  return append.parts.flatMap((part, at) =>
    part.events.map((event, n) => {
      const place = [0, part.stream, base[at]! + n + 1, event.id, event.type, event.schemaVersion]
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
