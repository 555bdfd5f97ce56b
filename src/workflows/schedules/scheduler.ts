/** Runs schedules on behalf of workers: begins runs that are due, stores their ends, and waits for them when a worker stops. */
import { isInterruption } from '../../consumers/run/failure.ts'
import { abortable, settledWithin, sleep } from '../../core/abort.ts'
import { isRillflowError } from '../../core/errors.ts'
import { delay } from '../../core/retry.ts'
import type { Log } from '../../events/log.ts'
import type { AppendIn, EmitLimits } from '../emit.ts'
import { DuplicateSchedule } from '../errors.ts'
import type { WorkflowHints } from '../hints.ts'
import { type ClaimedSchedule, claimSchedules, moveClaim, releaseClaim, storeSchedules } from './claim.ts'
import { type EndedRun, endRun, failedRun, runSchedule } from './run.ts'
import type { Schedule } from './schedule.ts'
import { chooseDue, dueTimes } from './times.ts'

export interface SchedulerParts {
  readonly log: Log
  readonly hints: WorkflowHints
  readonly limits: EmitLimits
  readonly append: AppendIn
}

/** The worker on whose behalf schedules are run. */
export interface ScheduleWorker {
  readonly owner: string
  /** Whether this worker runs the schedule. */
  runsSchedule(schedule: string): boolean
  /** The worker looks again within `ms`. */
  lookIn(ms: number): void
}

export interface Scheduler {
  add(schedule: Schedule): void
  /** Whether the code of this schedule is here. */
  has(name: string): boolean
  /** Those whose code is here. */
  all(): readonly string[]
  /** Those that can begin here: they are stored, their code is here, and they do not run here already. */
  names(): readonly string[]
  /** Stores those that are not stored yet. */
  register(): Promise<void>
  /** Begins runs that are due, and returns when to look again. */
  begin(worker: ScheduleWorker): Promise<number>
  /** Waits for the runs of this worker until `cutOff` aborts, then cuts them off. No more runs begin. */
  drain(owner: string, cutOff: AbortSignal): Promise<void>
}

/** The most runs at once in one store. */
const maxAtOnce = 16
/** How soon to look again if another worker has claimed it first: it may be free again. */
const missedClaimMs = 25
const retryBackoff = { baseMs: 50, factor: 2, maxMs: 2_000, jitter: 0.5 }

interface Runs {
  readonly all: Set<Promise<void>>
  readonly over: AbortController
  isDraining: boolean
}

