/**
 * Telling others that something happened: at once within the process, and by one notification for all that was appended
 * meanwhile to other processes. Hints only: a lost one costs a poll interval, never an event.
 *
 * The notification goes beside the append, on a connection of its own. Inside the append's transaction it takes a
 * server-wide lock until the commit: measured, that halves the throughput of single appends.
 */
import { randomUUID } from 'node:crypto'
import type { Executor, Listener } from '../../database/database.ts'
import { sql } from '../../database/sql.ts'
import { type AnyTransaction, isOwnTransaction, runOutside } from '../../database/transaction.ts'
import type { Log } from '../log.ts'

export interface Wake {
  /** Something was committed by this process. */
  appended(): void
  /** The same in a transaction: told after its commit, or with it if it is the user's own. */
  appendedIn(tx: AnyTransaction, executor: Executor): Promise<void>
  /** Calls back on every hint until the function returned is called. Starts listening on first use. */
  onHint(hear: () => void): () => void
  /** Something about consumers has changed: a lease is free, one was paused or reset, a retry was asked for. */
  changed(): void
  /** Calls back on every such change, whoever made it. Starts listening on first use. */
  onChange(hear: () => void): () => void
  /** There is work for handlers. */
  worked(): void
  /** Calls back whenever there is, whoever told. Starts listening on first use. */
  onWork(hear: () => void): () => void
  /** Some of it has begun where it was found: there is nothing for others to do. */
  begun(): void
  /** Calls back whenever some has, whoever told. Starts listening on first use. */
  onBegin(hear: () => void): () => void
  /** Some of it has ended. */
  ended(): void
  /** Calls back whenever some has, whoever told. Starts listening on first use. */
  onEnd(hear: () => void): () => void
  close(): Promise<void>
}

type Kind = (typeof kinds)[number]

const kinds = ['events', 'consumers', 'work', 'begins', 'ends'] as const

/** Shorter would cost a busy writer more statements than it gains readers in time. */
const notifyEveryMs = 20

export function openWake(log: Log): Wake {
  const { database } = log
  const hearers: Record<Kind, Set<() => void>> = {
    events: new Set(),
    consumers: new Set(),
    work: new Set(),
    begins: new Set(),
    ends: new Set(),
  }
  const due = new Set<Kind>()
  let listener: Listener | undefined
  const self = randomUUID()
  let closed = false
  let sending: Promise<void> | undefined

  const payloads: Record<Kind, string> = {
    events: log.schema,
    consumers: `${log.schema}\nconsumers`,
    work: `${log.schema}\nwork`,
    begins: `${log.schema}\nbegins`,
    ends: `${log.schema}\nends`,
  }

  const hint = (kind: Kind): void => {
    for (const hear of [...hearers[kind]]) hear()
  }
  const hearPayload = (payload: string): void => {
    const [what, sender] = payload.split('\n@')
    // Who sent it has told its own at once.
    if (sender === self) return
    // An empty one stands for all that was missed while the listener was away.
    for (const kind of kinds) if (what === '' || what === payloads[kind]) hint(kind)
  }
  const hearNeighbour = (channel: string, payload: string): void => {
    if (channel === log.channel) hearPayload(payload)
  }
  if (database.engine === 'pglite') database.neighbours.add(hearNeighbour)

  const tell = (kind: Kind): void => {
    if (hearers[kind].size > 0) hint(kind)
    if (closed) return
    if (database.engine === 'pglite') {
      // Nobody else has this database, but there may be other stores on it.
      for (const hear of database.neighbours) if (hear !== hearNeighbour) hear(log.channel, payloads[kind])
      return
    }
    due.add(kind)
    sending ??= runOutside(sendUntilQuiet)
  }

  const listen = (kind: Kind, hear: () => void): (() => void) => {
    hearers[kind].add(hear)
    if (listener === undefined && !closed && database.engine !== 'pglite')
      listener = runOutside(() => database.listen(log.channel, hearPayload))
    return () => hearers[kind].delete(hear)
  }

  return {
    appended: () => tell('events'),
    async appendedIn(tx, executor) {
      if (isOwnTransaction(tx)) tx.afterCommit(() => tell('events'))
      else
        await executor.run(sql`/* events.notify_in */
          select pg_notify(${log.channel}::text, ${payloads.events}::text)`)
    },
    onHint: hear => listen('events', hear),
    changed: () => tell('consumers'),
    onChange: hear => listen('consumers', hear),
    worked: () => tell('work'),
    onWork: hear => listen('work', hear),
    begun: () => tell('begins'),
    onBegin: hear => listen('begins', hear),
    ended: () => tell('ends'),
    onEnd: hear => listen('ends', hear),
    async close() {
      closed = true
      database.neighbours.delete(hearNeighbour)
      for (const all of Object.values(hearers)) all.clear()
      await Promise.all([listener?.close(), sending])
    },
  }

  async function sendUntilQuiet(): Promise<void> {
    do {
      const kinds = [...due]
      due.clear()
      // A hint that does not arrive is made up for by the readers' poll.
      await database.run(notifications(kinds.map(kind => `${payloads[kind]}\n@${self}`))).catch(() => {})
      if (!closed) await new Promise<void>(resolve => setTimeout(resolve, notifyEveryMs).unref())
    } while (due.size > 0 && !closed)
    sending = undefined
  }

  /** Not worth a flush to the disk, which it would have by itself: 3 ms for each, and the writers' next one is held up. */
  function notifications(told: readonly string[]): ReturnType<typeof sql> {
    return sql`/* events.notify */
      select pg_notify(${log.channel}::text, payload), set_config('synchronous_commit', 'off', true)
      from unnest(${told}::text[]) as told(payload)`
  }
}
