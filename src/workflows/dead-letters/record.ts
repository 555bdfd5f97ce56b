/**
 * Dead letters of handlers: in the table of all consumers and with the same states, under the name of the handler.
 *
 *     an execution fails for good ─► its dead letter, the events of `onDeadLetter`, its parked lane: one transaction
 *     a retry is an execution again ─► completed: the dead letter is closed with it · failed: it is open again
 *
 * `onDeadLetter` is called before that transaction, once for each time the execution is dead-lettered. If it fails, or
 * its result cannot be stored, the dead letter is recorded all the same, with a note of that.
 */

import { fingerprint } from '../../consumers/dead-letters/fingerprint.ts'
import { handlerRow } from '../../consumers/dead-letters/owner.ts'
import { closeRetried, record, reopenRetried } from '../../consumers/dead-letters/row.ts'
import { describeError, isInterruption } from '../../consumers/run/failure.ts'
import { consumerNames } from '../../consumers/schema.ts'
import { abortable, deadline } from '../../core/abort.ts'
import type { Executor, Transaction } from '../../database/database.ts'
import { fragment, sql } from '../../database/sql.ts'
import type { Log } from '../../events/log.ts'
import { cancelIn } from '../cancel/cancel.ts'
import { undoFailed } from '../cancel/compensate.ts'
import { type Emitted, emit, prepareEmitted, type ReadResult, readResult } from '../emit.ts'
import { InvalidResult } from '../errors.ts'
import type { Handler } from '../handler.ts'
import { placeOf } from '../joins/join.ts'
import { workflowNames } from '../schema.ts'
import { keepCalls } from '../steps/stored-calls.ts'
import type { AttemptParts } from '../work/attempt.ts'
import type { Claimed } from '../work/claim.ts'
import { parkLane, unparkAfter } from '../work/lanes.ts'
import type { OutcomeEnd } from '../work/outcome.ts'

/** Why an execution was dead-lettered. */
export type DeadLetterReason =
  /** Its handler threw, and has no retries. */
  | 'failed'
  /** Its handler threw, each time it was tried. */
  | 'maxRetries'
  /** Its handler did not return in time. */
  | 'timeout'
  /** Its handler threw an error that no retry can help. */
  | 'nonRetryable'
  /** Its events would be too far from the first event of the workflow. */
  | 'hops'
  | 'tooManyEmitted'
  /** Its handler returned something that is not an emission. */
  | 'invalidResult'
  /** Its events were refused when they were appended. */
  | 'invalidEmission'
  /** Its event could not be upcast. */
  | 'undecodable'
  /** Its event is no longer in the log. */
  | 'eventGone'
  /** Several workers died while they ran it. */
  | 'crashed'
  /** It had not ended when the `deadlineMs` of its handler was over. */
  | 'deadline'
  /** It was parked, and an operator has dead-lettered it. */
  | 'rejected'
  | 'joinTimeout'
  | 'joinFailed'

export interface FailedExecution {
  readonly execution: Claimed
  readonly handler: Handler
  readonly error: unknown
  readonly reason: DeadLetterReason
  /** Whether its lane waits until an operator acts. */
  readonly parksLane: boolean
}

/** How long `onDeadLetter` may take. The execution is open until then, and no other worker takes it over meanwhile. */
const maxHookMs = 5_000

/** The outcome of an execution that has failed for good. */
export async function deadLetterOutcome(parts: AttemptParts, failed: FailedExecution): Promise<OutcomeEnd> {
  const { log } = parts
  const { parksLane } = failed
  const compensates = failed.handler.onDeadLetter === 'compensate'
  const plain = (problem?: string): OutcomeEnd => ({
    ...{ kind: 'done', activity: 'failed', detail: failed.reason, error: describeError(failed.error) },
    ...{ compensates, parksLane },
    write: tx => deadLetter(log, tx, failed, problem),
  })
  try {
    const reported = await callHook(parts, failed)
    if (reported === undefined) return plain()
    const { work, emitted } = reported
    return {
      ...plain(),
      emitted,
      write: async tx => {
        await deadLetter(log, tx, failed)
        await work?.(tx)
      },
      ifRefused: error => plain(noteProblem(log, failed, error)),
    }
  } catch (error) {
    // If our database answers, the hook has caused the interruption itself: it must not make the handler run again.
    if (isInterruption(error) && !(await isDatabaseThere(log))) throw error
    return plain(noteProblem(log, failed, error))
  }
}

function isDatabaseThere({ database }: Log): Promise<boolean> {
  return database
    .run(sql`/* workflows.answers */
      select`)
    .then(
      () => true,
      () => false,
    )
}

interface Reported {
  readonly work: ReadResult['work']
  readonly emitted: Emitted | undefined
}

