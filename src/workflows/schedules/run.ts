/**
 * One run of a schedule: its code is called, outside of any transaction and for a limited time, and what it returns becomes
 * events. Nothing is stored here. Their ids follow from the schedule, the due time and a key, so a run that is taken over
 * publishes the same events, not more.
 */
import { describeError, type ErrorDescription, isInterruption } from '../../consumers/run/failure.ts'
import { derivedId } from '../../core/derived-id.ts'
import { isRillflowError } from '../../core/errors.ts'
import { abortable, onAbort } from '../../core/lifecycle.ts'
import { prepareAppend, writtenBy } from '../../events/append/append.ts'
import type { StreamEvents } from '../../events/append/prepare.ts'
import type { Append } from '../../events/append/send.ts'
import type { NewEventOf } from '../../events/definition.ts'
import type { Log } from '../../events/log.ts'
import type { Span } from '../../telemetry/span.ts'
import { type Emission, readResult } from '../emit.ts'
import type { EmitLimits } from '../emitted.ts'
import { InvalidScheduleResult, ScheduleTimeout, TooManyEmitted } from '../errors.ts'
import { streamOf } from '../stream.ts'
import type { ClaimedSchedule } from './claim.ts'
import type { Schedule, ScheduleDefinition } from './schedule.ts'

export type ScheduleOutcome = 'completed' | 'failed' | 'skipped'

export interface EndedRun {
  /** Undefined if this due time is recorded already. */
  readonly outcome: ScheduleOutcome | undefined
  readonly append?: Append | undefined
  readonly error?: ErrorDescription | undefined
}

/** A run, by what its ids follow from. */
export interface RunKey {
  readonly name: string
  readonly dueAt: Date
  readonly isManual: boolean
}

/** Rejects only if it says nothing about the run: the database was away, or `over` aborted. */
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
    const running = (async () => schedule.run({ name, dueAt, signal, isManual }))()
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
  log.telemetry.log.warn({ schema: log.schema, schedule: name, dueAt, error }, 'a run of a schedule has failed')
  return { outcome: 'failed', error: describeError(error) }
}

/** The workflow of a run. */
export function correlationOf({ correlationId }: ScheduleDefinition, run: RunKey): string {
  return correlationId ?? idOf(run, 'workflow')
}

function idOf({ name, dueAt, isManual }: RunKey, key: string): string {
  return derivedId(dueAt, 'schedule', name, isManual ? 'manual' : 'due', dueAt.toISOString(), key)
}

function emissionsOf(schedule: string, result: unknown, { maxEmitted }: EmitLimits): readonly Emission[] {
  const read = readResult(result)
  if ('reason' in read) throw new InvalidScheduleResult({ schedule, reason: read.reason })
  const emissions = read.emitted.filter(each => each.kind === 'emission')
  if (read.work !== undefined || emissions.length < read.emitted.length)
    throw new InvalidScheduleResult({ schedule, reason: 'batch([…]) and complete(…) are for handlers' })
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
    const { stream = streamOf(correlationId), expected } = options
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
