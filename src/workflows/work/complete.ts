/**
 * Completes attempts: stores the outcome of each, the events it emits and its writes, in one transaction.
 *
 *     attempt ──► coalesce ──┬── nothing but an outcome ──► one statement for all of them
 *                            ├── also emits events ───────► one transaction for all of them; the failed ones alone
 *                            └── also writes (ctx.tx) ────► a transaction of its own
 *
 * Guarantees:
 * - An outcome counts only under the fence of its attempt. If another worker has taken over, nothing of it is stored.
 * - An attempt that breaks its batch is completed alone: its neighbours are not affected.
 * - While the database is away an outcome waits and is sent again, because the work it stands for has been done.
 *
 * What can fail: the emitted events are refused, or the writes fail. The attempt then fails with that error, and its
 * retry policy decides.
 */

import { isInterruption } from '../../consumers/run/failure.ts'
import { coalesce } from '../../core/coalesce.ts'
import { isRillflowError } from '../../core/errors.ts'
import { snakeCase } from '../../core/name.ts'
import { delay, retry } from '../../core/retry.ts'
import type { Executor, Transaction, TransactionOptions } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { isCollision, sqlStateOf } from '../../database/sqlstate.ts'
import { type Append, byBytes, sendBatch } from '../../events/append/send.ts'
import type { Log } from '../../events/log.ts'
import { holdWorkflow } from '../cancel/cancel.ts'
import { closeDeadLetter } from '../dead-letters/record.ts'
import { enqueue } from '../dispatch/enqueue.ts'
import { type AppendIn, attemptResult } from '../emit.ts'
import type { WorkflowHints } from '../hints.ts'
import { completeMoves, moveBatches } from '../joins/joins.ts'
import { loadRoutes } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import type { SettledRow, SettledWatch } from '../settled.ts'
import { isPlain, type Outcome } from './outcome.ts'

export interface Completer {
  /**
   * Resolves when the outcome is stored, or refused. Rejects if the outcome itself is wrong: its events were refused,
   * or its writes failed. `next` is an execution held behind it in its lane, which begins with it if it still can.
   */
  complete(outcome: Outcome, next?: string): Promise<Completed>
  /** How many outcomes are waiting to be stored. */
  readonly size: number
  /** Resolves when none is. */
  drain(): Promise<void>
}

/** Refused: the execution was taken over or removed. Continued: the outcome is stored, and `next` has begun. */
export type Completed = 'refused' | 'stored' | 'continued'

export interface CompleterParts {
  readonly log: Log
  readonly hints: WorkflowHints
  readonly append: AppendIn
  readonly settledWatch: SettledWatch
}

export interface CompleterOptions {
  readonly owner: string
  readonly graceMs: number
  /** Aborts when the worker gives up storing outcomes. */
  readonly lost: AbortSignal
}

interface Entry {
  readonly outcome: Outcome
  readonly next: string | undefined
}

const maxTogether = 500
/** An `integer` holds the milliseconds of 24 days. */
const maxDelayMs = 2 ** 31 - 1
const maxTogetherBytes = 4 * 1024 * 1024
const retryBackoff = { baseMs: 20, factor: 2, maxMs: 2_000, jitter: 0.5 }

