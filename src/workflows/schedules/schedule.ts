/** One schedule as it is defined: when, what to do about missed times, and the code that says which events a run publishes. */
import { createHash } from 'node:crypto'
import type { Awaitable } from '../../core/core.ts'
import { InvalidOption } from '../../core/errors.ts'
import { canonicalJson } from '../../core/json.ts'
import { checkName } from '../../core/name.ts'
import { checkWhole } from '../../core/whole.ts'
import type { Emission } from '../emit.ts'
import { checkTimes, type Missed, type ScheduleTimes } from './times.ts'

export type ScheduleOptions = ScheduleWhen & {
  /** What to do about due times that nobody was there for. Default 'once': one run for all of them. */
  missed?: Missed | undefined
  /** The workflow that its events are part of. Default: a new one with each run. */
  correlationId?: string | undefined
  /** How long a run may take. Default 30 000. */
  timeoutMs?: number | undefined
}

export type ScheduleWhen =
  /** Five fields, or six with seconds first. The default time zone is UTC. */
  | { cron: string; timeZone?: string | undefined; everyMs?: undefined; at?: undefined }
  /** From 10 ms; the first time is one interval after it was first registered. */
  | { everyMs: number; cron?: undefined; timeZone?: undefined; at?: undefined }
  /** Once. */
  | { at: Date; cron?: undefined; timeZone?: undefined; everyMs?: undefined }

export interface ScheduleContext {
  readonly name: string
  /** When this run was due; of one that was asked for by hand, when that was. */
  readonly dueAt: Date
  /** Aborts when the run's time is over, or its worker has to stop. */
  readonly signal: AbortSignal
  readonly isManual: boolean
}

/** What a run publishes. */
export type ScheduleResult<E extends Emission = Emission> =
  | undefined
  | null
  // biome-ignore lint/suspicious/noConfusingVoidType: a function without a return statement gives exactly that.
  | void
  | E
  | readonly E[]

export type ScheduleRunner = (ctx: ScheduleContext) => Awaitable<ScheduleResult>

/** As it is stored. */
export type ScheduleDefinition = ScheduleTimes & {
  readonly missed: Missed
  readonly timeoutMs: number
  readonly correlationId?: string | undefined
}

export interface Schedule {
  readonly name: string
  readonly definition: ScheduleDefinition
  /** Of its times: another one means that they begin anew. */
  readonly digest: string
  readonly run: ScheduleRunner
}

export function defineSchedule(name: string, options: ScheduleOptions, run: ScheduleRunner): Schedule {
  checkName('Schedule', name)
  const { missed = 'once', correlationId, timeoutMs = 30_000 } = options
  const times = checkTimes(options)
  if (!['once', 'all', 'skip'].includes(missed))
    throw new InvalidOption({ option: 'missed', reason: `must be 'once', 'all' or 'skip', not ${String(missed)}` })
  if (correlationId !== undefined) checkName('Correlation id', correlationId)
  checkWhole('timeoutMs', timeoutMs, 1)
  if (typeof run !== 'function')
    throw new InvalidOption({ option: 'run', reason: `of schedule "${name}" is no function` })
  const digest = createHash('sha256').update(canonicalJson(times)).digest('hex')
  return { name, definition: { ...times, missed, timeoutMs, correlationId }, digest, run }
}
