/**
 * Storing what attempts came to: what they emit, what they write, the end of the execution and its trace are one
 * transaction, short, and without a wait for anything but the database. The fence decides whether it counts.
 *
 * Whatever comes while one call is under way goes together into the next. Outcomes without effects are one statement; those
 * that only emit share a transaction; those with writes of their own, or that others must not be held up by, go alone.
 */

import { isInterruption } from '../../consumers/run/failure.ts'
import { coalesce } from '../../core/coalesce.ts'
import { isRillflowError } from '../../core/errors.ts'
import { delay, retry } from '../../core/retry.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { isCollision, sqlStateOf } from '../../database/sqlstate.ts'
import { appendIn } from '../../events/append/append.ts'
import type { Append } from '../../events/append/send.ts'
import { byBytes, sendBatch } from '../../events/append/send.ts'
import { holdWhole } from '../cancel/cancel.ts'
import { closeLetter } from '../dead-letters/letters.ts'
import type { DispatchParts } from '../dispatch/dispatch.ts'
import { enqueue } from '../dispatch/enqueue.ts'
import { moveBatches } from '../joins/joins.ts'
import { finishMoves } from '../joins/moves.ts'
import { loadRoutes } from '../routes.ts'
import { workflowNames } from '../schema.ts'
import { hasIdledTooLong, idleLimit } from './limits.ts'
import { isPlain, type Outcome } from './outcome.ts'
import { resultOf } from './result.ts'

export interface Finisher {
  /**
   * Resolves to what became of it. Rejects with what is wrong with the outcome itself: what it emits was refused, or what
   * it writes failed. `next` is held behind it, and starts with it if it still can.
   */
  finish(outcome: Outcome, next?: string): Promise<Finished>
  /** How many are waiting to be stored. */
  readonly size: number
  /** Resolves when nothing is under way. */
  drain(): Promise<void>
}

/** Refused: the execution is somebody else's by now, or nobody's. Continued: stored, and `next` has started. */
export type Finished = 'refused' | 'stored' | 'continued'

interface Entry {
  readonly outcome: Outcome
  readonly next: string | undefined
}

export interface FinishOptions {
  readonly owner: string
  readonly graceMs: number
  /** Aborts when nothing can be stored any more. */
  readonly lost: AbortSignal
}

const mostTogether = 500
const troubleBackoff = { baseMs: 20, factor: 2, maxMs: 2_000, jitter: 0.5 }

export function openFinisher(parts: DispatchParts, options: FinishOptions): Finisher {
  const { log } = parts
  const outcomes = coalesce<Entry, Finished>({
    name: 'outcome',
    send,
    afterFailure: (error, _, attempt) => {
      if (!isPassing(error, attempt) || options.lost.aborted) return 'fail'
      log.telemetry.log.warn({ schema: log.schema, owner: options.owner, error }, 'outcomes could not be stored yet')
      return { sendAgainInMs: delay(troubleBackoff, attempt) }
    },
    keysOf: ({ outcome }) => [outcome.execution.id],
    fits: (entry, batch) =>
      kindOf(entry) === kindOf(batch[0]!) &&
      !batch.some(other => other.outcome.execution.id === entry.outcome.execution.id),
    maxBatch: { count: mostTogether, bytes: 0 },
    maxQueued: { count: 100_000, bytes: 0 },
    maxCalls: () => 2,
    signal: options.lost,
  })

  return {
    get size() {
      return outcomes.size
    },
    finish: (outcome, next) => outcomes.submit({ outcome, next }),
    drain: outcomes.drain,
  }

  async function send(entries: readonly Entry[]): Promise<(Finished | Promise<Finished>)[]> {
    const kind = kindOf(entries[0]!)
    if (kind === 'writing') return entries.map(goAlone)
    const store = kind === 'plain' ? finishPlain : finishTogether
    const answers = await store(parts, options, entries)
    return entries.map(entry => answers.get(entry) ?? goAlone(entry))
  }

  function goAlone(entry: Entry): Promise<Finished> {
    const again = { retries: Number.POSITIVE_INFINITY, backoff: troubleBackoff, signal: options.lost }
    let tries = 0
    const when = (error: unknown): boolean => isPassing(error, tries) && !options.lost.aborted
    return retry(
      async () => {
        tries++
        return (await finishAlone(parts, options, entry)).get(entry)!
      },
      { ...again, when },
    )
  }
}