export function openCompleter(parts: CompleterParts, options: CompleterOptions): Completer {
  const { log } = parts
  const outcomes = coalesce<Entry, Completed>({
    name: 'outcome',
    send,
    afterFailure: (error, _, attempt) => {
      if (!isPassing(error, attempt) || options.lost.aborted) return 'fail'
      log.telemetry.log.warn({ schema: log.schema, owner: options.owner, error }, 'Outcomes could not be stored yet.')
      return { sendAgainInMs: delay(retryBackoff, attempt) }
    },
    keysOf: ({ outcome }) => [outcome.execution.id],
    onePerKey: true,
    fits: (entry, batch) => kindOf(entry) === kindOf(batch[0]!),
    sizeOf: ({ outcome }) => ({ count: 1, bytes: outcome.emitted?.append?.bytes ?? 0 }),
    maxBatch: { count: maxTogether, bytes: maxTogetherBytes },
    // The work has been done: the executions of a worker limit their number, and a refusal would lose them.
    maxQueued: { count: 100_000, bytes: Number.POSITIVE_INFINITY },
    maxCalls: () => 2,
    signal: options.lost,
  })

  return {
    get size() {
      return outcomes.size
    },
    complete: (outcome, next) => outcomes.submit({ outcome, next }),
    drain: outcomes.drain,
  }

  async function send(entries: readonly Entry[]): Promise<(Completed | Promise<Completed>)[]> {
    const kind = kindOf(entries[0]!)
    if (kind === 'writing') return entries.map(completeAloneUntilStored)
    const completeAll = kind === 'plain' ? completePlain : completeTogether
    const answers = await completeAll(parts, options, entries)
    return entries.map(entry => answers.get(entry) ?? completeAloneUntilStored(entry))
  }

  function completeAloneUntilStored(entry: Entry): Promise<Completed> {
    let tries = 0
    return retry(
      () => {
        tries++
        return completeAlone(parts, options, entry)
      },
      {
        retries: Number.POSITIVE_INFINITY,
        backoff: retryBackoff,
        signal: options.lost,
        when: error => isPassing(error, tries) && !options.lost.aborted,
      },
    )
  }
}

function kindOf({ outcome }: Entry): 'plain' | 'emitting' | 'writing' {
  if (isPlain(outcome)) return 'plain'
  return outcome.write === undefined ? 'emitting' : 'writing'
}

/**
 * Whether an error is not about the outcome: the database was away or at its limits, or a neighbour was in the way. A
 * transaction that was cut off because the writes left it idle looks the same at first, so that counts a few times
 * only.
 */
function isPassing(error: unknown, tries: number): boolean {
  const { sqlState = sqlStateOf(error) } = (error ?? {}) as { sqlState?: string }
  if (isRillflowError(error, 'serialization_failed') || isCollision(sqlState)) return true
  // Out of space or memory; a lock or a statement that took too long.
  if (isRillflowError(error, 'statement_cancelled')) return true
  if (isRillflowError(error, 'database_failed')) return /^(53|58)|^55P03$/.test(sqlState ?? '')
  return isInterruption(error) && !(wasIdleTooLong(error) && tries >= maxIdleCuts)
}

const maxIdleCuts = 3

/** The server cuts off a transaction that is idle for longer than a lease: a worker that stopped must not block others. */
export function idleLimit(leaseMs: number): { readonly idleMs: number } & TransactionOptions {
  return { idleMs: Math.max(1_000, leaseMs) }
}

/** Whether a transaction was cut off, and so rolled back, by that limit. */
export function wasIdleTooLong(error: unknown): boolean {
  const { sqlState = sqlStateOf(error), cause } = (error ?? {}) as { sqlState?: string; cause?: unknown }
  return sqlState === idleInTransactionTimeout || sqlStateOf(cause) === idleInTransactionTimeout
}

const idleInTransactionTimeout = '25P03'

/** Outcomes without effects: one statement, which also answers callers that wait for their workflows. */
async function completePlain(
  { log, hints, settledWatch }: CompleterParts,
  options: CompleterOptions,
  entries: readonly Entry[],
): Promise<Map<Entry, Completed>> {
  const watched = settledWatch.watched(entries.map(({ outcome }) => outcome.execution.correlationId))
  const stored = await storeOutcomes(log.database, log, options, entries, watched.ids)
  settledWatch.quietly(() => watched.answer(stored.settled), hints.ended)
  if (entries.some(makesReady)) hints.ready()
  return new Map(entries.map(entry => [entry, completedOf(entry, stored)]))
}

/** Whether other executions may be ready because of it: the next one of its lane, or itself. */
function makesReady({ outcome }: Entry): boolean {
  return outcome.execution.lane !== undefined || outcome.kind === 'release'
}

function completedOf({ outcome, next }: Entry, { accepted, begun }: StoredOutcomes): Completed {
  if (!accepted.has(outcome.execution.id)) return 'refused'
  return next !== undefined && begun.has(next) ? 'continued' : 'stored'
}

