/**
 * The duties of a worker: work that any worker does from time to time, on behalf of all. Each is one entry of the list
 * below: its name, when it is due, and its work. Adding a duty is adding an entry.
 *
 *     loop ──► readDue: one statement, a column per duty ──► runDuties: those that are due ──► when to look again
 *
 * Guarantees:
 * - Looking costs one statement, however many duties there are.
 * - Looking changes nothing. Any number of workers may find the same duty due; the first one that locks the rows does
 *   it, and the others find nothing left to do.
 * - No duty waits for a lock for long. Rows that another transaction holds are left for the next look, so a worker is
 *   never late because of a duty, and a worker that is stopped in the middle of one is cut off by the server.
 *
 * What can fail: a duty. A lock that could not be taken in time is not a failure; any other error ends this look, and the
 * loop looks again after a backoff.
 */

import { isAlive } from '../../consumers/runners/row.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { isRillflowError } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { openLoop } from '../../core/loop.ts'
import type { Backoff } from '../../core/retry.ts'
import { type Fragment, fragment, joinFragments, sql } from '../../database/sql.ts'
import { lockNotAvailable } from '../../database/sqlstate.ts'
import type { Log } from '../../events/log.ts'
import { moment } from '../../schema/clock.sql.ts'
import { reachAllChildren } from '../cancel/cancel.ts'
import { confirmStopped } from '../cancel/compensate.ts'
import { retryDeadLetters } from '../dead-letters/retry.ts'
import { backfill } from '../dispatch/backfill.ts'
import type { DispatchParts } from '../dispatch/dispatch.ts'
import { wakeDue } from '../dispatch/enqueue.ts'
import type { Handler } from '../handler.ts'
import type { WorkflowHints } from '../hints.ts'
import { expireJoins } from '../joins/join-rows.ts'
import type { Scheduler, ScheduleWorker } from '../schedules/scheduler.ts'
import { workflowNames } from '../schema.ts'
import { answerChildWaits } from '../steps/children.ts'
import { idleLimit } from './complete.ts'
import { assignLanes } from './lanes.ts'
import { releaseForgotten, rescueExpired, rescueWorker } from './rescue.ts'
import type { Work } from './work.ts'

export interface Duty {
  readonly name: string
  /** SQL: in how many milliseconds it is due; 0 or less is now, null is never. `now` is the time, as SQL. */
  dueInMs(worker: DutyWorker, now: Fragment): Fragment
  /** SQL: a list of texts that `run` needs, if the look finds them anyway. */
  items?(worker: DutyWorker, now: Fragment): Fragment
  /** Does the work, and returns how much it was. */
  run(worker: DutyWorker, look: DueDuty): Promise<number | Done>
  /** How soon to look again if it was due and nothing could be done, because rows are locked. Default: with the next poll. */
  readonly retryMs?: number | undefined
  /** While it is due: how soon to look again after an execution has ended. */
  readonly afterEndMs?: number | undefined
  /** Whether a new execution of this handler can make it due before the next poll. */
  isHintedBy?(handler: Handler, pollMs: number): boolean
}

export interface Done {
  readonly count: number
  /** When it is due next, if that is known. */
  readonly nextInMs: number | undefined
}

/** A duty that is due, or will be. */
export interface DueDuty {
  readonly duty: Duty
  readonly inMs: number
  readonly items: readonly string[]
  /** By `elapsedMs()`, before the statement was sent. */
  readonly lookedAt: number
}

/** The worker on whose behalf duties are done. */
export interface DutyWorker extends DispatchParts, ScheduleWorker {
  readonly hints: WorkflowHints
  readonly scheduler: Scheduler
  /** By route. */
  readonly handlers: ReadonlyMap<number, Handler>
  readonly leaseMs: number
  readonly work: Pick<Work, 'compare' | 'ended'>
  /** Claims, because executions may be ready. */
  claimSoon(): void
}

/** The number of executions that one look wakes. */
const maxWoken = 500
/** A lock of a claim or a completion is held for about as long. */
const lockedMs = 20

