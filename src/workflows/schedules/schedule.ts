/** Schedules as they are defined: their times, the action for missed times, and the code that emits their events. */
import { createHash } from 'node:crypto'
import type { Awaitable } from '../../core/core.ts'
import { checkDefinition, type Definition } from '../../core/definition.ts'
import { canonicalJson } from '../../core/json.ts'
import { checkName } from '../../core/name.ts'
import { describe, refuseUnknownOptions } from '../../core/options.ts'
import type { EventDefinitions, EventMap, EventsCarried, UntypedEvents } from '../../events/definition.ts'
import type { Emission, Emit } from '../emit.ts'
import { checkCount, refusal } from '../handler.ts'
import { checkTimes, type Missed, type ScheduleTimes } from './times.ts'

/** When it is due: by a cron expression, an interval or once. */
export type ScheduleWhen =
  /** Five fields, or six with seconds first. The default time zone is UTC. */
  | { cron: string; timeZone?: string | undefined; everyMs?: undefined; at?: undefined }
  /** From 10 ms; the first time is one interval after it was first registered. */
  | { everyMs: number; cron?: undefined; timeZone?: undefined; at?: undefined }
  /** Once. */
  | { at: Date; cron?: undefined; timeZone?: undefined; everyMs?: undefined }

export type ScheduleOptions<M extends EventMap = UntypedEvents> = ScheduleWhen & {
  /** The events of the store; only their types are used. */
  events?: EventDefinitions<M> | undefined
  /** Emits the events of one run. */
  run(ctx: ScheduleContext<M>): Awaitable<ScheduleResult<keyof M & string>>
  /** The action for due times at which no worker ran it. Default 'once': one run for all of them. */
  missed?: Missed | undefined
  /** The workflow that its events are part of. Default: a new one with each run. */
  correlationId?: string | undefined
  /** How long a run may take. Default 30 000. */
  timeoutMs?: number | undefined
}

/** The context of a schedule: when it was due, and how to emit. */
export interface ScheduleContext<M extends EventMap = UntypedEvents> {
  readonly name: string
  /** When this run was due; of one that an operator asked for, when that was. */
  readonly dueAt: Date
  /** Aborts when the run's time is over, or its worker has to stop. */
  readonly signal: AbortSignal
  readonly isManual: boolean
  readonly emit: Emit<M>
}

/** The result of a run: the events to publish. */
export type ScheduleResult<Type extends string = string> =
  | undefined
  | null
  // biome-ignore lint/suspicious/noConfusingVoidType: a function without a return statement gives exactly that.
  | void
  | Emission<Type>
  | readonly Emission<Type>[]

/** The part of a schedule that is stored. */
export type StoredSchedule = ScheduleTimes & {
  readonly missed: Missed
  readonly timeoutMs: number
  readonly correlationId?: string | undefined
}

/** A schedule, as it was defined. `M`: the events it needs. */
export interface Schedule<M extends EventMap = never> extends Definition<'schedule'> {
  /** Absent at run time: it keeps a definition out of stores that lack its events. */
  readonly '~uses'?: ((events: M) => void) | undefined
  readonly definition: StoredSchedule
  /** Of its times: another one means that they begin anew. */
  readonly digest: string
  readonly run: (ctx: ScheduleContext) => Awaitable<ScheduleResult>
}

const options = [
  ...['cron', 'timeZone', 'everyMs', 'at', 'events', 'run', 'missed', 'correlationId', 'timeoutMs'],
] as const

/**
 * Defines a handler that runs at times: by a cron expression, an interval, or once.
 *
 * @example
 * ```ts
 * const nightly = defineSchedule('nightly', {
 *   events,
 *   cron: '0 3 * * *',
 *   timeZone: 'Europe/Berlin',
 *   run: ({ dueAt }) => console.log(dueAt.toISOString()),
 * })
 * ```
 */
export function defineSchedule<M extends EventMap = UntypedEvents>(
  name: string,
  definition: ScheduleOptions<M>,
): Schedule<EventsCarried<M>> {
  checkDefinition('defineSchedule', name, definition)
  const what = `Schedule "${name}"`
  checkName('Schedule', name)
  refuseUnknownOptions(what, definition, options)
  const { missed = 'once', correlationId, timeoutMs = 30_000, run } = definition
  const times = checkTimes(what, definition)
  if (!['once', 'all', 'skip'].includes(missed))
    throw refusal(what, 'missed', `needs 'once', 'all' or 'skip' as "missed", not ${describe(missed)}.`)
  if (correlationId !== undefined) checkName('Correlation id', correlationId)
  checkCount(what, 'timeoutMs', timeoutMs, 1)
  if (typeof run !== 'function')
    throw refusal(what, 'run', `has no function to run: "run" is ${describe(run)}. Give it as a field: run(ctx) { … }.`)
  const digest = createHash('sha256').update(canonicalJson(times)).digest('hex')
  return Object.freeze({
    ...{ kind: 'schedule' as const, name, digest },
    definition: { ...times, missed, timeoutMs, correlationId },
    run: run as unknown as Schedule['run'],
  })
}
