/**
 * One partition in the hands of this process: its window, and everything that is written about it under its fence.
 *
 * What consumers say comes together and goes in one statement at a time, so a burst of acknowledgements costs a few writes.
 * An event counts as acknowledged only when that is stored. Trouble with the connection is waited out; a lost lease ends it
 * all, and whoever has it now delivers again what was not stored.
 */
import { record } from '../consumers/dead-letters/row.ts'
import { LeaseLost } from '../consumers/errors.ts'
import type { Lease } from '../consumers/row.ts'
import { describeError } from '../consumers/run/failure.ts'
import { decide } from '../consumers/run/policy.ts'
import { isRillflowError } from '../core/errors.ts'
import { type Deferred, deferred, sleep } from '../core/lifecycle.ts'
import { defaultBackoff, delay } from '../core/retry.ts'
import type { Executor } from '../database/database.ts'
import { type AnyTransaction, isOwnTransaction, runOutside } from '../database/transaction.ts'
import type { Log } from '../events/log.ts'
import type { Settler } from './delivery.ts'
import type { Plan } from './plan.ts'
import { endedInside, type RowState, saveChange, saveInside } from './save.ts'
import { settleOnce } from './settler.ts'
import type { Entry, Window } from './window.ts'

export interface PartitionParts {
  readonly log: Log
  readonly plan: Plan
  readonly lease: Lease
  readonly window: Window
  executorOf(tx: AnyTransaction): Executor
  /** Something may be deliverable now, or there is room. */
  onChange(): void
  /** What the row said when it was written. */
  onState(state: RowState): void
  /** The policy, or an error that will not mend itself, ends the subscription. */
  onStop(error: unknown): void
}

export interface Partition {
  readonly lease: Lease
  readonly window: Window
  /** Aborts when nothing may be done for it any more. */
  readonly ended: AbortSignal
  settler(entry: Entry): Settler
  /** Does with an event that cannot be delivered what the policy says. */
  reject(entry: Entry): Promise<void>
  /** The window has moved without anybody's word: to be stored some time soon. */
  moved(): void
  /** The server may have restarted: only what was stored, and events that are surely there, have been read. */
  goBack(surely: number): void
  /** Stores what was said up to now, then ends. */
  close(): Promise<void>
  /** Ends at once: the lease is not ours any more. */
  lose(reason?: unknown): void
}

/** One word of a consumer, on its way to the row. */
interface Word {
  readonly entry: Entry
  readonly outcome: 'done' | 'skip' | 'letter' | 'back' | 'stop'
  readonly delayMs: number
  readonly error: unknown
  readonly stored: Deferred<void>
}

/** A checkpoint that moves past events nobody wanted is stored this often at most. */
const movedEveryMs = 250