function kindOf({ outcome }: Entry): 'plain' | 'emitting' | 'writing' {
  if (isPlain(outcome)) return 'plain'
  return outcome.inside === undefined ? 'emitting' : 'writing'
}

/**
 * Whether it says nothing about the outcome: the database was away or at its limits, or a neighbour was in the way. Work that
 * idles in its transaction until that is cut off looks the same at first.
 */
function isPassing(error: unknown, tries: number): boolean {
  const { sqlState = sqlStateOf(error) } = (error ?? {}) as { sqlState?: string }
  if (isRillflowError(error, 'serialization_failed') || isCollision(sqlState)) return true
  // Out of space or memory; a lock or a statement that took too long.
  if (isRillflowError(error, 'database_failed')) return /^(53|58)|^(55P03|57014)$/.test(sqlState ?? '')
  return isInterruption(error) && !(hasIdledTooLong(error) && tries >= mostCutOff)
}

const mostCutOff = 3

async function finishPlain(
  { log, wake }: DispatchParts,
  options: FinishOptions,
  entries: readonly Entry[],
): Promise<Map<Entry, Finished>> {
  const stored = await storeOutcomes(log.database, log, options, entries)
  wake.ended()
  // Who is next in a lane can be run by anybody.
  if (entries.some(({ outcome }) => outcome.execution.lane !== undefined || outcome.kind === 'release')) wake.worked()
  return new Map(entries.map(entry => [entry, finishedOf(entry, stored)]))
}

function finishedOf({ outcome, next }: Entry, { accepted, begun }: Stored): Finished {
  if (!accepted.has(outcome.execution.id)) return 'refused'
  return next !== undefined && begun.has(next) ? 'continued' : 'stored'
}

/** Those that emit and nothing else, in one transaction; whichever is missing from the answer has to go alone. */
async function finishTogether(
  parts: DispatchParts,
  options: FinishOptions,
  entries: readonly Entry[],
): Promise<Map<Entry, Finished>> {
  const { log, wake } = parts
  if (entries.length === 1) return new Map()
  const answers = new Map<Entry, Finished>()
  await log.database
    .transaction(async tx => {
      const accepted = await hold(tx, log, entries)
      const held = entries.filter(({ outcome }) => accepted.has(outcome.execution.id))
      for (const entry of entries) if (!held.includes(entry)) answers.set(entry, 'refused')
      if (held.length === 0) return
      const emitting = held.filter(({ outcome }) => outcome.emitted?.append !== undefined)
      const codes = await sendBatch(
        tx,
        log,
        emitting.map(({ outcome }) => outcome.emitted!.append as Append),
        false,
      )
      const failed = new Set(emitting.filter((_, at) => codes[at]!.kind !== 'appended'))
      const stored = held.filter(entry => !failed.has(entry))
      if (stored.length === 0) return
      const finished = await finishInside(parts, options, tx, stored)
      for (const entry of stored) answers.set(entry, finishedOf(entry, finished))
      await wake.appendedIn(tx, tx)
    }, idleLimit(options.graceMs))
    .catch((error: unknown) => {
      if (isInterruption(error)) throw error
      // One of them is in the way of the others; alone each has an outcome of its own.
      answers.clear()
    })
  return answers
}

async function finishAlone(parts: DispatchParts, options: FinishOptions, entry: Entry): Promise<Map<Entry, Finished>> {
  const { log } = parts
  const { outcome } = entry
  const finished = await log.database.transaction(async tx => {
    if (outcome.compensates === true) await holdWhole(log, tx, outcome.execution.correlationId)
    const accepted = await hold(tx, log, [entry])
    if (!accepted.has(outcome.execution.id)) return 'refused'
    await outcome.inside?.(tx)
    const { append } = outcome.emitted ?? {}
    const results = append === undefined ? [] : await appendIn(parts, append, tx)
    // What was in the log before is not under way again.
    const isRepeated = results.some(({ repeated }) => repeated)
    const stored = isRepeated ? { ...entry, outcome: { ...outcome, emitted: undefined } } : entry
    return finishedOf(entry, await finishInside(parts, options, tx, [stored]))
  }, idleLimit(options.graceMs))
  return new Map([[entry, finished]])
}

