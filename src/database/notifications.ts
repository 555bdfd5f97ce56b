/**
 * Notifications of one database, of all stores on it: at most one statement every 20 ms, whatever the number of tenants.
 *
 *     notify ──► due ──► the next turn, or 20 ms after the last statement ──► one statement for all that is due
 *
 * Guarantee: the caller never waits for it, and the statement that it sends next is sent before.
 *
 * What can fail: the statement. Its notifications are dropped, and their receivers find out by their poll.
 */
import { runDetached } from '../core/service.ts'
import { type Statement, sql } from './sql.ts'

export interface Notifications {
  notify(channel: string, payload: string): void
  /** Drops what is due; from now on nothing is sent. */
  close(): void
}

/** Shorter would cost a busy writer more statements than it gains readers in time. */
const everyMs = 20

export function openNotifications(send: (statement: Statement) => Promise<unknown>): Notifications {
  /** Each once, by payload and channel. */
  const due = new Map<string, readonly [channel: string, payload: string]>()
  let isScheduled = false
  let isClosed = false

  const flush = async (): Promise<void> => {
    const all = [...due.values()]
    due.clear()
    if (all.length === 0 || isClosed) {
      isScheduled = false
      return
    }
    await send(notifications(all)).catch(() => {})
    setTimeout(flush, everyMs).unref()
  }

  return {
    notify(channel, payload) {
      if (isClosed) return
      due.set(`${channel}\n${payload}`, [channel, payload])
      if (isScheduled) return
      isScheduled = true
      runDetached(() => setImmediate(flush))
    },
    close() {
      isClosed = true
      due.clear()
    },
  }
}

/** Not worth a flush to the disk, which it would have by itself: 3 ms each, and the next one of the writers waits for it. */
function notifications(all: readonly (readonly [channel: string, payload: string])[]): Statement {
  return sql`/* database.notify */
    select pg_notify(channel, payload), set_config('synchronous_commit', 'off', true)
    from unnest(
      ${all.map(([channel]) => channel)}::text[],
      ${all.map(([, payload]) => payload)}::text[]) as sent(channel, payload)`
}