/** Outcomes that emit and do nothing else, in one transaction. An entry that the answer lacks has to go alone. */
async function completeTogether(
  parts: CompleterParts,
  options: CompleterOptions,
  entries: readonly Entry[],
): Promise<Map<Entry, Completed>> {
  const { log } = parts
  if (entries.length === 1) return new Map()
  const answers = new Map<Entry, Completed>()
  await log.database
    .transaction(async tx => {
      const accepted = await hold(tx, log, entries)
      const held = entries.filter(({ outcome }) => accepted.has(outcome.execution.id))
      for (const entry of entries) if (!held.includes(entry)) answers.set(entry, 'refused')
      if (held.length === 0) return
      const emitting = held.filter(({ outcome }) => outcome.emitted?.append !== undefined)
      const appends = emitting.map(({ outcome }) => outcome.emitted!.append as Append)
      const codes = await sendBatch(tx, log, appends, false)
      const refused = new Set(emitting.filter((_, at) => codes[at]!.kind !== 'appended'))
      const appended = held.filter(entry => !refused.has(entry))
      if (appended.length === 0) return
      const stored = await storeWithConsequences(parts, options, tx, appended)
      for (const entry of appended) answers.set(entry, completedOf(entry, stored))
      tx.afterCommit(() => parts.hints.appended())
    }, idleLimit(options.graceMs))
    .catch((error: unknown) => {
      if (isInterruption(error)) throw error
      // One of them breaks the transaction; alone each has an outcome of its own.
      answers.clear()
    })
  return answers
}

// [claim-3]
async function completeAlone(parts: CompleterParts, options: CompleterOptions, entry: Entry): Promise<Completed> {
  const { log, append } = parts
  const { outcome } = entry
  return log.database.transaction(async tx => {
    if (outcome.compensates === true) await holdWorkflow(log, tx, outcome.execution.correlationId)
    const accepted = await hold(tx, log, [entry])
    if (!accepted.has(outcome.execution.id)) return 'refused'
    await outcome.write?.(tx)
    const emitted = outcome.emitted?.append
    const results = emitted === undefined ? [] : await append(emitted, tx)
    // Events that were in the log before do not count as emitted again.
    const isRepeated = results.some(({ repeated }) => repeated)
    const stored = isRepeated ? { ...entry, outcome: { ...outcome, emitted: undefined } } : entry
    return completedOf(entry, await storeWithConsequences(parts, options, tx, [stored]))
  }, idleLimit(options.graceMs))
}

/** After the events were appended: joins, dead letters and the outcomes themselves, in the same transaction. */
async function storeWithConsequences(
  { log, hints }: CompleterParts,
  options: CompleterOptions,
  tx: Transaction,
  entries: readonly Entry[],
): Promise<StoredOutcomes> {
  const outcomes = entries.map(({ outcome }) => outcome)
  const moves = completeMoves(outcomes)
  const { joined, isTimed } = await moveBatches(log, tx, options.owner, () => loadRoutes(log, tx), moves)
  await enqueue(log, tx, options.owner, joined)
  for (const { execution, kind, activity } of outcomes)
    if (execution.isRetry && kind === 'done' && activity !== 'failed') await closeDeadLetter(log, tx, execution)
  const stored = await storeOutcomes(tx, log, options, entries)
  const isUndoing = outcomes.some(
    ({ compensates, execution }) => compensates === true || execution.undoId !== undefined,
  )
  const isReady = isUndoing || isTimed || joined.length > 0 || entries.some(makesReady)
  tx.afterCommit(() => {
    hints.ended()
    if (isUndoing) hints.changed()
    if (isReady) hints.ready()
  })
  return stored
}

