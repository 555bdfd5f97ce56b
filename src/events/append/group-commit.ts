/**
 * Joins concurrent appends of this process into one call to the database, each with its own outcome.
 *
 *     submit ─► coalesce ─┬─ one ───────► append_one     at once; if it waits longer than 10 ms, the others do not wait with it
 *                         └─ several ───► append_batch   one call at a time; a second one when hundreds wait
 *                              │ busy: another transaction holds a stream ──► continues alone, on another connection
 *                              │ wanted by an inline projection, or refused with its documents ──► continues alone, in
 *                              │                                                                   a transaction
 *                              │ one of them breaks the call ──► halves, until that one fails alone
 *                              └ connection lost ──► sent again with the same ids
 *
 * Guarantees:
 * - A stream, an idempotency key and a document are in one call at a time; appends to a stream are sent in the order in
 *   which they were submitted, and none overtakes one that continues alone.
 * - An append that is sent twice is sent with `checkIds`: if it was stored the first time, that is its outcome.
 * - The queue is limited in number and bytes; beyond that a call is refused with `Overloaded`.
 *
 * What can fail: the connection, for longer than `resendMs`. The outcome of an append that may have been seen by the
 * database is then `OutcomeUnknown`, never "failed".
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { settledWithin, sleep } from '../../core/abort.ts'
import { coalesce } from '../../core/coalesce.ts'
import { isRillflowError, StoreClosed } from '../../core/errors.ts'
import { elapsedMs } from '../../core/host.ts'
import { type Backoff, defaultBackoff, delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import { OutcomeUnknown } from '../../database/errors.ts'
import { isCollision, lockNotAvailable, sqlStateOf, uniqueViolation } from '../../database/sqlstate.ts'
import { runOutside } from '../../database/transaction.ts'
import { channels } from '../../telemetry/telemetry.ts'
import { appendInline, inlineTimeout } from '../inline/inline.ts'
import type { Log } from '../log.ts'
import { type Append, documentsRefused, idsOf, lockStreams, type Outcome, sendBatch, sendOne } from './send.ts'

export interface GroupCommit {
  submit(append: Append, signal?: AbortSignal): Promise<Submitted>
  /** Refuses new appends and waits for those that were submitted. */
  drain(): Promise<void>
}

export interface Submitted {
  readonly outcome: Outcome
  /** Whether it was sent more than once: an earlier outcome that is found is then this call's own. */
  readonly resent: boolean
}

export interface GroupLimits {
  readonly maxQueued: number
  readonly maxQueuedBytes: number
  /** How long an append is sent again after its connection broke, before its outcome is given up as unknown. */
  readonly resendMs: number
}

export const defaultGroupLimits: GroupLimits = { maxQueued: 10_000, maxQueuedBytes: 64 * 1024 * 1024, resendMs: 30_000 }

const maxGroupBytes = 4 * 1024 * 1024
const secondCallFrom = 250
const patienceMs = 10
const shortBackoff: Backoff = { baseMs: 2, factor: 2, maxMs: 100, jitter: 0.5 }

/** An append on its way. */
interface Submission {
  readonly append: Append
  /** Its streams, its key and its documents: no other call may use them at the same time. */
  readonly names: readonly string[]
  /** Whether the database may have seen it in a call whose answer never came. */
  isUnanswered: boolean
  /** Whether code has to run in its transaction, so that it cannot share a call. */
  needsTransaction: boolean
  /** Where that code runs: as part of the caller's span, and outside of its transaction. */
  inCallersSpan<T>(work: () => T): T
}

/** The outcome of one append in one call: the database's answer, or why there will be none. */
type Sent = Outcome | Error

/** A promise if it continues alone. */
type Answer = Submitted | Promise<Submitted>