/** What follows from these outcomes, in their transaction, after what they emit; returns what `storeOutcomes` does. */
async function finishInside(
  parts: DispatchParts,
  options: FinishOptions,
  tx: Transaction,
  entries: readonly Entry[],
): Promise<Stored> {
  const { log, wake } = parts
  const moves = finishMoves(entries.map(({ outcome }) => outcome))
  let isWork = entries.some(({ outcome }) => outcome.execution.lane !== undefined || outcome.kind === 'release')
  const { joined, isTimed } = await moveBatches(log, tx, options.owner, () => loadRoutes(log, tx), moves)
  await enqueue(log, tx, options.owner, joined)
  isWork ||= isTimed || joined.length > 0
  for (const { outcome } of entries)
    if (outcome.execution.isLetter && outcome.kind === 'done' && outcome.told !== 'failed')
      await closeLetter(log, tx, outcome.execution)
  const stored = await storeOutcomes(tx, log, options, entries)
  const isUndoing = entries.some(
    ({ outcome }) => outcome.compensates === true || outcome.execution.undoId !== undefined,
  )
  tx.afterCommit(() => {
    wake.ended()
    if (isUndoing) wake.changed()
    if (isWork || isUndoing) wake.worked()
  })
  return stored
}

async function hold(tx: Executor, log: DispatchParts['log'], entries: readonly Entry[]): Promise<Set<string>> {
  const { correlations, lanes, executions } = aboutOf(entries)
  const [row] = await tx.runArrays(sql`/* workflows.hold */
    select accepted
    from ${workflowNames(log).workflow_hold}(
      p_correlations => ${correlations}::text[],
      p_lanes => ${lanes}::text[],
      p_ids => ${executions.map(({ id }) => id)}::uuid[],
      p_fences => ${executions.map(({ fence }) => fence)}::bigint[])`)
  return idsOf(row?.[0])
}

interface Stored {
  readonly accepted: ReadonlySet<string>
  readonly begun: ReadonlySet<string>
}

/** Returns the executions whose outcome counts, and those that began with it. */
async function storeOutcomes(
  executor: Executor,
  log: DispatchParts['log'],
  { owner, graceMs }: FinishOptions,
  entries: readonly Entry[],
): Promise<Stored> {
  const { correlations, lanes, executions } = aboutOf(entries)
  const outcomes = entries.map(({ outcome }) => outcome)
  const next = entries.flatMap(entry => (entry.next === undefined ? [] : [entry.next]))
  const results = outcomes.map(({ told, emitted }) => (told === 'completed' ? (resultOf(emitted) ?? null) : null))
  const errors = outcomes.some(({ error }) => error !== undefined)
  const [row] = await executor.runArrays(sql`/* workflows.finish */
    select accepted, begun
    from ${workflowNames(log).workflow_complete}(
      p_owner => ${owner}::text,
      p_correlations => ${correlations}::text[],
      p_lanes => ${lanes}::text[],
      p_ids => ${executions.map(({ id }) => id)}::uuid[],
      p_fences => ${executions.map(({ fence }) => fence)}::bigint[],
      p_kinds => ${outcomes.map(({ kind }) => kind)}::text[],
      p_recorded => ${outcomes.map(({ told }) => told)}::text[],
      p_outcomes => ${outcomes.map(({ detail }) => detail ?? null)}::text[],
      p_delays => ${outcomes.map(({ delayMs }) => (delayMs === undefined ? null : Math.ceil(delayMs)))}::integer[],
      p_running_ms => ${outcomes.map(({ runningMs }) => Math.round(runningMs))}::integer[],
      p_results => ${results.some(result => result !== null) ? JSON.stringify(results) : null}::jsonb,
      p_errors => ${errors ? JSON.stringify(outcomes.map(({ error }) => error ?? null)) : null}::jsonb,
      p_next => ${next.length === 0 ? null : next}::uuid[],
      p_grace_ms => ${graceMs}::integer,
      p_clean => ${outcomes.some(({ hasSteps }) => hasSteps)}::boolean)`)
  const [accepted, begun] = row ?? []
  return { accepted: idsOf(accepted), begun: idsOf(begun) }
}

function aboutOf(entries: readonly Entry[]) {
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
