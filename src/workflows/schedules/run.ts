/**
 * One run of a schedule: its code is called, outside of any transaction and for a limited time, and its result becomes
 * events. Nothing is stored here. Their ids follow from the schedule, the due time and a key, so a run that is taken
 * over publishes the same events, not more.
 */
import { describeError, type ErrorDescription, isInterruption } from '../../consumers/run/failure.ts'
import { abortable, onAbort } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { derivedId } from '../../core/id.ts'
import { sql } from '../../database/sql.ts'
import { prepareAppend, writtenBy } from '../../events/append/append.ts'
import type { StreamEvents } from '../../events/append/prepare.ts'
import type { Append } from '../../events/append/send.ts'
import type { NewEventOf } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
import type { Span } from '../../telemetry/span.ts'
import { type AppendIn, type Emission, type EmitLimits, emit, readResult } from '../emit.ts'
import { InvalidScheduleResult, ScheduleTimeout, TooManyEmitted } from '../errors.ts'
import { workflowStream } from '../publish.ts'
import { workflowNames } from '../schema.ts'
import type { ClaimedSchedule } from './claim.ts'
import type { Schedule, StoredSchedule } from './schedule.ts'

export type ScheduleOutcome = 'completed' | 'failed' | 'skipped'

export interface EndedRun {
  /** Undefined if this due time is recorded already. */
  readonly outcome: ScheduleOutcome | undefined
  readonly append?: Append | undefined
  readonly error?: ErrorDescription | undefined
}

/** A run: the values that its ids are derived from. */
export interface RunKey {
  readonly name: string
  readonly dueAt: Date
  readonly isManual: boolean
}

/** Rejects only for an error that is not about the run: the database was away, or `over` aborted. */
export function runSchedule(
  log: Log,
  limits: EmitLimits,
  schedule: Schedule,
  claimed: ClaimedSchedule,
  over: AbortSignal,
): Promise<EndedRun> {
  const { telemetry, schema } = log
  const run = (span?: Span): Promise<EndedRun> => runCode(log, limits, schedule, claimed, over, span)
  if (!telemetry.isTraced) return run()
  const { name, dueAt, isManual } = claimed
  const fields: Record<string, unknown> = { schedule: name, dueAt: dueAt.toISOString(), isManual }
  return telemetry.span({ name: 'workflows.schedule', schema, fields }, async span => {
    const ended = await run(span)
    fields.outcome = ended.outcome
    if (ended.append !== undefined) span.wrote(writtenBy(ended.append))
    if (ended.error !== undefined) span.fail(ended.error)
    return ended
  })
}

async function runCode(
  log: Log,
  limits: EmitLimits,
  schedule: Schedule,
  claimed: ClaimedSchedule,
  over: AbortSignal,
  span: Span | undefined,
): Promise<EndedRun> {
  const { name, dueAt, isManual } = claimed
  const { timeoutMs } = claimed.definition
  const controller = new AbortController()
  const timer = log.clock.setTimeout(
    () => controller.abort(new ScheduleTimeout({ schedule: name, timeoutMs })),
    timeoutMs,
  )
  const release = onAbort(over, () => controller.abort(over.reason))
  const { signal } = controller
  try {
    const running = (async () => schedule.run({ name, dueAt, signal, isManual, emit }))()
    const emissions = emissionsOf(name, await abortable(running, signal), limits)
    return { outcome: 'completed', append: await appendOf(log, claimed, emissions, span?.headers) }
  } catch (thrown) {
    const error = signal.aborted ? signal.reason : thrown
    if (over.aborted || (isRillflowError(error) && isInterruption(error))) throw error
    return failedRun(log, claimed, error)
  } finally {
    timer.cancel()
    release()
  }
}

export function failedRun(log: Log, { name, dueAt }: RunKey, error: unknown): EndedRun {
  log.telemetry.log.warn({ schema: log.schema, schedule: name, dueAt, error }, 'A run of a schedule has failed.')
  return { outcome: 'failed', error: describeError(error) }
}

/** The workflow of a run. */
export function correlationOf({ correlationId }: StoredSchedule, run: RunKey): string {
  return correlationId ?? idOf(run, 'workflow')
}

function idOf({ name, dueAt, isManual }: RunKey, key: string): string {
  return derivedId(dueAt, 'schedule', name, isManual ? 'manual' : 'due', dueAt.toISOString(), key)
}

function emissionsOf(schedule: string, result: unknown, { maxEmitted }: EmitLimits): readonly Emission[] {
  const read = readResult(result)
  if ('reason' in read) throw new InvalidScheduleResult({ schedule, reason: read.reason })
  const emissions = read.emitted.filter(each => each.kind === 'emission')
  if (read.work !== undefined || read.compensation !== undefined || emissions.length < read.emitted.length)
    throw new InvalidScheduleResult({ schedule, reason: 'batch(…), complete(…) and compensate(…) are for handlers' })
  if (emissions.length > maxEmitted)
    throw new TooManyEmitted({ handler: schedule, emitted: emissions.length, maxEmitted })
  return emissions
}

async function appendOf(
  log: Log,
  claimed: ClaimedSchedule,
  emissions: readonly Emission[],
  context: Readonly<Record<string, string>> = {},
): Promise<Append | undefined> {
  if (emissions.length === 0) return undefined
  const correlationId = correlationOf(claimed.definition, claimed)
  const numbers = new Map<string, number>()
  const streams = new Map<string, StreamEvents & { readonly events: NewEventOf<string, unknown>[] }>()
  for (const { type, data, options } of emissions) {
    const { stream = workflowStream(correlationId), expected } = options
    const number = (numbers.get(type) ?? 0) + 1
    numbers.set(type, number)
    const part = streams.get(stream) ?? { stream, events: [], expected }
    streams.set(stream, part)
    part.events.push({
      ...{ type, data, correlationId },
      id: options.id ?? idOf(claimed, `event ${options.key ?? `${type}#${number}`}`),
      headers: {
        ...context,
        ...options.headers,
        workflow: { schedule: claimed.name, dueAt: claimed.dueAt.toISOString() },
      },
    })
  }
  return prepareAppend(log, [...streams.values()], {}, { checkIds: true })
}

/**
 * Stores the end of a run: its events, its record and the next due time, in one transaction and under the fence of its
 * claim. There is one record for each due time, so none is run twice. Returns when it is due next, by the database's clock
 * (undefined: never), or false if the claim was lost.
 */
export async function endRun(
  { log, append: appendIn }: { readonly log: Log; readonly append: AppendIn },
  claimed: ClaimedSchedule,
  nextAt: Date | undefined,
  { outcome, append, error }: EndedRun,
): Promise<{ readonly inMs: number | undefined } | false> {
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
        (schedule, due_at, is_manual, started_at, outcome, correlation_id, event_ids, error, ended_at)
      select ${name}::text, ${dueAt}::timestamptz, ${isManual}::boolean, ${claimed.now.toISOString()}::timestamptz,
        ${outcome}::text, ${correlationOf(claimed.definition, claimed)}::text, ${eventIds}::uuid[],
        ${error === undefined ? null : JSON.stringify(error)}::jsonb, moment.at
      from ${moment(log.names.clock)}
      on conflict do nothing
      returning schedule`)
    // Last: readers of the log wait for the end of this transaction from here on.
    if (append !== undefined && recorded.length > 0) await appendIn(append, tx)
    return { inMs: row.next_in ?? undefined }
  })
}