export function groupCommit(log: Log, limits: GroupLimits): GroupCommit {
  const { database } = log
  // Half of the connections may wait for streams that other transactions hold; the rest are for all other calls.
  const maxWaiting = Math.floor(database.maxConnections / 2)
  const canWait = database.engine === 'pglite' || maxWaiting > 0
  let waiting = 0
  const transactions = openTurns(() => Math.max(1, maxWaiting - waiting))
  const queue = coalesce<Submission, Submitted>({
    name: 'append',
    send,
    sizeOf: ({ append }) => ({ count: append.eventCount + (append.alongside?.count ?? 0), bytes: append.bytes }),
    keysOf: ({ names }) => names,
    fits: canShareCall,
    maxBatch: { count: database.batch.appendEvents, bytes: maxGroupBytes },
    maxQueued: { count: limits.maxQueued, bytes: limits.maxQueuedBytes },
    maxCalls: queued => (queued >= secondCallFrom && canWait ? 2 : 1),
    outcomeUnknown: ({ append }, reason) =>
      new OutcomeUnknown({ eventIds: idsOf(append), reason: 'the call was aborted after it had been sent' }, reason),
  })
  return {
    submit(append, signal) {
      const needsTransaction = !canBeGrouped(append) || log.inline.mayWant(append)
      const inCallersSpan = log.telemetry.isTraced ? AsyncLocalStorage.snapshot() : runHere
      return queue.submit(
        { append, names: namesOf(append), isUnanswered: false, needsTransaction, inCallersSpan },
        { signal },
      )
    },
    drain: () => queue.close(new StoreClosed({})),
  }

  /** Sends a batch. An append that cannot be settled in this call continues alone, as a promise. */
  async function send(batch: readonly Submission[]): Promise<Answer[]> {
    if (batch[0]!.needsTransaction) return [sendInTurn(batch).then(([only]) => only!)]
    const started = elapsedMs()
    const isAlone = batch.length === 1
    const waits = isAlone && canWait && (waiting < maxWaiting || database.engine === 'pglite')
    const sending = sendUntilAnswered(batch, waits)
    void sending.then(
      () => countGroup(batch, started),
      () => {},
    )
    if (waits && !(await settledWithin(sending, patienceMs))) {
      // It waits for a stream that another transaction holds; the others must not wait with it.
      return [whileWaiting(sending).then(sent => settle(batch, sent)[0]!)]
    }
    return settle(batch, await sending)
  }

  async function whileWaiting<T>(work: Promise<T>): Promise<T> {
    waiting++
    try {
      return await work
    } finally {
      waiting--
    }
  }

  /** Gives each append its outcome, or sends it alone. */
  function settle(batch: readonly Submission[], sent: readonly Sent[]): Answer[] {
    const open = batch.filter((_, at) => isOpen(sent[at]!))
    const later = new Map<Submission, Promise<Submitted>>()
    for (const chain of chainsOf(open)) {
      const answers = chain.some(each => each.needsTransaction) ? sendInTurn(chain) : sendWaiting(chain)
      for (const [at, each] of chain.entries())
        later.set(
          each,
          answers.then(all => all[at]!),
        )
    }
    return batch.map((each, at) => later.get(each) ?? answerOf(each, sent[at]!))
  }

  function answerOf({ isUnanswered }: Submission, sent: Sent): Answer {
    return sent instanceof Error ? Promise.reject(sent) : { outcome: sent, resent: isUnanswered }
  }

  /** Waits for streams that other transactions hold, on a connection of its own, or looks again while none is free. */
  async function sendWaiting(chain: readonly Submission[]): Promise<Answer[]> {
    for (let attempt = 1; ; attempt++) {
      const waits = canWait && waiting < maxWaiting
      if (!waits) await sleep(delay(shortBackoff, attempt))
      const sending = sendUntilAnswered(chain, waits)
      let sent: Sent[]
      try {
        sent = await (waits ? whileWaiting(sending) : sending)
      } catch {
        // One of several broke the call. One after the other, in their order, only that one fails.
        return sendInTurn(chain)
      }
      if (!sent.every(each => !(each instanceof Error) && each.kind === 'busy')) return settle(chain, sent)
    }
  }

  /** One after the other, in their order: neither the code nor the failure of one is another's. */
  async function sendInTurn(chain: readonly Submission[]): Promise<Answer[]> {
    const answers: Promise<Submitted>[] = []
    await transactions.take()
    try {
      for (const each of chain) {
        const answer = sendAlone(each)
        answers.push(answer)
        await answer.catch(() => {})
      }
    } finally {
      transactions.release()
    }
    return answers
  }

  async function sendAlone(submission: Submission): Promise<Submitted> {
    for (let attempt = 1; ; attempt++) {
      const [sent] = await sendUntilAnswered([submission], true)
      if (!isOpen(sent!)) return answerOf(submission, sent!)
      if (attempt > 1) await sleep(delay(shortBackoff, attempt))
    }
  }

  /** Sends again the appends that can be sent again. Rejects if one of several breaks the call. */
  async function sendUntilAnswered(batch: readonly Submission[], waits: boolean): Promise<Sent[]> {
    let lostAt: number | undefined
    for (let attempt = 1; ; attempt++) {
      try {
        return notePlaces(batch, await sendOnce(batch, waits))
      } catch (error) {
        const state = sqlStateOf((error as Error).cause)
        if (isRillflowError(error, 'connection_lost') || isRillflowError(error, 'outcome_unknown')) {
          lostAt ??= elapsedMs()
          if (elapsedMs() - lostAt > limits.resendMs) return batch.map(each => givenUp(each, error))
          await beforeResend(batch, error, attempt)
          const refused = afterLoss(batch, error)
          if (refused !== undefined) return refused
        } else if (isRillflowError(error, 'store_closed') || isRillflowError(error, 'inline_projection_failed')) {
          // The cause of a projection's failure may be a state that would mean something else in a statement of ours.
          return batch.map(each => givenUp(each, error))
        } else if (state === documentsRefused) {
          return sendWithout(refusedBy(error as Error), batch, waits)
        } else if (isCollision(state) && attempt <= 5) {
          await sleep(delay(shortBackoff, attempt))
        } else if (state === uniqueViolation && !batch.every(({ append }) => append.checkIds)) {
          for (const { append } of batch) append.checkIds = true
          if (batch.some(each => !canBeGrouped(each.append))) return toTransactions(batch)
        } else if (state === uniqueViolation && batch.length === 1 && attempt <= 5) {
          // Another append stored the id between our look and our insert: the next look finds it.
        } else if (batch.length > 1) {
          throw error
        } else if (state === lockNotAvailable) {
          return [batch[0]!.append.alongside === undefined ? busy : toTransactions(batch)[0]!]
        } else {
          return [givenUp(batch[0]!, error as Error)]
        }
      }
    }
  }

  /** Remembers which ones need a transaction of their own. */
  function notePlaces(batch: readonly Submission[], outcomes: Outcome[]): Outcome[] {
    for (const [at, submission] of batch.entries()) {
      const { kind } = outcomes[at]!
      if (kind === 'inline' || (kind === 'busy' && submission.append.alongside !== undefined))
        submission.needsTransaction = true
    }
    return outcomes
  }

  /** Appends whose documents were not as expected are sent in a transaction each, which finds the fault. */
  async function sendWithout(
    refused: ReadonlySet<number>,
    batch: readonly Submission[],
    waits: boolean,
  ): Promise<Sent[]> {
    const others = batch.filter((_, at) => !refused.has(at))
    if (others.length === batch.length) return toTransactions(batch)
    const sent = others.length === 0 ? [] : await sendUntilAnswered(others, waits)
    return batch.map((each, at) => (refused.has(at) ? toTransactions([each])[0]! : sent.shift()!))
  }

  /** Documents cannot be checked for an earlier try in one statement with others: each continues in a transaction. */
  function afterLoss(batch: readonly Submission[], error: Error): Sent[] | undefined {
    if (batch.every(each => isRepeatable(each) && (each.needsTransaction || canBeGrouped(each.append))))
      return undefined
    return batch.map(each => (isRepeatable(each) ? toTransactions([each])[0]! : givenUp(each, error)))
  }

  // [append-6]
  async function beforeResend(batch: readonly Submission[], error: Error, attempt: number): Promise<void> {
    for (const submission of batch) {
      if (!isNeverSent(error.cause)) submission.isUnanswered = true
      submission.append.checkIds = true
    }
    log.telemetry.count('event_resends_total', batch.length)
    log.telemetry.log.warn({ schema: log.schema, attempt, error }, 'The connection was lost. Appends are sent again.')
    log.telemetry.publish(channels.resend, () => ({ schema: log.schema, attempt, error }))
    await sleep(delay(defaultBackoff, attempt))
  }

  async function sendOnce(batch: readonly Submission[], waits: boolean): Promise<Outcome[]> {
    const { append, needsTransaction, inCallersSpan } = batch[0]!
    const appends = batch.map(each => each.append)
    if (needsTransaction) return [await inCallersSpan(() => runOutside(() => sendInTransaction(append)))]
    if (append.alongside !== undefined) return append.alongside.together!.send(appends)
    if (append.advisoryLock) return database.transaction(tx => lockThenSend(tx, append), { timeoutMs: limits.resendMs })
    const isPlain = batch.length === 1 && append.parts.length === 1 && append.key === undefined && !append.checkIds
    if (isPlain && waits) return [await sendOne(database, log, append)]
    return sendBatch(database, log, appends, waits)
  }

  async function sendInTransaction(append: Append): Promise<Outcome> {
    const isOver = new AbortController()
    const work = (tx: Transaction): Promise<Outcome> => appendInline(log, append, tx, isOver.signal)
    try {
      return await database.transaction(work, { timeoutMs: inlineTimeout(log) })
    } finally {
      isOver.abort()
    }
  }

  async function lockThenSend(tx: Transaction, append: Append): Promise<Outcome[]> {
    await lockStreams(tx, log, append)
    return sendBatch(tx, log, [append], true)
  }

  function countGroup(batch: readonly Submission[], started: number): void {
    const isSave = batch[0]!.append.alongside !== undefined
    log.telemetry.count(isSave ? 'session_save_groups_total' : 'event_append_groups_total')
    if (isSave) return
    log.telemetry.observe('event_append_group_appends', batch.length)
    log.telemetry.publish(channels.group, () => ({
      schema: log.schema,
      appends: batch.length,
      events: batch.reduce((sum, { append }) => sum + append.eventCount, 0),
      durationMs: elapsedMs() - started,
    }))
  }
}