/** In the order in which they are done: those that make work come before those that only prepare it. */
export const duties: readonly Duty[] = [
  {
    // The database decides which executions are this worker's: other workers, or a cancellation, may have taken some.
    name: 'compare own executions',
    dueInMs: () => fragment`(select 0)`,
    items: ({ log, owner }) => fragment`
      (select array_agg(x.id || ' ' || x.fence)
        from ${workflowNames(log).workflow_executions} as x
        where x.worker = ${owner}::text
          and x.state <> 'stopping')`,
    async run({ log, owner, work }, { items, lookedAt }) {
      const stored = items.map(item => item.split(' ')).map(([id, fence]) => [id!, Number(fence)] as const)
      const forgotten = work.compare(new Map(stored), lookedAt)
      return forgotten.size === 0 ? 0 : releaseForgotten(log, owner, forgotten)
    },
  },
  {
    // A compensation waits for the code of attempts that were to stop.
    name: 'confirm stopped attempts',
    dueInMs: ({ log, owner }) => fragment`
      (select 0
        from ${workflowNames(log).workflow_executions} as x
        where x.worker = ${owner}::text
          and x.state = 'stopping'
        limit 1)`,
    items: ({ log, owner }) => fragment`
      (select array_agg(x.id || ' ' || x.correlation_id)
        from ${workflowNames(log).workflow_executions} as x
        where x.worker = ${owner}::text
          and x.state = 'stopping')`,
    async run({ log, hints, work }, { items }) {
      const stopping = items.map(item => ({ id: item.slice(0, 36), correlationId: item.slice(37) }))
      const count = await confirmStopped(log, work.ended(stopping))
      if (count > 0) hints.ended()
      return count
    },
  },
  {
    // Executions whose delay, retry or timer is over become ready.
    name: 'wake executions',
    dueInMs: ({ log }, now) => fragment`
      (select ${msUntil(fragment`min(run_at)`, now)}
        from ${workflowNames(log).workflow_executions}
        where run_at is not null
          and state in ('delayed', 'suspended'))`,
    items: ({ log }, now) => fragment`
      (select array_agg(due.id::text)
        from (
          select id
          from ${workflowNames(log).workflow_executions}
          where run_at <= ${now}
            and state in ('delayed', 'suspended')
          order by run_at
          limit ${maxWoken}::integer) as due)`,
    run: ({ log }, { items }) => wakeDue(log, items),
    retryMs: lockedMs,
    isHintedBy: ({ delayMs }) => delayMs > 0,
  },
  {
    // Executions of a worker whose heartbeat is too old become ready again.
    name: 'take over from dead workers',
    dueInMs: worker => fragment`(select 0 from ${deadWorkers(worker)} limit 1)`,
    items: worker => fragment`(select array_agg(r.id) from ${deadWorkers(worker)})`,
    async run({ log }, { items }) {
      let count = 0
      for (const owner of items) count += await rescueWorker(log, owner)
      // Its attempts that were to stop are over because their worker is dead.
      return count + (await rescueExpired(log))
    },
  },
  {
    // A worker that is alive can be stuck, or can have lost the answer to its claim.
    name: 'take over expired attempts',
    dueInMs: ({ log }, now) => fragment`
      (select 0
        from ${workflowNames(log).workflow_executions} as x
        where x.worker is not null
          and (x.deadline_at < ${now}
            or (x.state = 'stopping' and not exists (
              select
              from ${consumerNames(log).runners} as r
              where r.id = x.worker
                and r.routes <> '{}')))
        limit 1)`,
    run: ({ log }) => rescueExpired(log),
  },
  {
    // A handler that waits for a child workflow continues when the child has settled, which sends no hint of its own.
    name: 'answer waits for child workflows',
    dueInMs: ({ log }) => fragment`
      (select 0 from ${workflowNames(log).workflow_waits} as w where w.child is not null limit 1)`,
    run: ({ log }) => answerChildWaits(log),
    afterEndMs: 20,
  },
  {
    // The lane of an event is computed by the handler's own code, which the dispatcher may not have.
    name: 'assign lanes',
    dueInMs: worker => fragment`
      (select 0
        from ${workflowNames(worker.log).workflow_executions} as x
        where x.state = 'unkeyed'
          and x.route = any(${routesOf(worker)}::integer[])
        limit 1)`,
    run: ({ log, handlers }) => assignLanes(log, handlers),
    isHintedBy: ({ keyOf }) => keyOf !== undefined,
  },
  {
    name: 'expire joins',
    dueInMs: ({ log }, now) => fragment`
      (select ${msUntil(fragment`min(j.deadline_at)`, now)}
        from ${workflowNames(log).workflow_joins} as j
        where j.state = 'open')`,
    run: ({ log, owner }) => expireJoins(log, owner),
    retryMs: lockedMs,
    isHintedBy: ({ definition: { join } }, pollMs) => join?.timeoutMs !== undefined && join.timeoutMs <= 2 * pollMs,
  },
  {
    name: 'retry dead letters',
    dueInMs: (worker, now) => fragment`
      (select 0
        from ${workflowNames(worker.log).workflow_routes} as r
        join ${consumerNames(worker.log).dead_letters} as d on d.consumer = 'handler:' || r.handler
        where r.id = any(${routesOf(worker)}::integer[])
          and d.retry_at <= ${now}
          and d.state = 'open'
        limit 1)`,
    run: worker => retryDeadLetters(worker.log, worker.owner, routesOf(worker)),
    retryMs: lockedMs,
  },
  {
    // A cancellation reaches the children of a workflow after the call that asked for it.
    name: 'cancel child workflows',
    dueInMs: ({ log }) => fragment`(select 0 from ${workflowNames(log).workflows} as w where w.is_spreading limit 1)`,
    run: ({ log, hints }) => reachAllChildren(log, hints),
  },
  {
    // A new handler that begins at an earlier position is given the events since then.
    name: 'backfill handlers',
    dueInMs: ({ log }) => fragment`
      (select 0
        from ${workflowNames(log).workflow_routes} as r
        where r.backfill_position is not null
          and r.retired_at is null
        limit 1)`,
    run: worker => backfill(worker, worker.hints),
  },
  {
    name: 'run schedules',
    dueInMs: ({ log, owner, scheduler, runsSchedule }, now) => fragment`
      (select ${msUntil(
        fragment`min(greatest(
          least(s.triggers[1], case when s.paused_at is null then s.next_at end),
          case
            when s.owner is null
              or (s.owner <> ${owner}::text
                and exists (
                  select
                  from ${consumerNames(log).runners} as r
                  where r.id = s.owner
                    and ${isAlive(log)}))
            then s.claimed_until
          end))`,
        now,
      )}
        from ${workflowNames(log).workflow_schedules} as s
        where s.name = any(${scheduler.names().filter(runsSchedule)}::text[])
          and (cardinality(s.triggers) > 0 or (s.paused_at is null and s.next_at is not null)))`,
    run: async worker => ({ count: 0, nextInMs: await worker.scheduler.begin(worker) }),
  },
  {
    // A hint that executions are ready can get lost.
    name: 'claim ready executions',
    dueInMs: worker => fragment`
      (select 0
        from ${workflowNames(worker.log).workflow_executions} as x
        where x.route = any(${routesOf(worker)}::integer[])
          and x.state = 'ready'
        limit 1)`,
    async run({ claimSoon }) {
      claimSoon()
      return 0
    },
  },
]

