/**
 * Waiting until workflows are settled: all callers that wait in this store are answered by one statement, after each
 * hint and by a poll whose waits grow. The error of a wait that times out says why the workflow is not settled.
 */

import { isAlive } from '../consumers/runners/row.ts'
import { consumerNames } from '../consumers/schema.ts'
import { abortable, type Deferred, deferred } from '../core/abort.ts'
import { counted } from '../core/core.ts'
import { isRillflowError } from '../core/errors.ts'
import { openLoop } from '../core/loop.ts'
import { type WaitOptions, waitWithin } from '../core/wait.ts'
import { sql } from '../database/sql.ts'
import type { Log } from '../events/log.ts'
import type { DispatchProgress } from './dispatch/dispatch.ts'
import type { WorkflowHints } from './hints.ts'
import type { Attributes } from './publish.ts'
import { workflowNames } from './schema.ts'
import { readStatuses, type WorkflowStatus } from './status.ts'

export interface SettledWatch {
  /** Resolves when nothing more happens in the workflow by itself. `position`: that of an event of it. */
  waitUntilSettled(correlationId: string, options?: WaitOptions, position?: number): Promise<WorkflowStatus>
  /** Of these workflows those that callers wait for now. A call that changes workflows looks at them, too. */
  watched(correlationIds: readonly string[]): Watched
  /** Answers the watched callers, and then sends a hint that needs no look for them. */
  quietly(answer: () => void, hint: () => void): void
}

/** Callers that wait before a call is sent: only those know that nothing of it came before their wait. */
export interface Watched {
  readonly ids: readonly string[]
  answer(settled: readonly SettledRow[]): void
}

/** A workflow that is settled, as a call that changed it has seen it. */
export type SettledRow = [
  correlationId: string,
  lastType: string,
  startedAt: string,
  updatedAt: string,
  parent: string | null,
  reason: string | null,
  attributes: Attributes | null,
]

const firstPollMs = 20
const lastPollMs = 1_000

/** `progress`: an event that this process has still to dispatch needs no look before it has. */
export function watchSettled(log: Log, hints: WorkflowHints, progress: DispatchProgress): SettledWatch {
  const waiters = new Map<string, Set<Deferred<WorkflowStatus>>>()
  let stopListening: (() => void) | undefined
  const loop = openLoop({ look, pollMs: Number.POSITIVE_INFINITY, onFailure })
  let pollMs = firstPollMs
  let isQuiet = false

  return {
    watched,
    quietly,
    async waitUntilSettled(correlationId, options = {}, position = 0) {
      log.database.refuseInsideTransaction('waitUntilSettled')
      const missing = (): Promise<string | undefined> => whatIsMissing(log, correlationId)
      const what = `The end of workflow ${correlationId}`
      return waitWithin(options, { call: 'waitUntilSettled', what, clock: log.clock, missing }, async signal => {
        const waiter = deferred<WorkflowStatus>()
        const all = waiters.get(correlationId) ?? new Set()
        waiters.set(correlationId, all.add(waiter))
        stopListening ??= hints.onEnded(lookUnlessQuiet)
        pollMs = firstPollMs
        if (progress.reached > 0 && progress.reached < position) loop.lookIn(pollMs)
        else loop.lookSoon()
        try {
          return await abortable(waiter.promise, signal)
        } finally {
          leave(correlationId, waiter)
        }
      })
    },
  }

  function watched(correlationIds: readonly string[]): Watched {
    const present = new Map<string, readonly Deferred<WorkflowStatus>[]>()
    if (waiters.size > 0)
      for (const id of correlationIds) {
        const all = waiters.get(id)
        if (all !== undefined) present.set(id, [...all])
      }
    return {
      ids: [...present.keys()],
      answer(rows) {
        for (const row of rows) {
          const all = present.get(row[0]) ?? []
          // Before the hint, which would look for them once more.
          for (const waiter of all) leave(row[0], waiter)
          for (const waiter of all) waiter.resolve(statusOfSettled(row))
        }
        // Callers that have come since have to be looked for.
        if (correlationIds.some(id => waiters.has(id))) loop.lookSoon()
      },
    }
  }

  function lookUnlessQuiet(): void {
    if (!isQuiet) loop.lookSoon()
  }

  function quietly(answer: () => void, hint: () => void): void {
    answer()
    isQuiet = true
    try {
      hint()
    } finally {
      isQuiet = false
    }
  }

  function leave(correlationId: string, waiter: Deferred<WorkflowStatus>): void {
    const all = waiters.get(correlationId)
    all?.delete(waiter)
    if (all?.size === 0) waiters.delete(correlationId)
    if (waiters.size > 0) return
    stopListening?.()
    stopListening = undefined
    loop.rest()
  }

  async function look(): Promise<number | undefined> {
    if (waiters.size === 0) return undefined
    for (const status of await readStatuses(log, [...waiters.keys()], log.database, true))
      if (status.isSettled) for (const waiter of waiters.get(status.correlationId) ?? []) waiter.resolve(status)
    const waitMs = pollMs
    pollMs = Math.min(pollMs * 1.5, lastPollMs)
    return waitMs
  }

  function onFailure(error: unknown): void {
    if (!isRillflowError(error) || !error.retryable)
      for (const all of waiters.values()) for (const waiter of all) waiter.reject(error)
  }
}

