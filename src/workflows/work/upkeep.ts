/**
 * What any worker does for all: it wakes who is due, takes over from the dead, and sees to whatever else has come up.
 *
 * It does so between its own signs of life, so it waits for nobody: what is locked is left to the next time. And nobody waits
 * for it: one that is stopped in the middle is cut off by the server.
 */
import { isRillflowError } from '../../core/errors.ts'
import { lockNotAvailable } from '../../database/sqlstate.ts'
import type { Log } from '../../events/log.ts'
import { reachAllChildren } from '../cancel/cancel.ts'
import { retryLetters } from '../dead-letters/retry.ts'
import { backfill } from '../dispatch/backfill.ts'
import type { DispatchParts } from '../dispatch/dispatch.ts'
import type { Handler } from '../handler.ts'
import { expireJoins } from '../joins/expire.ts'
import { assignLanes } from '../keys.ts'
import type { ScheduleHost, Scheduler } from '../schedules/scheduler.ts'
import { answerChildWaits } from '../steps/child-waits.ts'
import { idleLimit } from './limits.ts'
import { rescueExpired, rescueWorker } from './rescue.ts'
import { type Tick, wakeDue } from './tick.ts'

export interface UpkeepContext extends ScheduleHost {
  readonly handlers: ReadonlyMap<number, Handler>
  readonly leaseMs: number
}

export interface Upkeep {
  /** The schedules that can be run here. */
  schedules(): readonly string[]
  /** Returns when to look again at the latest, and whether there may be work now. */
  run(seen: Tick, context: UpkeepContext): Promise<{ readonly inMs: number; readonly isWorkLikely: boolean }>
  /** Ends what was begun for this worker beside its executions. */
  drain(owner: string, limitMs: number): Promise<void>
}

export function upkeep(parts: DispatchParts, scheduler: Scheduler): Upkeep {
  const { wake } = parts
  return {
    schedules: () => scheduler.names(),
    drain: (owner, limitMs) => scheduler.drain(owner, limitMs),
    async run(seen, context) {
      const { owner, handlers, leaseMs } = context
      const log = hurried(parts.log, leaseMs)
      let count = await wakeDue(log, seen.due)
      for (const dead of seen.deadWorkers) count += await unlessLocked(0, () => rescueWorker(log, dead))
      if (seen.hasExpired || seen.deadWorkers.length > 0) count += await unlessLocked(0, () => rescueExpired(log))
      if (seen.hasChildWaits) count += await unlessLocked(0, () => answerChildWaits(log))
      if (seen.hasUnkeyed) count += await unlessLocked(0, () => assignLanes(log, handlers))
      const joinInMs = seen.nextJoinInMs ?? Number.POSITIVE_INFINITY
      if (joinInMs <= 0) count += await unlessLocked(0, () => expireJoins(log, owner))
      const none = { count: 0, nextInMs: lockedMs }
      const letters = seen.hasRequestedLetters
        ? await unlessLocked(none, () => retryLetters(log, owner, [...handlers.keys()]))
        : undefined
      count += letters?.count ?? 0
      if (seen.hasCancelledChildren) count += await unlessLocked(0, () => reachAllChildren({ ...parts, log }))
      const backfilled = seen.hasBackfill ? await unlessLocked(0, () => backfill({ ...parts, log })) : 0
      if (count > 0) wake.worked()
      const scheduledInMs = await scheduler.begin(seen.nextScheduleInMs, context)
      // What was just done may be followed by more; what is locked is free again soon.
      const never = Number.POSITIVE_INFINITY
      const dueInMs = seen.due.length > 0 ? lockedMs : (seen.nextInMs ?? never)
      const joinDueInMs = joinInMs <= 0 ? lockedMs : joinInMs
      const inMs =
        count + backfilled > 0 ? 0 : Math.min(dueInMs, letters?.nextInMs ?? never, scheduledInMs, joinDueInMs)
      return { inMs, isWorkLikely: count > 0 }
    },
  }
}

/** How long what could not be woken is left alone. */
const lockedMs = 20

function hurried(log: Log, leaseMs: number): Log {
  const { database } = log
  const limits = { ...idleLimit(leaseMs), lockTimeoutMs: Math.min(1_000, leaseMs / 4) }
  return {
    ...log,
    database: {
      ...database,
      transaction: (work, options) => database.transaction(work, { ...limits, ...options }),
    },
  }
}

async function unlessLocked<T>(otherwise: T, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const { sqlState } = (error ?? {}) as { sqlState?: string }
    if (isRillflowError(error, 'database_failed') && sqlState === lockNotAvailable) return otherwise
    throw error
  }
}