/** Calls the handler's `onDeadLetter`; undefined if it has none. */
async function callHook({ log, limits }: AttemptParts, failed: FailedExecution): Promise<Reported | undefined> {
  const { handler, error, reason, execution } = failed
  const { event, attempt } = execution
  const { name, onDeadLetter: hook } = handler
  if (typeof hook !== 'function' || event === undefined) return undefined
  const limit = deadline(undefined, maxHookMs, { what: `The end of onDeadLetter of "${name}"`, clock: log.clock })
  let result: unknown
  try {
    result = await abortable(
      (async () => hook({ handler: name, error, reason, attempt, event }, { emit }))(),
      limit.signal,
    )
  } finally {
    limit.dispose()
  }
  const read = readResult(result)
  if ('reason' in read) throw new InvalidResult({ handler: name, reason: `its onDeadLetter: ${read.reason}` })
  if (read.compensation !== undefined)
    throw new InvalidResult({ handler: name, reason: "its onDeadLetter: write onDeadLetter: 'compensate' instead" })
  const failure = await countFailures(log, name, event.id)
  const emitter = { handler: name, event, failure, ...placeOf(execution) }
  return { work: read.work, emitted: await prepareEmitted(log, emitter, read.emitted, limits) }
}

function noteProblem(log: Log, { handler, execution }: FailedExecution, error: unknown): string {
  const { name, message } = describeError(error)
  log.telemetry.log.warn(
    { schema: log.schema, handler: handler.name, executionId: execution.id, error },
    'onDeadLetter itself has failed.',
  )
  return `${name}: ${message}`
}

/** In the transaction that ends the execution. */
async function deadLetter(log: Log, tx: Transaction, failed: FailedExecution, problem?: string): Promise<void> {
  const { execution, handler, error } = failed
  await recordDeadLetter(log, tx, failed, problem)
  // Without its event there is no dead letter, and nothing for an operator to decide.
  if (failed.parksLane && execution.event !== undefined) await parkLane(log, tx, execution)
  if (execution.undoId !== undefined) await undoFailed(log, tx, execution)
  if (handler.onDeadLetter !== 'compensate') return
  const reason = `${handler.name} has failed: ${describeError(error).message}`
  await cancelIn(log, tx, execution.correlationId, { reason, compensate: true, except: execution.id })
}

/** In the transaction that completes the execution. `problem`: why the hook of the handler has failed. */
export async function recordDeadLetter(
  log: Log,
  tx: Executor,
  { execution, handler, error, reason }: FailedExecution,
  problem?: string,
): Promise<void> {
  const { id, event, attempt, fence, correlationId } = execution
  // Without its event there is nothing to record but that a retry has failed; the activity has the rest.
  if (event === undefined) return reopenRetried(log, id, { attempts: attempt, error, reason }, tx)
  await keepCalls(log, tx, id)
  const consumer = handlerRow(handler.name)
  // Each earlier attempt has a line in the activity; a workflow may have many.
  const attempts = fragment`from ${workflowNames(log).workflow_activity} as a
          where a.correlation_id = ${correlationId}::text
            and a.execution = ${id}::uuid
            and a.kind = 'failed'
            and a.outcome in ('retry', 'lost')
            and a.error is not null
            and a.at > coalesce((
              select l.last_failed_at
              from ${consumerNames(log).dead_letters} as l
              where l.consumer = ${consumer}::text
                and l.event_id = ${event.id}::uuid), '-infinity')`
  const firstFailedAt =
    attempt <= 1
      ? fragment`null::timestamptz`
      : fragment`(
          select min(a.at)
          ${attempts})`
  const earlier = fragment`coalesce((
        select jsonb_agg(jsonb_build_object('at', earlier.at) || earlier.error order by earlier.position)
        from (
          select a.position, a.at, a.error
          ${attempts}
          order by a.position desc
          limit ${Math.max(0, Math.min(maxEarlier, attempt - 1))}::integer) as earlier), '[]')`
  const more = {
    id,
    correlationId,
    reason,
    fingerprint: fingerprint(handler.name, error),
    earlier,
    firstFailedAt,
    onDeadLetter: problem,
  }
  await record(log, { consumer, fence }, { event, error, attempts: attempt }, tx, more)
}

/** The dead letter keeps the last 20 errors. */
const maxEarlier = 19

/** How often this execution was dead-lettered before. */
async function countFailures(log: Log, handler: string, eventId: string): Promise<number> {
  const [row] = await log.database.run<{ failures: number }>(sql`/* workflows.count_failures */
    select failures
    from ${consumerNames(log).dead_letters}
    where consumer = ${handlerRow(handler)}::text
      and event_id = ${eventId}::uuid`)
  return row?.failures ?? 0
}

/** The execution that retried a dead letter has completed: closes the dead letter, in that transaction. */
export async function closeDeadLetter(log: Log, tx: Executor, execution: Claimed): Promise<void> {
  await closeRetried(log, execution.id, execution.attempt, tx)
  await unparkAfter(log, tx, execution)
}