/** When each duty is due, in one statement. A duty that is never due is omitted. */
export async function readDue(worker: DutyWorker, list: readonly Duty[] = duties): Promise<readonly DueDuty[]> {
  const { log } = worker
  const lookedAt = elapsedMs()
  const now = fragment`(select moment.at from moment)`
  const columns = list.flatMap(duty => [
    fragment`(${duty.dueInMs(worker, now)})::float8`,
    duty.items === undefined ? fragment`null::text[]` : duty.items(worker, now),
  ])
  const [row] = await log.database.runArrays(sql`/* workflows.due */
    with moment as materialized (select at from ${moment(log.names.clock)})
    select ${joinFragments(columns, ',\n      ')}`)
  const cells = row as (number | string[] | null)[]
  return list.flatMap((duty, at): DueDuty[] => {
    const [inMs, items] = [cells[2 * at] as number | null, cells[2 * at + 1] as string[] | null]
    return inMs === null ? [] : [{ duty, inMs, items: items ?? [], lookedAt }]
  })
}

/**
 * Does the due duties. Returns how much was done and when to look again: at once after work, which may be followed by
 * more.
 */
export async function runDuties(
  worker: DutyWorker,
  due: readonly DueDuty[],
): Promise<{ count: number; nextInMs: number }> {
  const hurried = { ...worker, log: withShortWaits(worker.log, worker.leaseMs) }
  let [count, nextInMs] = [0, Number.POSITIVE_INFINITY]
  for (const look of due) {
    const { duty, inMs } = look
    if (inMs > 0) {
      nextInMs = Math.min(nextInMs, inMs)
      continue
    }
    const done = await unlessLocked(() => duty.run(hurried, look))
    const own = typeof done === 'number' ? { count: done, nextInMs: duty.retryMs } : done
    count += own.count
    nextInMs = Math.min(nextInMs, own.nextInMs ?? Number.POSITIVE_INFINITY)
  }
  if (count > 0) worker.hints.ready()
  return { count, nextInMs: count > 0 ? 0 : nextInMs }
}