/** Whether it can share a call with others of its kind: code of its own has to run in a transaction of its own. */
function canBeGrouped({ alongside, key, checkIds }: Append): boolean {
  return alongside === undefined || (alongside.together !== undefined && key === undefined && !checkIds)
}

/** Two appends to one stream may go together, one after the other. Two with one key, or one document, may not. */
function canShareCall({ append, needsTransaction }: Submission, batch: readonly Submission[]): boolean {
  const [first] = batch
  if (needsTransaction || first!.needsTransaction || append.advisoryLock || first!.append.advisoryLock) return false
  if (append.alongside?.together?.shape !== first!.append.alongside?.together?.shape) return false
  if (append.key !== undefined && batch.some(other => other.append.key === append.key)) return false
  if (append.alongside === undefined) return true
  const documents = new Set(append.alongside.names)
  return !batch.some(other => other.append.alongside!.names.some(name => documents.has(name)))
}

/** A NUL sets keys and documents apart from the names of streams. */
function namesOf({ parts, key, alongside }: Append): string[] {
  const names = parts.map(part => part.stream)
  if (key !== undefined) names.push(`\0key\0${key}`)
  if (alongside !== undefined) for (const name of alongside.names) names.push(`\0document\0${name}`)
  return names
}

/** Appends that share a name stay together, in their order; those that share none are sent separately. */
function chainsOf(submissions: readonly Submission[]): Submission[][] {
  const chains = new Map<string, Submission[]>()
  for (const submission of submissions) {
    const joined = [...new Set(submission.names.flatMap(name => chains.get(name) ?? []))]
    const chain = [...joined, submission]
    for (const { names } of chain) for (const name of names) chains.set(name, chain)
  }
  return [...new Set(chains.values())]
}