export function openScheduler(parts: SchedulerParts): Scheduler {
  const { log, hints } = parts
  const schedules = new Map<string, Schedule>()
  const stored = new Set<string>()
  const workers = new Map<string, Runs>()
  const running = new Set<string>()
  const names = (): string[] => [...stored].filter(name => !running.has(name))

  return {
    add(schedule) {
      if (schedules.has(schedule.name)) throw new DuplicateSchedule({ schedule: schedule.name })
      schedules.set(schedule.name, schedule)
    },
    has: name => schedules.has(name),
    all: () => [...schedules.keys()],
    names,
    async register() {
      const missing = [...schedules.values()].filter(({ name }) => !stored.has(name))
      if (missing.length === 0) return
      await storeSchedules(log, missing)
      for (const { name } of missing) stored.add(name)
      hints.changed()
    },
    async begin(worker) {
      const runs = runsOf(worker.owner)
      const limit = maxAtOnce - running.size
      // A run that ends has the worker look again.
      if (limit <= 0 || runs.isDraining) return Number.POSITIVE_INFINITY
      const claims = await claimSchedules(log, {
        owner: worker.owner,
        names: names().filter(worker.runsSchedule),
        limit,
      })
      for (const claimed of claims) {
        running.add(claimed.name)
        const run = runWhileDue(claimed, worker, runs).finally(() => runs.all.delete(run))
        runs.all.add(run)
      }
      return claims.length === 0 ? missedClaimMs : 0
    },
    async drain(owner, cutOff) {
      const runs = runsOf(owner)
      runs.isDraining = true
      await abortable(Promise.all(runs.all), cutOff).catch(() => {})
      runs.over.abort(new Error('The worker was stopped.'))
      await settledWithin(Promise.all(runs.all), 1_000)
      workers.delete(owner)
    },
  }

  function runsOf(owner: string): Runs {
    const known = workers.get(owner) ?? { all: new Set(), over: new AbortController(), isDraining: false }
    workers.set(owner, known)
    return known
  }

  /** Runs it, and again while it is due. */
  async function runWhileDue(first: ClaimedSchedule, { owner, lookIn }: ScheduleWorker, runs: Runs): Promise<void> {
    let inMs: number | undefined = 0
    try {
      for (
        let claimed: ClaimedSchedule | undefined = first, isContinued = false;
        claimed !== undefined;
        isContinued = true
      ) {
        inMs = await runOne(claimed, isContinued, runs.over.signal)
        if (inMs === undefined || inMs > 0 || runs.isDraining) break
        ;[claimed] = await claimSchedules(log, { owner, names: [claimed.name], limit: 1 })
      }
    } catch (error) {
      if (!runs.over.signal.aborted)
        log.telemetry.log.error({ schema: log.schema, schedule: first.name, error }, 'A schedule could not run.')
    }
    running.delete(first.name)
    if (inMs !== undefined && !runs.isDraining) lookIn(Math.max(0, inMs))
  }

  /** Returns when the schedule is due next; undefined if that is not known, or never. */
  async function runOne(first: ClaimedSchedule, isContinued: boolean, over: AbortSignal): Promise<number | undefined> {
    const chosen = await chosenRun(first, isContinued)
    if (chosen === undefined) return 0
    const { claimed, isSkipped } = chosen
    const nextAt = claimed.isManual ? undefined : dueTimes(claimed.definition).next(claimed.dueAt)
    try {
      const ended: EndedRun = claimed.isDone
        ? { outcome: undefined }
        : isSkipped
          ? { outcome: 'skipped' }
          : await runSchedule(log, parts.limits, schedules.get(claimed.name)!, claimed, over)
      return await store(claimed, nextAt, ended, over)
    } catch (error) {
      // The error is not about the schedule: another worker may claim it.
      if (!over.aborted) await releaseClaim(log, claimed).catch(() => {})
      throw error
    }
  }

  /** A run that was begun is not chosen again, nor one of a series of missed times. */
  async function chosenRun(
    claimed: ClaimedSchedule,
    isContinued: boolean,
  ): Promise<{ claimed: ClaimedSchedule; isSkipped: boolean } | undefined> {
    const { definition, dueAt, now } = claimed
    if (claimed.isManual || claimed.isBegun || (isContinued && definition.missed === 'all'))
      return { claimed, isSkipped: false }
    const choice = await chooseDue(dueTimes(definition), definition.missed, dueAt, now)
    if (choice.dueAt.getTime() === dueAt.getTime()) return { claimed, isSkipped: choice.isSkipped }
    const moved = await moveClaim(log, claimed, choice.dueAt)
    if (moved === undefined) await releaseClaim(log, claimed)
    return moved && { claimed: moved, isSkipped: choice.isSkipped }
  }

  /** Waits while the database is away. A run whose events are refused has failed. */
  async function store(
    claimed: ClaimedSchedule,
    nextAt: Date | undefined,
    ended: EndedRun,
    over: AbortSignal,
  ): Promise<number | undefined> {
    for (let tries = 1, run = ended; ; tries++) {
      try {
        const answer = await endRun(parts, claimed, nextAt, run)
        return answer === false ? 0 : answer.inMs
      } catch (error) {
        if (over.aborted || isRillflowError(error, 'store_closed')) throw error
        if (isInterruption(error) || isRillflowError(error, 'serialization_failed')) {
          await sleep(delay(retryBackoff, tries), { signal: over })
        } else if (run.append === undefined) throw error
        else run = failedRun(log, claimed, error)
      }
    }
  }
}