export function openPartition(parts: PartitionParts): Partition {
  const { log, plan, lease, window } = parts
  const { consumer, fence } = lease
  const ended = new AbortController()
  const inside = new Set<Entry>()
  let words: Word[] = []
  let saved = lease.checkpoint
  let savedAt = 0
  let saving: Promise<void> | undefined
  let movedTimer: { cancel(): void } | undefined
  let watching = false

  const isOpen = (): boolean => !ended.signal.aborted

  return {
    lease,
    window,
    ended: ended.signal,
    settler,
    reject: entry => settle(entry, entry.fault, { isFault: true }),
    moved,
    goBack: surely => window.goBack(surely > saved ? surely : saved),
    async close() {
      movedTimer?.cancel()
      if (isOpen() && window.checkpoint > saved) saveSoon()
      await saving
      lose()
    },
    lose,
  }

  function lose(reason: unknown = new LeaseLost({ consumer, fence })): void {
    if (!isOpen()) return
    ended.abort(reason)
    movedTimer?.cancel()
    for (const word of words.splice(0)) word.stored.reject(reason)
    parts.onChange()
  }

  function settler(entry: Entry): Settler {
    return settleOnce({
      ...{ log, lease, position: entry.event.position, ended: ended.signal },
      ack: tx => (tx === undefined ? say(entry, 'done') : ackInside(entry, tx)),
      nack: ({ delayMs, reason = 'it was given back' }) => settle(entry, reason, { delayMs }),
    })
  }

  async function settle(
    entry: Entry,
    error: unknown,
    { delayMs, isFault = false }: { delayMs?: number | undefined; isFault?: boolean } = {},
  ): Promise<void> {
    const { event, deliveries } = entry
    // Reading it again would not make it readable.
    const attempt = isFault ? Number.MAX_SAFE_INTEGER : deliveries
    const decided = await decide(plan.policy, { consumer, event, error, attempt }).catch(failure => {
      log.telemetry.log.error({ consumer, error: failure }, 'the failure policy itself failed')
      return { decision: 'dead-letter' as const }
    })
    if (decided.decision === 'retry' && !isFault) return say(entry, 'back', error, delayMs ?? decided.delayMs)
    if (decided.decision === 'skip') return say(entry, 'skip', error)
    if (decided.decision === 'stop') return say(entry, 'stop', error)
    return say(entry, 'letter', error)
  }

  function say(entry: Entry, outcome: Word['outcome'], error?: unknown, delayMs = 0): Promise<void> {
    if (!isOpen()) return Promise.reject(new LeaseLost({ consumer, fence }))
    const stored = deferred<void>()
    // Nobody need wait for it.
    stored.promise.catch(() => {})
    words.push({ entry, outcome, error, delayMs, stored })
    saveSoon()
    return stored.promise
  }

  function moved(): void {
    if (!isOpen() || window.checkpoint <= saved || saving !== undefined || movedTimer !== undefined) return
    const wait = savedAt + movedEveryMs - performance.now()
    if (wait <= 0) {
      saveSoon()
      return
    }
    const timer = log.clock.setTimeout(() => {
      movedTimer = undefined
      if (isOpen() && window.checkpoint > saved) saveSoon()
    }, wait)
    timer.unref?.()
    movedTimer = timer
  }

  /** All that is said in this turn of the loop goes together. */
  function saveSoon(): void {
    saving ??= runOutside(async () => {
      await new Promise(setImmediate)
      try {
        do await saveWords()
        while (words.length > 0 && isOpen())
      } finally {
        saving = undefined
      }
      moved()
    })
  }

  async function saveWords(): Promise<void> {
    const said = words
    words = []
    for (const { entry, outcome } of said) if (outcome !== 'back' && outcome !== 'stop') window.finish(entry)
    try {
      const { checkpoint, state } = await saveUntilStored(said)
      if (checkpoint > saved) saved = checkpoint
      savedAt = performance.now()
      window.forget(checkpoint)
      const now = log.clock.now().getTime()
      for (const { entry, outcome, delayMs, error } of said) {
        if (outcome === 'back' || outcome === 'stop') window.giveBack(entry, now + delayMs)
        if (outcome === 'skip')
          log.telemetry.log.warn({ consumer, position: entry.event.position, error }, 'an event was skipped')
        if (outcome === 'stop') parts.onStop(error)
      }
      for (const { stored } of said) stored.resolve()
      parts.onState(state)
      parts.onChange()
    } catch (error) {
      const reason = isOpen() ? error : new LeaseLost({ consumer, fence })
      for (const { stored } of said) stored.reject(reason)
      if (!isRillflowError(reason, 'lease_lost')) parts.onStop(reason)
      lose(reason)
    }
  }

  async function saveUntilStored(said: readonly Word[]): Promise<{ checkpoint: number; state: RowState }> {
    const letters = said.filter(word => word.outcome === 'letter')
    const { checkpoint } = window
    const change = {
      checkpoint,
      done: said
        .filter(w => w.entry.state === 'done' && w.entry.event.position > checkpoint)
        .map(({ entry }) => rowOf(entry)),
      givenBack: said
        .filter(w => w.outcome === 'back' || w.outcome === 'stop')
        .map(({ entry, delayMs, error }) => ({ ...rowOf(entry), delayMs, error: describeError(error) })),
    }
    for (let attempt = 1; isOpen(); attempt++) {
      try {
        const state =
          letters.length === 0
            ? await saveChange(log, log.database, lease, change)
            : await log.database.transaction(async tx => {
                const state = await saveChange(log, tx, lease, change)
                if (state === undefined) return undefined
                for (const { entry, error } of letters)
                  await record(log, lease, { event: entry.event, error, attempts: entry.deliveries }, tx)
                return state
              })
        if (state !== undefined) return { checkpoint, state }
        await sleep(Math.min(2 * attempt, 50), { clock: log.clock, signal: ended.signal })
      } catch (error) {
        // Storing the same again is harmless, so what got no answer is simply sent again.
        const isWorthIt = isRillflowError(error) && (error.retryable || error.code === 'outcome_unknown')
        if (!isOpen() || !isWorthIt) throw error
        log.telemetry.log.warn({ consumer, error }, 'acknowledgements could not be stored yet')
        await sleep(delay(defaultBackoff, attempt), { clock: log.clock, signal: ended.signal })
      }
    }
    throw new LeaseLost({ consumer, fence })
  }

  async function ackInside(entry: Entry, tx: AnyTransaction): Promise<void> {
    await saveInside(log, parts.executorOf(tx), lease, rowOf(entry))
    inside.add(entry)
    if (isOwnTransaction(tx)) tx.afterCommit(() => committed(entry))
    runOutside(watchInside)
  }

  function committed(entry: Entry): void {
    if (!inside.delete(entry) || !isOpen()) return
    window.finish(entry)
    saveSoon()
  }

  /** Somebody else's transaction tells nobody how it ended, and one of ours says nothing when it is rolled back. */
  function watchInside(wait = 20): void {
    if (watching || inside.size === 0 || !isOpen()) return
    watching = true
    const timer = log.clock.setTimeout(() => {
      void lookInside().finally(() => {
        watching = false
        watchInside(Math.min(wait * 2, 500))
      })
    }, wait)
    timer.unref?.()
  }

  async function lookInside(): Promise<void> {
    const entries = [...inside]
    if (entries.length === 0 || !isOpen()) return
    try {
      const acked = await endedInside(
        log,
        lease,
        entries.map(entry => entry.event.position),
      )
      if (acked === undefined) return
      for (const entry of entries) {
        if (acked.has(entry.event.position)) committed(entry)
        else if (inside.delete(entry)) void settle(entry, rolledBack).catch(() => {})
      }
    } catch (error) {
      if (isRillflowError(error, 'lease_lost')) lose(error)
    }
  }
}

const rolledBack = 'the transaction it was acknowledged in was rolled back'

function rowOf({ event, deliveries }: Entry): { position: number; deliveries: number } {
  return { position: event.position, deliveries }
}