/** Locks the executions that still have the fence of their claim, with their workflows and lanes; returns their ids. */
async function hold(tx: Executor, log: Log, entries: readonly Entry[]): Promise<Set<string>> {
  const { correlations, lanes, executions } = lockedBy(entries)
  const [row] = await tx.runArrays(sql`/* workflows.hold */
    select accepted
    from ${workflowNames(log).workflow_hold}(
      p_correlations => ${correlations}::text[],
      p_lanes => ${lanes}::text[],
      p_ids => ${executions.map(({ id }) => id)}::uuid[],
      p_fences => ${executions.map(({ fence }) => fence)}::bigint[])`)
  return idsOf(row?.[0])
}

interface StoredOutcomes {
  /** The executions whose outcome counts. */
  readonly accepted: ReadonlySet<string>
  /** The executions that began with them, of those that were to. */
  readonly begun: ReadonlySet<string>
  /** Of the watched workflows those that are settled. */
  readonly settled: readonly SettledRow[]
}

async function storeOutcomes(
  executor: Executor,
  log: Log,
  { owner, graceMs }: CompleterOptions,
  entries: readonly Entry[],
  watched: readonly string[] = [],
): Promise<StoredOutcomes> {
  const { correlations, lanes, executions } = lockedBy(entries)
  const outcomes = entries.map(({ outcome }) => outcome)
  const next = entries.flatMap(entry => entry.next ?? [])
  const results = outcomes.map(({ activity, emitted }) =>
    activity === 'completed' ? (attemptResult(emitted) ?? null) : null,
  )
  const names = workflowNames(log)
  const hasErrors = outcomes.some(({ error }) => error !== undefined)
  const [row] = await executor.runArrays(sql`/* workflows.complete */
    select done.accepted, done.begun, now.settled
    from ${names.workflow_complete}(
      p_owner => ${owner}::text,
      p_correlations => ${correlations}::text[],
      p_lanes => ${lanes}::text[],
      p_ids => ${executions.map(({ id }) => id)}::uuid[],
      p_fences => ${executions.map(({ fence }) => fence)}::bigint[],
      p_kinds => ${outcomes.map(({ kind }) => kind)}::text[],
      p_recorded => ${outcomes.map(({ activity }) => activity)}::text[],
      p_outcomes => ${outcomes.map(({ detail }) => (detail === undefined ? null : snakeCase(detail)))}::text[],
      p_delays => ${outcomes.map(({ delayMs }) => (delayMs === undefined ? null : Math.min(maxDelayMs, Math.ceil(delayMs))))}::integer[],
      p_running_ms => ${outcomes.map(({ runningMs }) => Math.round(runningMs))}::integer[],
      p_results => ${results.some(result => result !== null) ? JSON.stringify(results) : null}::jsonb,
      p_errors => ${hasErrors ? JSON.stringify(outcomes.map(({ error }) => error ?? null)) : null}::jsonb,
      p_next => ${next.length === 0 ? null : next}::uuid[],
      p_grace_ms => ${graceMs}::integer,
      p_clean => ${outcomes.some(({ hasSteps }) => hasSteps)}::boolean) as done
    cross join lateral ${names.workflow_settled}(
      p_watched => case when done.accepted is not null then ${watched.length === 0 ? null : watched}::text[] end) as now`)
  const [accepted, begun, settled] = row ?? []
  return { accepted: idsOf(accepted), begun: idsOf(begun), settled: (settled ?? []) as SettledRow[] }
}

/** The rows that storing these outcomes locks, in the order in which they are locked everywhere. */
function lockedBy(entries: readonly Entry[]): {
  readonly executions: readonly Outcome['execution'][]
  readonly correlations: readonly string[]
  readonly lanes: readonly string[] | null
} {
  const executions = entries.map(({ outcome }) => outcome.execution)
  const lanes = [...new Set(executions.flatMap(({ lane }) => lane ?? []))].sort(byBytes)
  return {
    executions,
    correlations: [...new Set(executions.map(({ correlationId }) => correlationId))].sort(byBytes),
    lanes: lanes.length === 0 ? null : lanes,
  }
}

function idsOf(column: unknown): Set<string> {
  const ids = (column ?? []) as string[] | string
  return new Set(typeof ids === 'string' ? ids.slice(1, -1).split(',').filter(Boolean) : ids)
}
