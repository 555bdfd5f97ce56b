/**
 * Joining concurrent appends of this process into one call to the database, each with its own outcome.
 *
 *     submit ─► queue ─► pump ─┬─ one waiting ──► append_one            goes at once: a lone append never waits
 *                              └─ several ─────► append_batch           one call under way; a second when hundreds wait
 *                                   │ busy: a stream is held elsewhere ─► alone, on another connection
 *                                   │ broken by one of them ────────────► halves, until that one fails alone
 *                                   │ wanted by an inline projection ───► alone, in a transaction with its code
 *                                   └ connection lost ──────────────────► sent again with the same ids
 *
 * Invariants:
 * - A stream, or an idempotency key, is in at most one call at a time (`held`); appends to it leave the queue in the
 *   order they came, and none overtakes one that has to wait elsewhere.
 * - An append sent twice is sent with `checkIds`: stored the first time, it comes back as that outcome.
 * - The queue is bounded in number and bytes; beyond that a call is refused with `Overloaded`.
 *
 * Measured at 8 callers: waiting one turn of the event loop after a group doubles the next group, because the callers
 * just answered come back within that turn; without it groups of 1 and 7 alternate.
 */
import { Aborted, isRillflowError, Overloaded, StoreClosed } from '../../core/errors.ts'
import { deferred, onAbort, sleep } from '../../core/lifecycle.ts'
import { type Backoff, defaultBackoff, delay } from '../../core/retry.ts'
import type { Transaction } from '../../database/database.ts'
import { OutcomeUnknown } from '../../database/errors.ts'
import { isCollision, lockNotAvailable, sqlStateOf, uniqueViolation } from '../../database/sqlstate.ts'
import { runOutside } from '../../database/transaction.ts'
import { channels } from '../../telemetry/telemetry.ts'
import { appendInline, inlineTimeout } from '../inline/inline.ts'
import type { Log } from '../log.ts'
import { apart, chainsOf, idsOf, type Pending } from './pending.ts'
import { type Append, lockStreams, type Outcome, sendBatch, sendOne } from './send.ts'

export interface GroupCommit {
  submit(append: Append, signal?: AbortSignal): Promise<Submitted>
  /** Refuses new appends and waits for those under way. */
  drain(): Promise<void>
}