/** Documents without events have no ids by which an earlier try would be found. */
function isRepeatable({ append, isUnanswered }: Submission): boolean {
  return append.eventCount > 0 || !isUnanswered
}

function runHere<T>(work: () => T): T {
  return work()
}

const busy: Outcome = { kind: 'busy', failedPart: 0, versions: [], positions: [] }

function isOpen(sent: Sent): boolean {
  return !(sent instanceof Error) && (sent.kind === 'busy' || sent.kind === 'inline')
}

function toTransactions(batch: readonly Submission[]): Outcome[] {
  for (const submission of batch) submission.needsTransaction = true
  return batch.map(() => ({ ...busy, kind: 'inline' }))
}

/** No answer will come. An append that was sent before may have been stored all the same. [append-7] */
function givenUp({ append, isUnanswered }: Submission, error: Error): Error {
  if (!isUnanswered) return error
  return new OutcomeUnknown({ eventIds: idsOf(append), reason: `no answer came (${error.message})` }, error)
}

/** The detail of the error names the appends, from 1. */
function refusedBy(error: Error): Set<number> {
  const { detail } = error.cause as { detail?: string }
  return new Set(
    String(detail)
      .split(',')
      .map(number => Number(number) - 1),
  )
}

/** The connection was refused, so the statement cannot have been seen. */
function isNeverSent(cause: unknown): boolean {
  const code = (cause as { code?: unknown } | null)?.code
  const refused = typeof code === 'string' && /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|57P03|53300)$/.test(code)
  return refused || (cause instanceof Error && /timeout exceeded when trying to connect/.test(cause.message))
}

/** At most so many at a time; the limit is asked again each time. A turn that is passed on is never free in between. */
function openTurns(limit: () => number): { take(): Promise<void>; release(): void } {
  let taken = 0
  const waiting: (() => void)[] = []
  return {
    async take() {
      if (taken < limit()) taken++
      else await new Promise<void>(resolve => waiting.push(resolve))
    },
    release() {
      const next = waiting.shift()
      if (next === undefined) taken--
      else next()
    },
  }
}