function statusOfSettled(row: SettledRow): WorkflowStatus {
  const [correlationId, lastType, startedAt, updatedAt, parent, reason, attributes] = row
  return {
    ...{ correlationId, lastType, state: 'settled', isSettled: true, pending: 0, parked: 0, deadLetters: 0 },
    lastFailure: undefined,
    startedAt: new Date(startedAt),
    updatedAt: new Date(updatedAt),
    parent: parent ?? undefined,
    reason: reason ?? undefined,
    attributes: attributes ?? undefined,
  }
}

interface OpenRow {
  readonly handler: string
  readonly state: string
  readonly count: number
  readonly is_paused: boolean
  readonly is_served: boolean
}

/** Why a workflow has not settled, in a sentence; undefined if it has settled meanwhile. */
export async function whatIsMissing(log: Log, correlationId: string): Promise<string | undefined> {
  const { workflow_executions, workflow_routes, workflow_joins } = workflowNames(log)
  const [status] = await readStatuses(log, [correlationId])
  if (status!.isSettled) return undefined
  const rows = await log.database.run<OpenRow>(sql`/* workflows.missing */
    select route.handler, o.state, count(*) as count, bool_or(route.paused_at is not null) as is_paused,
      bool_or(exists (
        select
        from ${consumerNames(log).runners} as r
        where route.id = any(r.routes)
          and ${isAlive(log)})) as is_served
    from (
      select x.route, x.state
      from ${workflow_executions} as x
      where x.correlation_id = ${correlationId}::text
      union all
      select j.route, 'waiting for events of its batch'
      from ${workflow_joins} as j
      where j.correlation_id = ${correlationId}::text
        and j.state = 'open') as o
    join ${workflow_routes} as route on route.id = o.route
    group by route.handler, o.state
    order by count(*) desc
    limit 5`)
  if (status!.state === 'unknown') return 'The store has no event and no execution of it. Look at its id.'
  if (rows.length === 0)
    return 'Its newest event is not dispatched yet. Start a runner with its handlers (store.start(), or rillflow run).'
  return rows.map(missingOf).join(' ')
}

function missingOf({ handler, state, count, is_paused: isPaused, is_served: isServed }: OpenRow): string {
  const number = Number(count)
  const open = `${counted(number, 'execution')} of "${handler}" ${number === 1 ? 'is' : 'are'} ${state}`
  if (isPaused) return `${open}, and the handler is paused.`
  return isServed ? `${open}.` : `${open}, and no running worker has its code.`
}
