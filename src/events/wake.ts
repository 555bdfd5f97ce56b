/**
 * Telling readers that something was appended: at once within the process, and by one notification for all that was
 * appended meanwhile to other processes. Hints only: a lost one costs a poll interval, never an event.
 *
 * The notification goes beside the append, on a connection of its own. Inside the append's transaction it takes a
 * server-wide lock until the commit: measured, that halves the throughput of single appends.
 */
import type { Executor, Listener } from '../database/database.ts'
import { sql } from '../database/sql.ts'
import { type AnyTransaction, isOwnTransaction, runOutside } from '../database/transaction.ts'
import type { Log } from './log.ts'

export interface Wake {
  /** Something was committed by this process. */
  appended(): void
  /** The same in a transaction: told after its commit, or with it if it is the user's own. */
  appendedIn(tx: AnyTransaction, executor: Executor): Promise<void>
  /** Calls back on every hint until the function returned is called. Starts listening on first use. */
  onHint(hear: () => void): () => void
  close(): Promise<void>
}

/** Shorter would cost a busy writer more statements than it gains readers in time. */
const notifyEveryMs = 20

export function openWake(log: Log): Wake {
  const hearers = new Set<() => void>()
  let listener: Listener | undefined
  let closed = false
  let sending: Promise<void> | undefined
  let again = false

  const hint = (): void => {
    for (const hear of hearers) hear()
  }

  const appended = (): void => {
    if (hearers.size > 0) hint()
    // Embedded there is no other process.
    if (closed || log.database.engine === 'pglite') return
    if (sending !== undefined) again = true
    else sending = runOutside(sendUntilQuiet)
  }

  return {
    appended,
    async appendedIn(tx, executor) {
      if (isOwnTransaction(tx)) tx.afterCommit(appended)
      else await executor.run(notification())
    },
    onHint(hear) {
      hearers.add(hear)
      if (listener === undefined && !closed)
        listener = runOutside(() =>
          log.database.listen(log.channel, payload => {
            if (payload === '' || payload === log.schema) hint()
          }),
        )
      return () => hearers.delete(hear)
    },
    async close() {
      closed = true
      hearers.clear()
      await Promise.all([listener?.close(), sending])
    },
  }

  async function sendUntilQuiet(): Promise<void> {
    do {
      again = false
      // A hint that does not arrive is made up for by the readers' poll.
      await log.database.run(notification()).catch(() => {})
      if (!closed) await new Promise<void>(resolve => setTimeout(resolve, notifyEveryMs).unref())
    } while (again && !closed)
    sending = undefined
  }

  function notification(): ReturnType<typeof sql> {
    return sql`/* events.notify */
      select pg_notify(${log.channel}::text, ${log.schema}::text)`
  }
}
