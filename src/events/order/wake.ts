/**
 * Hints of changes: at once within the process, and to other processes by one notification for all changes of 20 ms. A
 * hint that is lost costs a poll interval, never an event.
 *
 *     appended, send(kind) ──┬──► listeners of this store, at once
 *                            └──► database.notify, one for all stores of 20 ms ──► listeners of other stores on this schema
 *
 * Each kind of hint has a name that the folder which sends it has chosen; this file does not know the meaning of any of
 * them.
 *
 * The notification is sent alongside the append, on a connection of its own. Inside the append's transaction it takes a
 * server-wide lock until the commit: measured, that halves the throughput of single appends.
 */
import { elapsedMs, randomId } from '../../core/host.ts'
import type { Executor, Listener } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { type AnyTransaction, isOwnTransaction, runOutside } from '../../database/transaction.ts'
import type { Log } from '../log.ts'
import type { CommittedEvent } from './recent.ts'

export interface Wake {
  /** Events were committed by this process; `committed` makes them, where all are known. */
  appended(committed?: Committed): void
  /** The same in a transaction: sent after its commit, or with it if it is the user's own. */
  appendedIn(tx: AnyTransaction, executor: Executor): Promise<void>
  /** Calls `listener` after every append, until the function returned is called. Begins to listen on first use. */
  onHint(listener: Listening): () => void
  /** Whether no other process has sent a hint for a second. Others send theirs late, so theirs are not waited for. */
  isAlone(): boolean
  /** A consumer has changed: its lease is free, it was paused or reset, or a retry was requested. */
  changed(): void
  /** Calls `listener` after every such change, in whatever process. Begins to listen on first use. */
  onChange(listener: () => void): () => void
  /** Sends a hint of a kind of the caller's own. */
  send(kind: string): void
  /** Calls `listener` with every hint of this kind, from whatever process. Begins to listen on first use. */
  on(kind: string, listener: () => void): () => void
  close(): Promise<void>
}

/** Made only where a listener wants them. */
export type Committed = () => readonly CommittedEvent[]

type Listening = (committed?: Committed) => void

/** The kinds of this file; those of other folders have names of their own. */
const [events, consumers] = ['events', 'consumers'] as const

const aloneAfterMs = 1_000

export function openWake(log: Log): Wake {
  const { database } = log
  const listeners = new Map<string, Set<Listening>>()
  let listener: Listener | undefined
  let othersSentAt = Number.NEGATIVE_INFINITY
  let isDeaf = false
  const self = randomId()
  let closed = false

  const payloadOf = (kind: string): string => (kind === events ? log.schema : `${log.schema}\n${kind}`)

  const hint = (kind: string, committed?: Committed): void => {
    for (const call of [...(listeners.get(kind) ?? [])]) call(committed)
  }
  const receive = (payload: string): void => {
    const [what, sender] = payload.split('\n@')
    // The sender has called its own listeners already.
    if (sender === self) return
    // Other schemas of the database have the same channel.
    if (what === '' || what === log.schema || what?.startsWith(`${log.schema}\n`)) othersSentAt = elapsedMs()
    // An empty payload stands for all hints that were lost while the connection was down.
    for (const kind of listeners.keys()) if (what === '' || what === payloadOf(kind)) hint(kind)
  }
  const receiveLocal = (channel: string, payload: string): void => {
    if (channel === log.channel) receive(payload)
  }
  const send = (kind: string, committed?: Committed): void => {
    hint(kind, committed)
    if (!closed) database.notify(log.channel, `${payloadOf(kind)}\n@${self}`)
  }

  const warnIfDeaf = (receives: boolean | undefined): void => {
    if (receives !== false || closed) return
    isDeaf = true
    const { schema, channel } = log
    log.telemetry.log.warn(
      { schema, channel },
      'Wake-ups of other processes do not arrive: their appends are polled for.',
    )
  }

  const on = (kind: string, call: Listening): (() => void) => {
    const all = listeners.get(kind) ?? new Set()
    listeners.set(kind, all.add(call))
    // Only now: a store that nothing listens to is held by nothing.
    if (database.engine === 'pglite' && !closed) database.neighbours.add(receiveLocal)
    if (listener === undefined && !closed && database.engine !== 'pglite') {
      listener = runOutside(() => database.listen(log.channel, receive))
      void listener.receives.then(warnIfDeaf)
    }
    return () => all.delete(call)
  }

  return {
    appended: committed => send(events, committed),
    async appendedIn(tx, executor) {
      if (isOwnTransaction(tx)) tx.afterCommit(() => send(events))
      // As text, because not every library of users can read the type void.
      else
        await executor.run(sql`/* events.notify_in */
          select pg_notify(${log.channel}::text, ${payloadOf(events)}::text)::text`)
    },
    onHint: call => on(events, call),
    isAlone: () => !isDeaf && elapsedMs() - othersSentAt > aloneAfterMs,
    changed: () => send(consumers),
    onChange: call => on(consumers, call),
    send: kind => send(kind),
    on,
    async close() {
      closed = true
      database.neighbours.delete(receiveLocal)
      for (const all of listeners.values()) all.clear()
      await listener?.close()
    },
  }
}