/** Duties are done between two heartbeats, so their transactions wait for locks for a quarter of a lease at most. */
function withShortWaits(log: Log, leaseMs: number): Log {
  const limits = { ...idleLimit(leaseMs), lockTimeoutMs: Math.min(1_000, leaseMs / 4) }
  const { database } = log
  const transaction: typeof database.transaction = (work, options) =>
    database.transaction(work, { ...limits, ...options })
  return { ...log, database: { ...database, transaction } }
}

async function unlessLocked<T>(work: () => Promise<T>): Promise<T | 0> {
  try {
    return await work()
  } catch (error) {
    const { sqlState } = (error ?? {}) as { sqlState?: string }
    if (isRillflowError(error, 'database_failed') && sqlState === lockNotAvailable) return 0
    throw error
  }
}

/** Runners whose heartbeat is too old, and whose executions are not released yet. */
function deadWorkers({ log, owner }: DutyWorker): Fragment {
  return fragment`${consumerNames(log).runners} as r
        where r.id <> ${owner}::text
          and r.routes <> '{}'
          and not ${isAlive(log)}`
}

function msUntil(time: Fragment, now: Fragment): Fragment {
  return fragment`extract(epoch from ${time} - ${now}) * 1000`
}

function routesOf({ handlers }: Pick<DutyWorker, 'handlers'>): number[] {
  return [...handlers.keys()]
}

/** The loop that looks after the duties of one worker. */
export interface Duties {
  lookSoon(): void
  lookIn(ms: number): void
  /** An execution has ended: looks again soon, if a duty depends on that. */
  onEnded(): void
  stop(): Promise<void>
}

export interface DutiesOptions extends Omit<DutyWorker, keyof DispatchParts | 'hints' | 'scheduler' | 'lookIn'> {
  readonly pollMs: number
  readonly backoff: Backoff
  onFailure(error: unknown): void
}

export function openDuties(
  parts: Pick<DutyWorker, keyof DispatchParts | 'hints' | 'scheduler'>,
  { pollMs, backoff, onFailure, ...options }: DutiesOptions,
): Duties {
  const loop = openLoop({ look, pollMs, backoff, onFailure })
  const worker: DutyWorker = { ...parts, ...options, lookIn }
  let afterEndMs: number | undefined
  return {
    lookSoon: loop.lookSoon,
    lookIn,
    onEnded: () => afterEndMs !== undefined && loop.lookIn(afterEndMs),
    stop: loop.stop,
  }

  /** A little later than asked for, so that the duty is due by the database's clock, too. */
  function lookIn(ms: number): void {
    loop.lookIn(Math.ceil(ms) + 1)
  }

  async function look(): Promise<number> {
    const due = await readDue(worker)
    afterEndMs = due.find(({ duty }) => duty.afterEndMs !== undefined)?.duty.afterEndMs
    const { count, nextInMs } = await runDuties(worker, due)
    if (count > 0) worker.claimSoon()
    return count > 0 ? 0 : Math.min(Math.ceil(nextInMs) + 1, pollMs)
  }
}