export interface Submitted {
  readonly outcome: Outcome
  /** Whether it was sent more than once: an earlier outcome found is then this call's own. */
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
const secondGroupFrom = 250
/** A lone call that takes longer waits for a stream held elsewhere; the others must not wait with it. */
const patienceMs = 10
const shortBackoff: Backoff = { baseMs: 2, factor: 2, maxMs: 100, jitter: 0.5 }

type ErrorWithCause = Error & { readonly cause?: unknown }

export function groupCommit(log: Log, limits: GroupLimits): GroupCommit {
  const { database } = log
  // Half of the connections may wait for streams held elsewhere; the rest are for everybody else.
  const maxAlone = Math.floor(database.maxConnections / 2)
  const waits = database.engine === 'pglite' || maxAlone > 0
  let queue: Pending[] = []
  const held = new Map<string, number>()
  let queuedBytes = 0
  let groups = 0
  let alone = 0
  let inline = 0
  const inlineWaiting: (() => void)[] = []
  let open = 0
  let scheduled = false
  let closing: ReturnType<typeof deferred<void>> | undefined

  return {
    submit(append, signal) {
      if (closing !== undefined) return Promise.reject(new StoreClosed({}))
      // An asynchronous check of its events may have taken until after the abort.
      if (signal?.aborted) return Promise.reject(new Aborted({}, signal.reason))
      const isFull = queue.length > 0 && queuedBytes + append.bytes > limits.maxQueuedBytes
      if (isFull) return Promise.reject(new Overloaded({ queue: 'append (in bytes)', limit: limits.maxQueuedBytes }))
      if (queue.length >= limits.maxQueued)
        return Promise.reject(new Overloaded({ queue: 'append', limit: limits.maxQueued }))
      return new Promise<Submitted>((resolve, reject) => {
        const names = append.parts.map(part => part.stream)
        if (append.key !== undefined) names.push(`\0${append.key}`)
        const isInline = append.beside !== undefined || log.inline.mayWant(append)
        const unanswered = append.isUnanswered === true
        const pending: Pending = { append, names, resolve, reject, state: 'queued', unanswered, isInline }
        if (signal !== undefined) watchSignal(pending, signal)
        queue.push(pending)
        queuedBytes += append.bytes
        open++
        if (!scheduled) pump()
      })
    },
    async drain() {
      closing ??= deferred<void>()
      if (open === 0) closing.resolve()
      await closing.promise
    },
  }

  function watchSignal(pending: Pending, signal: AbortSignal): void {
    const release = onAbort(signal, () => {
      if (pending.state === 'queued') {
        queue = queue.filter(each => each !== pending)
        queuedBytes -= pending.append.bytes
        finish(pending, () => pending.reject(new Aborted({}, signal.reason)))
      } else if (pending.state === 'sent') {
        const reason = 'the call was aborted after it had been sent'
        pending.reject(new OutcomeUnknown({ eventIds: idsOf(pending.append), reason }, signal.reason))
      }
    })
    const { resolve, reject } = pending
    Object.assign(pending, {
      resolve: (submitted: Submitted) => {
        release()
        resolve(submitted)
      },
      reject: (error: unknown) => {
        release()
        reject(error)
      },
    })
  }

  function finish(pending: Pending, settle: () => void): void {
    if (pending.state === 'done') return
    pending.state = 'done'
    open--
    settle()
    if (open === 0) closing?.resolve()
  }

  /** Sends what waits, as far as calls are free. */
  function pump(): void {
    scheduled = false
    while (queue.length > 0 && groups < (queue.length >= secondGroupFrom && waits ? 2 : 1)) {
      const group = takeGroup()
      if (group.length === 0) return
      groups++
      // The caller may be inside a transaction that ends before the next group is sent.
      runOutside(() => void dispatch(group))
    }
  }

  function schedulePump(): void {
    if (scheduled) return
    scheduled = true
    setImmediate(pump)
  }

  /** The oldest appends that fit into one call and whose streams are free, in their order. */
  function takeGroup(): Pending[] {
    const group: Pending[] = []
    const rest: Pending[] = []
    const passed = new Set<string>()
    // Two appends to one stream may go together, one after the other. Two with one key may not: the second must know what
    // became of the first.
    const taken = new Set<string>()
    let events = 0
    let bytes = 0
    for (let at = 0; at < queue.length; at++) {
      const pending = queue[at]!
      const { append } = pending
      const full =
        group.length > 0 &&
        (events + append.eventCount > database.batch.appendEvents || bytes + append.bytes > maxGroupBytes)
      if (full || (append.advisoryLock && group.length > 0)) {
        for (; at < queue.length; at++) rest.push(queue[at]!)
        break
      }
      const keyIsTaken = append.key !== undefined && taken.has(pending.names.at(-1)!)
      if (keyIsTaken || pending.names.some(name => held.has(name) || passed.has(name))) {
        for (const name of pending.names) passed.add(name)
        rest.push(pending)
        continue
      }
      group.push(pending)
      if (append.key !== undefined) taken.add(pending.names.at(-1)!)
      events += append.eventCount
      bytes += append.bytes
      if (append.advisoryLock) {
        for (at++; at < queue.length; at++) rest.push(queue[at]!)
        break
      }
    }
    queue = rest
    queuedBytes -= bytes
    for (const pending of group) {
      pending.state = 'sent'
      for (const name of pending.names) held.set(name, (held.get(name) ?? 0) + 1)
    }
    return group
  }

  async function dispatch(group: Pending[]): Promise<void> {
    let counted = true
    const giveBack = (): void => {
      if (counted) groups--
      counted = false
    }
    const lone = group.length === 1
    const impatient = lone && waits && alone < maxAlone ? setTimeout(leaveWaiting, patienceMs) : undefined
    function leaveWaiting(): void {
      alone++
      giveBack()
      pump()
    }
    const wasAlone = (): boolean => impatient !== undefined && !counted
    const started = performance.now()
    await sendGroup(group, lone && waits && (alone < maxAlone || database.engine === 'pglite'))
    clearTimeout(impatient)
    if (wasAlone()) alone--
    giveBack()
    log.telemetry.count('event_append_groups_total')
    log.telemetry.observe('event_append_group_appends', group.length)
    log.telemetry.publish(channels.group, () => ({
      schema: log.schema,
      appends: group.length,
      events: group.reduce((sum, { append }) => sum + append.eventCount, 0),
      durationMs: performance.now() - started,
    }))
    // A lone caller that comes straight back must not wait a turn for company it has not got; those of a group must,
    // or the first to come back would go alone and the others wait for it.
    if (!lone || queue.length > 0) schedulePump()
  }

  /** Sends a group until every member has its outcome or waits elsewhere. Never rejects. */
  async function sendGroup(group: readonly Pending[], wait: boolean, tries = 1): Promise<void> {
    sendHeld(await sendNow(group, wait, tries), tries)
  }

  /** The same, giving back those whose streams are held elsewhere. */
  async function sendNow(group: readonly Pending[], wait: boolean, tries: number): Promise<readonly Pending[]> {
    let lostAt: number | undefined
    if (group.length > 1 && group.some(({ isInline }) => isInline)) {
      const inlines = group.filter(({ isInline }) => isInline)
      const [behind, free] = apart(inlines, group)
      return [...behind, ...(free.length === 0 ? [] : await sendNow(free, wait, tries))]
    }
    for (let attempt = tries; ; attempt++) {
      try {
        const outcomes = await send(group, wait)
        return group.filter((pending, at) => {
          const { kind } = outcomes[at]!
          if (kind === 'inline') pending.isInline = true
          else if (kind !== 'busy') settle(pending, outcomes[at]!)
          return kind === 'busy' || kind === 'inline'
        })
      } catch (error) {
        const state = sqlStateOf((error as Error).cause)
        if (isRillflowError(error, 'connection_lost') || isRillflowError(error, 'outcome_unknown')) {
          lostAt ??= performance.now()
          if (performance.now() - lostAt > limits.resendMs) {
            giveUp(group, error)
            return []
          }
          await beforeResend(group, error, attempt)
        } else if (isRillflowError(error, 'inline_projection_failed')) {
          // Its cause may be a state that would mean something else if it came from a statement of ours.
          giveUp(group, error)
          return []
        } else if (isCollision(state) && attempt < tries + 5) {
          await sleep(delay(shortBackoff, attempt))
        } else if (state === uniqueViolation && !group.every(({ append }) => append.checkIds)) {
          for (const { append } of group) append.checkIds = true
        } else if (state === uniqueViolation && group.length === 1 && attempt < tries + 5) {
          // Somebody stored the id between our look and our insert: the next look finds it.
        } else if (isRillflowError(error, 'store_closed')) {
          giveUp(group, error)
          return []
        } else if (group.length > 1) {
          const middle = group.length >> 1
          const waiting = await sendNow(group.slice(0, middle), wait, tries)
          const [behind, free] = apart(waiting, group.slice(middle))
          return [...waiting, ...behind, ...(free.length === 0 ? [] : await sendNow(free, wait, tries))]
        } else if (state === lockNotAvailable) {
          return group
        } else {
          // Sent before without an answer, the first one may still be stored.
          giveUp(group, error as Error)
          return []
        }
      }
    }
  }

  /**
   * Streams held elsewhere are waited for on connections of their own, or looked at again later if none is free. Nobody
   * awaits it here: the group they came with is done.
   */
  function sendHeld(group: readonly Pending[], attempt: number): void {
    for (const chain of chainsOf(group)) {
      if (chain.some(pending => pending.isInline)) void sendInTurn(chain)
      else if (waits && alone < maxAlone) {
        alone++
        void sendGroup(chain, true).finally(() => {
          alone--
        })
      } else {
        void sleep(delay(shortBackoff, attempt)).then(() => sendGroup(chain, false, attempt + 1))
      }
    }
  }

  /** One after the other, in their order: neither code nor failure of one is another's. */
  async function sendInTurn(chain: readonly Pending[]): Promise<void> {
    // A slot that is given on is never free in between.
    if (inline < Math.max(1, maxAlone - alone)) inline++
    else await new Promise<void>(resolve => inlineWaiting.push(resolve))
    for (const pending of chain) {
      for (let tries = 1; (await sendNow([pending], true, tries)).length > 0; tries++)
        if (!pending.isInline || tries > 1) await sleep(delay(shortBackoff, tries))
    }
    const next = inlineWaiting.shift()
    if (next === undefined) inline--
    else next()
  }

  async function beforeResend(group: readonly Pending[], error: ErrorWithCause, attempt: number): Promise<void> {
    for (const pending of group) {
      if (!isNeverSent(error.cause)) pending.unanswered = true
      pending.append.checkIds = true
    }
    log.telemetry.count('event_resends_total', group.length)
    log.telemetry.log.warn({ schema: log.schema, attempt, error }, 'the connection broke: appends are sent again')
    log.telemetry.publish(channels.resend, () => ({ schema: log.schema, attempt, error }))
    await sleep(delay(defaultBackoff, attempt))
  }

  async function send(group: readonly Pending[], wait: boolean): Promise<Outcome[]> {
    const { append, isInline } = group[0]!
    if (isInline) return [await sendInline(append)]
    if (append.advisoryLock) return database.transaction(tx => lockThenSend(tx, append), { timeoutMs: limits.resendMs })
    const simple = group.length === 1 && append.parts.length === 1 && append.key === undefined && !append.checkIds
    if (simple && wait) return [await sendOne(database, log, append)]
    return sendBatch(
      database,
      log,
      group.map(each => each.append),
      wait,
    )
  }

  async function sendInline(append: Append): Promise<Outcome> {
    const over = new AbortController()
    const send = (tx: Transaction): Promise<Outcome> => appendInline(log, append, tx, over.signal)
    try {
      return await database.transaction(send, { timeoutMs: inlineTimeout(log) })
    } finally {
      over.abort()
    }
  }

  async function lockThenSend(tx: Parameters<typeof sendBatch>[0], append: Append): Promise<Outcome[]> {
    await lockStreams(tx, log, append)
    return sendBatch(tx, log, [append], true)
  }

  function settle(pending: Pending, outcome: Outcome): void {
    release(pending)
    finish(pending, () => pending.resolve({ outcome, resent: pending.unanswered }))
  }

  function fail(pending: Pending, error: unknown): void {
    release(pending)
    finish(pending, () => pending.reject(error))
  }

  /** No answer will come any more. */
  function giveUp(group: readonly Pending[], error: Error): void {
    for (const pending of group) {
      const reason = `no answer came (${error.message})`
      const unknown = new OutcomeUnknown({ eventIds: idsOf(pending.append), reason }, error)
      fail(pending, pending.unanswered ? unknown : error)
    }
  }

  function release(pending: Pending): void {
    for (const name of pending.names) {
      const count = held.get(name)! - 1
      if (count === 0) held.delete(name)
      else held.set(name, count)
    }
    if (groups === 0) schedulePump()
  }
}

/** The connection was refused, so the statement cannot have been seen. */
export function isNeverSent(cause: unknown): boolean {
  const code = (cause as { code?: unknown } | null)?.code
  const refused = typeof code === 'string' && /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|57P03|53300)$/.test(code)
  return refused || (cause instanceof Error && /timeout exceeded when trying to connect/.test(cause.message))
}
